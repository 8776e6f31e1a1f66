"""What a plan says that its marker changes: records, groups, their offsets, and the LSO; and what is read back."""

import struct
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.actions.rows import NO_ANSWER, RowCluster, abort_plan, found, with_txn
from tests.analysis.build import partition, producer
from tests.analysis.logged import data, headers, marker
from tests.stored import compare
from toolkit.actions import transaction as delivery
from toolkit.actions import transaction as impact_module
from toolkit.actions.transaction import (
    MarkerImpact,
    OffsetCommitted,
    PartitionResult,
    PlannedTransaction,
    delivered,
    group_offsets,
    marker_impact,
)
from toolkit.errors import ActionRefused, BrokerError
from toolkit.formats.headers import COMMIT, DamagedRange
from toolkit.schema.live import Finding, Partition, Producer
from toolkit.sources.live import coordinator_logs, partition_log
from toolkit.sources.live.coordinator_logs import LastBatch
from toolkit.sources.live.partition_log import FetchedChunk
from toolkit.sources.live.transactions import CommittedRead
from toolkit.sources.offset_queries import CommittedOffset

OWN = producer(last_sequence=3)
BEHIND = producer(8, start=108)
ENDED = producer(9, start=None)
NOBODY: Any = RowCluster()

WRITTEN = (
    data(100, records=3),
    data(103, pid=1, records=2),
    marker(105, COMMIT, pid=1),
    data(106, records=2),
    data(108, pid=8, records=10),
    data(118, pid=1, records=1),
    marker(119, COMMIT, pid=1),
)


def chunk(*batches: dict[str, Any], size: int = 0, damage: str = "") -> FetchedChunk:
    damaged = (DamagedRange(0, 1, damage),) if damage else ()
    return FetchedChunk(
        headers=headers(*({"crc_ok": 1} | each for each in batches)), damage=damaged, records=bytes(size)
    )


def failed(error: str) -> FetchedChunk:
    return FetchedChunk.unread(error, broker_id=1)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the leader sends, which range was read, and how many chunks were taken."""
    log = SimpleNamespace(chunks=[chunk(*WRITTEN)], ranges=[], taken=0)

    def read() -> Iterator[FetchedChunk]:
        for each in log.chunks:
            log.taken += 1
            yield each

    def read_offsets(client: object, row: object, start: int, stop: int, *, crc: bool) -> SimpleNamespace:
        assert crc
        log.ranges.append((start, stop))
        return SimpleNamespace(chunks=read())

    monkeypatch.setattr(partition_log, "read_offsets", read_offsets)
    return log


def planned(of: Finding, **fields: Any) -> PlannedTransaction:
    own = {"topic": of.topic, "producer_id": of.producer_id, "start_offset": of.start_offset, "basis": of}
    return with_txn(abort_plan(RowCluster()), **own, **fields).transaction


def impact(*producers: Producer, of: Finding | None = None, on: Partition | None = None) -> MarkerImpact:
    where = partition(hw=120) if on is None else on
    return marker_impact(NOBODY, planned(of or found()), partition=where, producers=producers)


# The log behind the transaction


WHOLE = [chunk(*WRITTEN)]
TIMED_OUT = failed("REQUEST_TIMED_OUT: no answer")
UP_TO_ITS_LAST = [chunk(data(100, records=2), data(102, sequence=2, records=2)), TIMED_OUT]
LOGS: dict[str, tuple[list[FetchedChunk], list[Producer], dict[str, Any]]] = {  # chunks, open transactions, and more
    "it releases what is before the next open transaction": (WHOLE, [OWN, BEHIND, ENDED], {}),
    "nothing else is open": (WHOLE, [OWN, ENDED], {}),
    "of two, the next one": (WHOLE, [producer(9, start=110), OWN, BEHIND], {}),
    "not beyond the high watermark": (WHOLE, [OWN, producer(8, start=130)], {}),
    "another one holds it": (WHOLE, [OWN, producer(8, start=90)], {"on": partition(lso=90, hw=120)}),
    "an LSO never goes back": (WHOLE, [OWN, producer(8, start=90)], {}),
    # From the LSO, as far as it is left
    "from the LSO": (WHOLE, [OWN], {"on": partition(lso=90, hw=120)}),
    "from its start, which is before the LSO": (WHOLE, [OWN], {"of": found(start_offset=95)}),
    "from the start of the log": (WHOLE, [OWN], {"on": partition(lso=90, hw=120, log_start_offset=104)}),
    "no marker and no earlier or ordinary record is of it": (
        [chunk(data(96, records=3), marker(99, COMMIT), data(100), data(101), data(102, attributes=0, records=4))],
        [OWN], {"on": partition(lso=96, hw=106)}),
    "a batch that it starts within": ([chunk(data(98, records=5))], [OWN], {}),
    "retention has deleted its records": ([], [OWN], {}),
    "compaction has removed batches": ([chunk(data(100, records=4)), chunk()], [OWN], {}),
    # What is behind what could not be read decides nothing.
    **{
        f"not read: {name}": ([chunk(data(100, records=3)), last, *WHOLE], [OWN], {})
        for name, last in {
            "the leader moved": failed("NOT_LEADER_OR_FOLLOWER: it moved"),
            "damage": chunk(data(104, records=2), damage="CORRUPT_BATCH: a magic of 9"),
            "a wrong checksum": chunk({**data(104, records=2), "crc_ok": 0})}.items()
    },
    # The size is known once the last batch of the state was read.
    "not read behind its last batch": (UP_TO_ITS_LAST, [BEHIND, OWN], {}),
    **{
        f"not read, and the state has {name}": (UP_TO_ITS_LAST, [state], {})
        for name, state in {
            "another sequence": producer(last_sequence=4), "another epoch": producer(epoch=1),
            "no sequence": producer(last_sequence=None), "another producer": producer(8)}.items()
    },
    "nothing of it was read": ([TIMED_OUT], [OWN], {}),
    "sequences begin again after their highest": (
        [chunk(data(100, sequence=2**31 - 2, records=4)), TIMED_OUT], [producer(last_sequence=1)], {}),
}  # fmt: skip


def test_what_a_marker_changes(log: SimpleNamespace) -> None:
    """Its records and those that it releases, and the LSO after it; of which range how many chunks were read."""
    lines = []
    for name, (chunks, producers, more) in LOGS.items():
        log.chunks, log.ranges, log.taken = chunks, [], 0
        found = impact(*producers, **more)
        lines += [f"# {name}", f"{found}", f"    read {log.ranges}, {log.taken} of {len(chunks)} chunks"]
    compare("marker_impact.txt", lines)


def test_offset_0_and_producer_id_0_are_no_missing_ones(log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    log.chunks = [chunk(data(0, pid=0), data(1, pid=0))]
    first = found(topic="__consumer_offsets", producer_id=0, start_offset=0)
    transactions: list[tuple[int, int]] = []

    def open_batches(*_: object, producer_id: int, start_offset: int, last: LastBatch) -> Iterator[Any]:
        transactions.append((producer_id, start_offset))
        yield from ()

    monkeypatch.setattr(impact_module, "open_batches", open_batches)
    where = partition(lso=0, hw=2)
    done = marker_impact(NOBODY, planned(first), partition=where, producers=[])
    assert (done.records, done.size, done.first_offset, done.last_stable_offset) == (2, 200, 0, 0)
    assert (log.ranges, transactions) == ([(0, 2)], [(0, 0)])


# A log that is not read to its end


def test_a_long_log_is_read_up_to_a_limit_of_bytes(log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impact_module, "MAX_IMPACT_BYTES", 20)
    first, second, third = (chunk(data(at, pid=1, records=4), size=10) for at in (100, 104, 108))
    log.chunks = [first, second, third]
    assert impact(OWN).unread == "The log was read from offset 100 to 108 (20 bytes) and not to 120."
    assert log.taken == 2
    log.chunks = [first, chunk(data(104, pid=1, records=16), size=10)]
    assert impact(OWN).unread == "", "that was all of it"


def test_a_slow_log_is_read_up_to_a_limit_of_time(log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impact_module, "IMPACT_TIMEOUT_S", -1.0)
    log.chunks = [chunk(data(100, pid=1, records=4), size=10), chunk(*WRITTEN)]
    assert impact(OWN).unread == "The log was read from offset 100 to 104 (10 bytes) and not to 120."


# Groups


@pytest.mark.usefixtures("log")
def test_groups_continue_only_if_the_lso_moves() -> None:
    where, held = partition(hw=120), found(groups_held=["billing"])
    free, blocked = [OWN], [OWN, producer(8, start=100)]
    for producers, groups in ((free, ["billing"]), (blocked, [])):
        assert list(marker_impact(NOBODY, planned(held), partition=where, producers=producers).groups or ()) == groups
    unknown = planned(found(groups_held=None))
    assert marker_impact(NOBODY, unknown, partition=where, producers=free).groups is None


# Offsets that a group commits within the transaction


def commit_key(group: str, number: int = 0) -> bytes:
    names = [struct.pack(">h", len(name)) + name.encode() for name in (group, "orders")]
    return struct.pack(">h", 1) + names[0] + names[1] + struct.pack(">i", number)


def commit_value(offset: int) -> bytes:
    return struct.pack(">hqih", 3, offset, 5, 0) + struct.pack(">q", 1_000)


def of_group(group: str, offset: int | None, number: int = 0) -> OffsetCommitted:
    return OffsetCommitted(group_id=group, topic="orders", partition=number, offset=offset)


def completed(
    monkeypatch: pytest.MonkeyPatch, *batches: Sequence[tuple[bytes, bytes | None]], topic: str, own: Producer = OWN
) -> MarkerImpact:
    """The impact if the transaction has written these keys and values; without batches, they cannot be read."""

    def open_batches(client: object, of: Partition, *, producer_id: int, start_offset: int, last: LastBatch) -> Any:
        assert (of.topic, producer_id, start_offset, last) == (topic, 7, 100, LastBatch(0, None))
        for batch in batches:
            written = [SimpleNamespace(key=key, value=value) for key, value in batch]
            yield SimpleNamespace(records=lambda written=written: iter(written))
        if not batches:
            raise NO_ANSWER

    monkeypatch.setattr(impact_module, "open_batches", open_batches)
    txn, where = planned(found(topic=topic), last_sequence=0), partition(topic, hw=120)
    return marker_impact(RowCluster(), txn, partition=where, producers=[own])  # type: ignore[arg-type]


def test_each_batch_of_offsets_looks_like_the_last_one(log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    log.chunks = [chunk(data(100)), failed("REQUEST_TIMED_OUT: no answer")]
    assert completed(monkeypatch, [], topic="orders", own=producer(last_sequence=0)).size == 100
    assert completed(monkeypatch, [], topic="__consumer_offsets", own=producer(last_sequence=0)).size is None


@pytest.mark.usefixtures("log")
def test_the_newest_offset_of_each_group_and_partition_becomes_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    group_record = struct.pack(">h", 2) + commit_key("g")[2:5]
    batches: list[list[tuple[bytes, bytes | None]]] = [
        [(commit_key("late"), commit_value(1)), (commit_key("billing", 1), commit_value(2))],
        [(commit_key("billing"), commit_value(3)), (group_record, None), (struct.pack(">h", 99), b"")],
        [(commit_key("billing"), commit_value(4)), (commit_key("late"), None)],
    ]
    done = completed(monkeypatch, *batches, topic="__consumer_offsets")
    assert done.offset_commits == (of_group("billing", 4), of_group("billing", 2, 1), of_group("late", None))
    assert completed(monkeypatch, *batches, topic="orders").offset_commits == ()


@pytest.mark.usefixtures("log")
def test_offsets_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of a newer Kafka, and no answer."""
    newer = [(commit_key("billing"), struct.pack(">h", 99))]
    done = completed(monkeypatch, newer, topic="__consumer_offsets")
    assert (done.offset_commits, done.records) == ((), 5)
    assert "99" in done.unread
    assert completed(monkeypatch, topic="__consumer_offsets").unread == NO_ANSWER.what
    assert completed(monkeypatch, topic="orders").unread == ""


@pytest.mark.usefixtures("log")
def test_no_offset_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 10,000 of them, a plan left out the rest without a word."""
    batches = [[(commit_key(f"group-{group:05}"), commit_value(1))] for group in range(10_002)]
    done = completed(monkeypatch, *batches, topic="__consumer_offsets")
    assert [each.group_id for each in done.offset_commits] == [f"group-{group:05}" for group in range(10_002)]


def test_of_a_long_log_no_offsets_are_read(log: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's open transaction keeps the cleaner away: a plan read all that was written since, without a limit."""
    monkeypatch.setattr(impact_module, "MAX_IMPACT_BYTES", 10)
    log.chunks = [chunk(data(100, pid=1, records=4), size=10)]
    done = completed(monkeypatch, [(commit_key("billing"), commit_value(1))], topic="__consumer_offsets")
    assert (done.offset_commits, done.unread) == (
        (),
        "The log was read from offset 100 to 104 (10 bytes) and not to 120.",
    )


# What is read back: records as a consumer receives them, and the offsets of groups


LAST = LastBatch(0, 3)
BATCHES = ((100, 101), (110,), (120, 125))  # the offsets of their records


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a consumer receives and how far it comes, and the ranges that were read."""
    reads = SimpleNamespace(received=[], reached=200, ranges=[])

    def open_batches(client: object, of: object, **arguments: Any) -> Iterator[Any]:
        assert arguments == {"producer_id": 7, "start_offset": 100, "last": LAST}
        for offsets in BATCHES:
            records = [SimpleNamespace(offset=offset) for offset in offsets]
            yield SimpleNamespace(base_offset=offsets[0], records=lambda records=records: iter(records))

    def read_committed(config: object, *where: Any, **arguments: Any) -> CommittedRead:
        reads.ranges.append(where)
        arguments["check"]()
        return CommittedRead(reads.received, reads.reached)

    monkeypatch.setattr(delivery, "open_batches", open_batches)
    monkeypatch.setattr(delivery, "read_committed", read_committed)
    return reads


def received(lso: int | None, check: Any = lambda: None) -> tuple[int | None, int | None]:
    """Records that were looked for, and those that were received."""
    plan = abort_plan(RowCluster())
    moved = PartitionResult(
        topic="orders",
        partition=0,
        last_stable_offset_before=100,
        last_stable_offset_after=lso,
        high_watermark=150,
        next_start_offset=None,
        observed_at=plan.basis.observed_at,
    )
    done = delivered(plan.cluster, plan.transaction, moved, check)
    return done.records_checked, done.records_delivered


def test_the_records_below_the_lso_are_looked_for(reads: SimpleNamespace) -> None:
    reads.received = [100, 101, 105, 110, 125]
    assert received(150) == (5, 4), "the record at 105 is another producer's"
    assert received(120) == (3, 3)
    assert received(121) == (5, 4)
    assert reads.ranges == [("orders", 0, 100, 126), ("orders", 0, 100, 111), ("orders", 0, 100, 126)]


def test_where_another_transaction_holds_the_lso_nothing_is_looked_for(reads: SimpleNamespace) -> None:
    for lso in (None, 90, 100):
        assert received(lso) == (None, None)
    assert reads.ranges == []


def test_records_that_were_not_reached_in_time_are_not_missing(reads: SimpleNamespace) -> None:
    reads.received, reads.reached = [100], 110
    assert received(150) == (2, 1)


def test_a_consumer_that_comes_to_no_record_has_not_looked(reads: SimpleNamespace) -> None:
    """It was "received 0 of 0 records", and the commit a success."""
    reads.reached = 100
    with pytest.raises(BrokerError, match="did not come to the records of orders-0@100 within"):
        received(150)


def test_no_batch_is_looked_for_behind_the_limit_of_records(
    reads: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_RECORDS", 3)
    reads.received = [100, 101, 110, 120, 125]
    assert received(150) == (3, 3)


def test_a_cancel_ends_the_read(reads: SimpleNamespace) -> None:
    def cancelled() -> None:
        raise ActionRefused("The action was cancelled.", do="")

    with pytest.raises(ActionRefused):
        received(150, cancelled)
    assert reads.ranges == [], "while the batches are read, too"


# Offsets of groups


def commit(group: str, number: int = 0, offset: int | None = 7) -> OffsetCommitted:
    return OffsetCommitted(group_id=group, topic="orders", partition=number, offset=offset)


PENDING = {("orders", 0): (None, "UNSTABLE_OFFSET_COMMIT: pending"), ("orders", 1): (3, None)}
STABLE = {("orders", 0): (9, None), ("orders", 1): (3, None)}


def offsets_of(
    monkeypatch: pytest.MonkeyPatch, commits: Sequence[OffsetCommitted], *answers: Any
) -> tuple[Sequence[OffsetCommitted], Sequence[str], int]:
    """Offsets and unlisted groups, and the number of requests; the coordinator of `billing` and `late` is broker 4."""
    left, requested = list(answers), []

    def fetch_offsets(client: object, coordinators: Any, partitions: Any, *, require_stable: bool) -> Any:
        ((group, _),) = requested_now = [*coordinators.items()]
        requested.extend(requested_now)
        assert require_stable
        found = left.pop(0) if len(left) > 1 else left[0]
        # A coordinator omits what is pending and was never committed unless it is named.
        answer = {tp: CommittedOffset(*each) for tp, each in found.items()}
        named = partitions or [tp for tp, each in answer.items() if not each.is_pending]
        yield group, {tp: each for tp, each in answer.items() if tp in named}

    def group_ids(client: object, brokers: Sequence[int]) -> dict[str, int]:
        assert brokers == [1]
        return {"late": 4, "billing": 4, "another": 1}

    monkeypatch.setattr(delivery, "group_ids", group_ids)
    monkeypatch.setattr("toolkit.sources.live.group_offsets.fetch_offsets", fetch_offsets)
    cluster: Any = RowCluster()
    found, unlisted = group_offsets(cluster, commits)
    assert {coordinator for _, coordinator in requested} <= {4}
    assert {group for group, _ in requested} <= {each.group_id for each in commits}
    return found, unlisted, len(requested)


def test_the_offsets_that_groups_have_now_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [commit(name) for name in "gnutella"]
    commits = [commit("late"), commit("billing", 1), commit("billing"), *gone]
    found, unlisted, _ = offsets_of(monkeypatch, commits, STABLE)
    assert found == (commit("billing", 1, 3), commit("billing", 0, 9), commit("late", 0, 9))
    assert unlisted == tuple("aeglntu"), "groups that no broker lists to this principal"
    assert offsets_of(monkeypatch, [commit("late", 2)], STABLE)[0] == (commit("late", 2, None),), "it was removed"


def test_offsets_of_a_topic_that_may_not_be_described_were_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group was said to have no offset there, as a coordinator omits such a topic that is not named."""
    denied = {("orders", 0): (None, "TOPIC_AUTHORIZATION_FAILED: denied"), ("orders", 1): (3, None)}
    assert offsets_of(monkeypatch, [commit("late")], denied) == ((), ("late",), 1)


def test_a_pending_offset_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first one of a group: it was said to have none, as its partition was not named."""
    assert offsets_of(monkeypatch, [commit("late")], PENDING, PENDING, STABLE) == ((commit("late", 0, 9),), (), 3)
    both = [commit("late", 1), commit("late")]
    assert offsets_of(monkeypatch, both, PENDING, STABLE) == ((commit("late", 1, 3), commit("late", 0, 9)), (), 2)
    other = [commit("late", 1), commit("billing", 0)]
    assert offsets_of(monkeypatch, other, PENDING, STABLE)[2] == 3, "a request for each group"
    assert offsets_of(monkeypatch, [commit("late", 1)], PENDING)[2] == 1, "another partition's is none of its"


def test_an_offset_that_stays_pending_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match="Group 'late' cannot read its offset of orders-0: UNSTABLE_OFF") as raised:
        offsets_of(monkeypatch, [commit("late")], PENDING)
    assert raised.value.code == "UNSTABLE_OFFSET_COMMIT"


# The open batches


def opened(
    monkeypatch: pytest.MonkeyPatch, *chunks: FetchedChunk, last: LastBatch = LAST, log_start_offset: int = 0
) -> list[tuple[int, int]]:
    """Base offset and last sequence number of those that are found from offset 100 on."""

    def read_offsets(client: object, of: object, start: int, stop: int, *, crc: bool) -> SimpleNamespace:
        assert (start, stop, crc) == (max(100, log_start_offset), 120, True)
        return SimpleNamespace(chunks=(each for each in chunks))

    monkeypatch.setattr(coordinator_logs, "read_offsets", read_offsets)
    where = partition(hw=120, log_start_offset=log_start_offset)
    found = coordinator_logs.open_batches(NOBODY, where, producer_id=7, start_offset=100, last=last)
    return [(each.base_offset, each.last_sequence) for each in found]


def test_open_batches_are_those_of_the_producer_up_to_the_last_of_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    others = marker(102, COMMIT), data(103, attributes=0), data(104, pid=8)
    first = chunk(data(100, records=2), *others, damage="TORN_TAIL: as a response ends")
    second, behind = chunk(data(105, sequence=2, records=2)), chunk(data(107, sequence=4))
    assert opened(monkeypatch, first, second, behind) == [(100, 1), (105, 3)], "what is behind it came later"
    of_epoch_1 = chunk(data(100, sequence=3), data(101, epoch=1, sequence=3))
    assert opened(monkeypatch, of_epoch_1, behind, last=LastBatch(1, 3)) == [(100, 3), (101, 3)]
    assert opened(monkeypatch, chunk(data(100, sequence=2**31 - 2, records=4)), behind, last=LastBatch(0, 1)) == [
        (100, 1)
    ]
    of_groups = chunk(data(100), data(101))
    assert opened(monkeypatch, of_groups, last=LastBatch(0, None)) == [(100, 0), (101, 0)]


def test_a_last_batch_that_is_not_there_is_missed_unless_all_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be above the high watermark: the marker would discard it, and the copy would be without it."""
    with pytest.raises(BrokerError, match="no batch of producer 7 with its last sequence number 3 below") as raised:
        opened(monkeypatch, chunk(data(100, records=2)))
    assert raised.value.code == "OFFSET_NOT_AVAILABLE"
    for kept, log_start_offset in ((chunk(data(115)), 110), (chunk(), 100)):
        with pytest.raises(BrokerError, match="no batch of producer 7"):
            opened(monkeypatch, kept, log_start_offset=log_start_offset)
    assert opened(monkeypatch, chunk(), log_start_offset=110) == []


def test_a_log_that_is_damaged_has_no_open_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for damaged, why in (
        (chunk({**data(100, records=4), "crc_ok": 0}), "the checksum of the batch at offset 100 does not match"),
        (chunk(damage="CORRUPT_BATCH: a magic of 9"), "could not be read: a magic of 9"),
    ):
        with pytest.raises(BrokerError, match=why):
            opened(monkeypatch, damaged)
