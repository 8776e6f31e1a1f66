"""When files prove that a transaction hangs, and each piece of evidence without which they do not.

One staged: producer 7 of id OWNER wrote to orders-0 at noon, a minute after its transaction had been aborted. Ten
minutes later another producer committed there, and ten minutes after that another id was written to the same partition
of ``__transaction_state``: what both logs hold is of one moment as far as this transaction goes.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sources.log_files import (
    CLEANED,
    HIGH_WATERMARK,
    NOON,
    SEGMENT,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    state_record,
    tombstone,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from tests.stored import compare
from toolkit import LogDir
from toolkit.analysis.diagnosis.log_excerpts import ExcerptStart
from toolkit.errors import DecodeError
from toolkit.formats.batches import read_header
from toolkit.schema import FINDINGS, Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import write_batch
from toolkit.sources.logdir.consistency import end_time
from toolkit.sources.logdir.contents import found_in
from toolkit.sources.logdir.observe_files import observe_files
from toolkit.sources.logdir.replica_state import MarkerNeighbourhood

K = 33
OWNER, OTHER = ids_of(K, 2)
ORDERS, STATES = ("orders", 0), (STATE_TOPIC, K)
ABORTED_AT = after(minutes=-1)
WORD = "a copy by kafka-txn copy, or your assertion that the brokers were stopped during the copy (--consistent-copy)"


ORDERS_LOG = (data(0, 7, after()), data(1, 8, after(minutes=10)), marker(2, 8, after(minutes=10)))
OWNERS, OTHERS = state_record(0, OWNER, 7, "Empty", ABORTED_AT), state_record(1, OTHER, 9, "Empty", after(minutes=20))
Change = Callable[[Path], object]


class StagedFiles:
    """Files that prove it, or others; `later` is done to the log directory once they are written."""

    def __init__(
        self,
        path: Path,
        *,
        orders: Sequence[bytes] = ORDERS_LOG,
        states: Sequence[bytes] = (OWNERS, OTHERS),
        replicated: Mapping[tuple[str, int], int | None] = {},
        later: Sequence[Change] = (),
    ) -> None:
        self.root = write_root(path / "data")
        self.orders, self.states, self.later = [*orders], [*states], [*later]
        self.replicated = {**replicated}  # where it is not the end of a log; null if it is not known

    def folder(self, number: int = K) -> Path:
        return self.root / f"{STATE_TOPIC}-{number}"

    def write(self) -> None:
        write_state_topic(self.root, {K: self.states})
        write_log(self.root, "orders-0", self.orders)
        self.write_high_watermarks()
        for do in self.later:
            do(self.root)

    def write_high_watermarks(self) -> None:
        ends = {tp: read_header(log[-1]).last_offset + 1 for tp, log in ((ORDERS, self.orders), (STATES, self.states))}
        known = {tp: offset for tp, offset in {**ends, **self.replicated}.items() if offset is not None}
        write_checkpoint(self.root, HIGH_WATERMARK, known)

    def replica(self, *orders: bytes) -> Path:
        """The log directory of broker 2 with these batches of orders-0."""
        root = write_root(self.root.parent / "other", broker_id=2)
        write_log(root, "orders-0", orders)
        write_checkpoint(root, HIGH_WATERMARK, {ORDERS: len(orders)})
        return root

    def judge(self, *, consistent_copy: bool = False, as_of: dt.datetime | None = None) -> Row:
        """The finding on producer 7."""
        if not (self.root / HIGH_WATERMARK).exists():
            self.write()
        files = LogDir(self.root.parent, consistent_copy=consistent_copy, as_of=as_of)
        rows = files.finding_rows(partitions=[ORDERS])
        FINDINGS.arrow(rows)
        (row,) = (row for row in rows if row["producer_id"] == 7)
        return row


@pytest.fixture
def staged(tmp_path: Path) -> StagedFiles:
    return StagedFiles(tmp_path)


def only_missing(row: Row) -> str:
    """The one thing that an unknown finding lacks; it keeps a person from aborting."""
    assert row["verdict"] == "unknown", row
    assert "kafka-txn abort" not in row["remedy"]
    assert len(row["missing"]) == 1, row["missing"]
    return str(row["missing"][0])


def test_later_records_in_both_logs_prove_a_hanging_transaction(staged: StagedFiles) -> None:
    row = staged.judge()
    assert (row["verdict"], row["missing"], row["start_offset"]) == ("hanging", [], 0)
    assert "read from the files of broker 1 as of" in row["reason"]
    assert any("the copies are consistent" in entry["value"] for entry in row["evidence"])


def test_a_transaction_beside_a_missing_segment_is_unknown_wherever_it_begins(staged: StagedFiles) -> None:
    """It was said to begin at offset 0, across the missing segment, which may have its end and another beginning."""
    later = [data(7, 7, after(minutes=11)), data(8, 9, after(minutes=11)), marker(9, 9, after(minutes=12))]
    staged.later.append(lambda root: write_log(root, "orders-0", later, base_offset=7))
    staged.replicated[ORDERS] = 10
    for consistent_copy in (False, True):
        row = staged.judge(consistent_copy=consistent_copy)
        assert (row["verdict"], row["start_offset"], row["last_stable_offset"]) == ("unknown", 7, None)
        assert "offsets 3 to 6 of orders-0, among which the transaction may begin or end" in row["missing"]
        assert "kafka-txn abort" not in row["remedy"]


def test_a_transaction_open_before_a_missing_segment_leaves_the_partition_unknown(staged: StagedFiles) -> None:
    later = [data(7, 9, after(minutes=11)), marker(8, 9, after(minutes=12))]
    staged.later.append(lambda root: write_log(root, "orders-0", later, base_offset=7))
    staged.replicated[ORDERS] = 9
    with pytest.raises(ValueError, match="not enough values"):
        staged.judge()  # nothing is said of the transaction
    (row,) = LogDir(staged.root.parent).finding_rows(partitions=[ORDERS])
    assert (row["verdict"], row["last_stable_offset"]) == ("unknown", None)
    assert row["missing"] == [
        "OFFSETS_LOST: No segment has offsets 3 to 6: one is missing or incomplete, or this is a new replica of a "
        "compacted log."
    ]


def test_a_partition_alone_proves_nothing(tmp_path: Path) -> None:
    folder = write_log(tmp_path, "orders-0", [data(0, 7, after())])
    (row,) = LogDir(folder, consistent_copy=True).finding_rows()
    assert only_missing(row) == f"the coordinators' state: no partition of {STATE_TOPIC} is among the files"


def cleaned_to_5(root: Path) -> None:
    write_checkpoint(root, CLEANED, {STATES: 5})


def begins_at(offset: int) -> Change:
    """The segment of orders-0 is named so."""
    return lambda root: (root / "orders-0" / SEGMENT).rename(root / "orders-0" / f"{offset:020}.log")


def has_snapshot(offset: int, opened_at: int) -> Change:
    return lambda root: write_snapshot(root / "orders-0", offset, {7: opened_at})


def has_segment(base_offset: int) -> Change:
    later = [data(base_offset, 9, after(minutes=11)), marker(base_offset + 1, 9, after(minutes=12))]
    return lambda root: write_log(root, "orders-0", later, base_offset=base_offset)


UNPROVEN: Mapping[str, Mapping[str, Any]] = {
    "nothing follows on the partition": {"orders": ORDERS_LOG[:1]},
    "only data follows, by a producer's clock": {"orders": ORDERS_LOG[:2]},
    "the marker is hardly newer than the coordinator's word": {
        "orders": [*ORDERS_LOG[:2], marker(2, 8, after(seconds=-1))]},
    "the marker may be a deposed leader's": {"replicated": {ORDERS: 2}},
    "nobody knows what of the partition is replicated": {"replicated": {ORDERS: None}},
    "the coordinators' log is hardly newer than the transaction": {
        "states": [OWNERS, state_record(1, OTHER, 9, "Empty", after(minutes=10, seconds=59))]},
    "the coordinator's newer record may be a deposed leader's": {"replicated": {STATES: 1}},
    "the coordinator's word may be a deposed leader's": {"replicated": {STATES: 0}},
    # A record is stamped when it is written; the time in it, when the outcome was decided.
    "the outcome was decided early, and its marker is late": {
        "states": [state_record(0, OWNER, 7, "Empty", after(minutes=-2)), OTHERS,
                   state_record(2, OWNER, 7, "Empty", after(minutes=30), updated=ABORTED_AT)]},
    # The cleaner takes a record that a newer one supersedes; a copy may have that one's segment from before it.
    "a newer record of the id may have been cleaned away": {
        "states": [OWNERS, state_record(5, OTHER, 9, "Empty", after(minutes=20))], "later": [cleaned_to_5]},
    "the coordinator's clock went back": {
        "states": [OWNERS, *(state_record(n, OTHER, 9, "Empty", after(minutes=at)) for n, at in ((1, 90), (2, 20)))]},
    "the clock of the partition's leader went back": {
        "orders": [*ORDERS_LOG[:2], marker(2, 8, after(minutes=13)), marker(3, 9, after(minutes=10))]},
    "no id owns the producer": {
        "states": [OWNERS, tombstone(1, OWNER, ABORTED_AT), state_record(2, OTHER, 9, "Empty", after(minutes=20))]},
    # The first batches are deleted: the state, not the bytes, shows the transaction.
    "the end of the partition is known from a snapshot only": {
        "orders": [marker(9, 8, after(seconds=-2))], "replicated": {ORDERS: 3},
        "later": [has_snapshot(10, 3), begins_at(9)]},
}  # fmt: skip


def test_without_that_proof_the_caller_has_to_assert_a_consistent_copy(tmp_path: Path) -> None:
    lines = list[str]()
    for name, case in UNPROVEN.items():
        staged = StagedFiles(tmp_path / name.replace(" ", "_"), **case)
        missing = only_missing(staged.judge())
        assert WORD in missing
        lines += [name, f"  {missing}"]
        row = staged.judge(consistent_copy=True)
        assert row["verdict"] == "hanging", row["missing"]
        assert any("brokers were stopped" in entry["value"] for entry in row["evidence"])
    compare("unproven_files.txt", (line.replace(str(tmp_path), "") for line in lines))


def removed(*numbers: int) -> Sequence[Change]:
    """These partitions of the coordinators were not copied."""

    def remove(root: Path) -> None:
        for number in numbers:
            shutil.rmtree(root / f"{STATE_TOPIC}-{number}")

    return [remove]


def moved(cluster_id: str | None) -> Change:
    """The log is in another log directory, of this cluster."""

    def move(root: Path) -> None:
        other = root.parent / "other"
        if cluster_id is not None:
            write_root(other, broker_id=2, cluster_id=cluster_id)
        other.mkdir(exist_ok=True)
        (root / "orders-0").rename(other / "orders-0")
        write_checkpoint(other, HIGH_WATERMARK, {ORDERS: 3})

    return move


def created_again(root: Path) -> None:
    """Two brokers have logs of two topics of one name."""
    other = write_root(root.parent / "other", broker_id=2)
    write_checkpoint(other, HIGH_WATERMARK, {ORDERS: 3})
    for number, each in enumerate((root, other)):
        folder = write_log(each, "orders-0", ORDERS_LOG)
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {number}4R2yICtSb6sfxKDr3xtSQ")


WRONG = [data(offset, 8, after(minutes=offset)).replace(b"value", b"wrong") for offset in range(3)]
NOT_THERE = state_record(0, ids_of(8, 1)[0], 5, "Empty", after())
INCOMPLETE: Mapping[str, Mapping[str, Any]] = {
    "a partition of the coordinators is missing": {"later": removed(7)},
    "the last partitions of the coordinators are missing": {"later": removed(*range(40, 50))},
    "a partition of the coordinators has no segment": {
        "later": [lambda root: (root / f"{STATE_TOPIC}-7" / SEGMENT).unlink()]},
    "a partition of the coordinators is damaged": {
        "later": [lambda root: (root / f"{STATE_TOPIC}-7" / SEGMENT).write_bytes(b"\x01" * 100)]},
    "a record of the coordinators does not match its checksum": {"states": [OWNERS, OTHERS.replace(b"id-", b"ID-")]},
    "a record of the coordinators is of a newer Kafka": {
        "states": [OWNERS, OTHERS, state_record(2, OTHER, 9, "Empty", after(minutes=30), version=9)]},
    "ids lie where another number of partitions puts them": {
        "later": [lambda root: write_log(root, f"{STATE_TOPIC}-7", [NOT_THERE])]},
    "the log of the partition has a hole": {"orders": [*ORDERS_LOG[:2], marker(3, 8, after(minutes=10))]},
    "a segment of the partition is missing": {
        "replicated": {ORDERS: 9}, "later": [has_segment(7), has_snapshot(7, 0)]},
    "the log of the partition is damaged": {"orders": [ORDERS_LOG[0], WRONG[1], ORDERS_LOG[2]]},
    # Of the wrong checksums of a piece of the log, only the first one counted, and it is before the transaction.
    "the log of the partition is damaged before the transaction and after": {
        "orders": [WRONG[0], data(1, 7, after()), WRONG[2], marker(3, 8, after(minutes=10))]},
    "the bytes end what the snapshot has open": {
        "orders": [ORDERS_LOG[0], marker(1, 7, after(minutes=1)), ORDERS_LOG[2]], "later": [has_snapshot(3, 0)]},
    "the bytes have another producer where the snapshot has it start": {
        "orders": [data(0, 6, after()), *ORDERS_LOG[1:]], "later": [has_snapshot(3, 0)]},
    "the snapshot of a later segment is missing": {"replicated": {ORDERS: 5}, "later": [has_segment(3)]},
    "the files begin within the log without a snapshot: the transaction may have begun before them": {
        "orders": [data(4, 7, after()), data(5, 8, after(minutes=10)), marker(6, 8, after(minutes=10))],
        "later": [begins_at(4)]},
    "another id has this producer id next": {
        "states": [OWNERS, OTHERS, state_record(2, OTHER, 9, "Ongoing", after(minutes=30), next_producer_id=7)]},
    # Producer ids count from 0 in every cluster.
    "a part of the files is of another cluster": {"later": [moved("nuYagfUjSV-QqeIjFMsFWQ")]},
    "a part of the files is of nobody knows which cluster": {"later": [moved(None)]},
    "the topic was created again": {"later": [created_again]},
}  # fmt: skip


def test_nothing_is_hanging_in_incomplete_files(tmp_path: Path) -> None:
    """Neither by their content, nor in a copy that is asserted to be consistent."""
    lines = list[str]()
    for name, case in INCOMPLETE.items():
        lines.append(name)
        for consistent_copy in (False, True):
            staged = StagedFiles(tmp_path / f"{name.replace(' ', '_')}_{consistent_copy}", **case)
            row = staged.judge(consistent_copy=consistent_copy)
            assert row["verdict"] == "unknown", row
            assert "kafka-txn abort" not in row["remedy"]
            lines += [f"  {'asserted' if consistent_copy else 'by content'}: {each}" for each in row["missing"]]
    compare("incomplete_files.txt", (line.replace(str(tmp_path), "") for line in lines))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def test_a_torn_end_contradicts_an_asserted_consistent_copy(staged: StagedFiles) -> None:
    staged.orders.append(data(3, 9, after(minutes=30)))
    staged.states.append(state_record(2, OTHER, 9, "Empty", after(minutes=30)))
    staged.replicated |= {ORDERS: 3, STATES: 2}
    staged.later += [lambda root: cut(root / "orders-0" / SEGMENT), lambda root: cut(staged.folder() / SEGMENT)]
    assert staged.judge()["verdict"] == "hanging"
    missing = staged.judge(consistent_copy=True)["missing"]
    assert [text.partition(":")[0] for text in missing] == [f"a complete {STATE_TOPIC}-33", "the leader's offsets"]


def test_a_marker_after_all_records_of_coordinators_contradicts_an_asserted_consistent_copy(
    staged: StagedFiles,
) -> None:
    """Their log was of another broker's copy, hours older: a transaction that began meanwhile was to be aborted."""
    staged.orders += [data(3, 9, after(hours=9)), marker(4, 9, after(hours=10))]
    staged.replicated[ORDERS] = 5
    (missing,) = staged.judge(consistent_copy=True)["missing"]
    assert missing.startswith(
        f"a copy of {STATE_TOPIC} as new as that of orders-0, which has a marker of 2026-11-21 22:"
    )


def test_a_follower_clears_nothing_that_a_replica_lacks_at_its_end(tmp_path: Path) -> None:
    """Both files ended at offset 2, and the high watermark of one broker is 3: all was clear."""
    for broker_id, high_watermark in ((1, 2), (2, 3)):
        root = write_root(tmp_path / str(broker_id), broker_id=broker_id)
        write_log(root, "orders-0", [data(0, 7, after()), marker(1, 7, after())])
        write_checkpoint(root, HIGH_WATERMARK, {ORDERS: high_watermark})
        write_state_topic(root)
    (row,) = LogDir(tmp_path, consistent_copy=True).finding_rows()
    assert row["verdict"] == "unknown"
    assert "2/orders-0 reaches further, to offset 3" in row["missing"][0]


@pytest.mark.parametrize("is_asserted", [True, False])
def test_a_torn_end_is_no_end_of_a_log_that_a_stopped_broker_left(is_asserted: bool, tmp_path: Path) -> None:
    """Only the first bytes of a transaction were copied: nothing hung, in files of one moment, as asserted."""
    root = write_root(tmp_path)
    cut(write_log(root, "orders-0", [data(0, 7, after()), marker(1, 7, after()), data(2, 8, after())]) / SEGMENT)
    write_state_topic(root)
    assert LogDir(root).finding_rows() == []  # as a running broker leaves it
    if not is_asserted:
        (root / ".kafka_cleanshutdown").touch()
    (row,) = LogDir(root, consistent_copy=is_asserted).finding_rows()
    assert (row["topic"], row["verdict"]) == ("orders", "unknown")
    assert row["missing"][0].startswith("OFFSETS_LOST: The files end at offset 2, before a batch that is torn")


def test_a_checkpoint_beyond_the_end_contradicts_an_asserted_consistent_copy(staged: StagedFiles) -> None:
    """Without its last segment the coordinators' log disowned a live transaction, which was to be aborted."""
    del staged.orders[1:]
    staged.replicated[STATES] = 3
    (missing,) = staged.judge(consistent_copy=True)["missing"]
    assert missing == (
        f"a complete {STATE_TOPIC}-33: OFFSETS_LOST: The files end at offset 2, before the high watermark 3 of "
        "replication-offset-checkpoint: the last segment is missing or incomplete"
    )
    staged.replicated |= {ORDERS: 2, STATES: 2}
    staged.write_high_watermarks()
    assert staged.judge(consistent_copy=True)["verdict"] == "unknown"
    staged.replicated[ORDERS] = 1
    staged.write_high_watermarks()
    assert staged.judge(consistent_copy=True)["verdict"] == "hanging"


def test_a_lock_that_cannot_be_read_contradicts_an_asserted_consistent_copy(staged: StagedFiles) -> None:
    """It was taken for a broker that does not run."""
    del staged.orders[1:]
    lock = staged.root / ".lock"
    staged.later.append(lambda _: lock.symlink_to(lock))
    assert only_missing(staged.judge(consistent_copy=True)) == (
        f"stopped brokers: whether one runs on {staged.root} is unknown, as .lock cannot be read: "
        f"{os.strerror(errno.ELOOP)}"
    )


def test_in_a_consistent_copy_only_cleaned_offsets_of_the_coordinator_are_missing(staged: StagedFiles) -> None:
    staged.states[1] = state_record(5, OTHER, 9, "Empty", after(minutes=20))
    assert (
        f"{STATE_TOPIC}-33 without missing offsets: 0 is followed by 5" in staged.judge(consistent_copy=True)["missing"]
    )
    write_checkpoint(staged.root, CLEANED, {STATES: 5})
    assert staged.judge(consistent_copy=True)["verdict"] == "hanging"


def test_the_number_of_coordinator_partitions_can_be_set(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    owner = ids_of(2, 1, partitions=4)[0]
    write_state_topic(root, {2: [state_record(0, owner, 7, "Empty", ABORTED_AT)]}, partitions=4)
    write_log(root, "orders-0", [data(0, 7, after())])
    for count, verdict in ((4, "hanging"), (5, "unknown"), (3, "unknown"), (None, "unknown")):
        (row,) = LogDir(root, consistent_copy=True, txn_state_partitions=count).finding_rows()
        assert row["verdict"] == verdict, count


def test_a_live_transaction_is_ongoing_and_not_overdue_by_the_age_of_a_copy(staged: StagedFiles) -> None:
    staged.states[0] = state_record(0, OWNER, 7, "Ongoing", after(minutes=-1), on=[ORDERS])
    row = staged.judge()
    assert row["verdict"] == "overdue"  # the coordinator wrote on for 21 minutes and never aborted it
    cut(staged.folder() / SEGMENT)
    for as_of, period in (
        (None, "after which the files have no time"),  # a file's own times are of today, days later
        (after(), "for 1 min as of 2026-11-21 12:00:00 UTC"),
    ):
        row = staged.judge(as_of=as_of)
        assert row["verdict"] == "ongoing"
        assert period in row["reason"]
    row = staged.judge(as_of=after(minutes=30))
    assert row["verdict"] == "overdue"
    assert "as of 2026-11-21 12:30:00 UTC, by the asserted time of the copy (as_of)" in row["reason"]
    row = staged.judge(consistent_copy=True)
    assert row["verdict"] == "overdue"
    assert "as of 2026-11-21 12:10:00 UTC, by the newest marker in orders-0" in row["reason"]


@pytest.mark.parametrize(
    ("last", "as_of", "verdict"),
    [
        (marker(1, 7, after(seconds=5)), after(minutes=30), "unknown"),
        (marker(1, 7, after(), epoch=1), after(minutes=30), "unknown"),  # a fence raises the epoch
        (marker(1, 7, after(seconds=5)), after(seconds=8), "ongoing"),  # it ended after the copy
        (marker(1, 7, after(seconds=-5)), after(minutes=30), "overdue"),  # of its transaction before
    ],
    ids=["ended", "fenced", "ended since", "ended before"],
)
def test_an_older_copy_of_the_coordinators_makes_nothing_overdue(
    tmp_path: Path, last: bytes, as_of: dt.datetime, verdict: str
) -> None:
    """A follower that lags had open what had ended: it was overdue by the time of the copy, to be fenced.

    Nor does that time show that other ids are overdue, which no marker contradicts.
    """
    write_owners(tmp_path)
    write_log(tmp_path, "orders-0", [data(0, 7, after()), last])
    rows = {row["producer_id"]: row for row in LogDir(tmp_path, as_of=as_of).finding_rows()}
    found = {producer_id: row["verdict"] for producer_id, row in rows.items()}
    assert found == dict.fromkeys((7, 8, 9), verdict)
    if verdict == "unknown":
        assert rows[7]["action"] is rows[8]["action"] is rows[9]["action"] is None
        (missing,) = rows[9]["missing"]
        assert "__transaction_state-33 that is complete up to 2026-11-21 12:30:00 UTC" in missing
        assert f'"{OWNER}" is Ongoing in this one since 2026-11-21 12:00:00 UTC, and orders-0 has the marker' in missing
        (until,) = (each["value"] for each in rows[8]["evidence"] if each["name"] == "proven_until")
        assert until == "2026-11-21 12:00:00 UTC, by the newest record of the id"


def test_lost_offsets_do_not_make_the_coordinators_copy_an_older_one(tmp_path: Path) -> None:
    """What was open before them is not known to be open, and its last batch is no marker: it has a client's time."""
    write_owners(tmp_path)
    write_log(tmp_path, "orders-0", [data(0, 7, after(seconds=5))])
    write_log(tmp_path, "orders-0", [data(9, 6, after(seconds=5))], base_offset=9)
    found = {row["producer_id"]: row["verdict"] for row in LogDir(tmp_path, as_of=after(minutes=30)).finding_rows()}
    assert (found[7], found[8], found[9]) == ("unknown", "overdue", "overdue")


def write_owners(root: Path) -> None:
    """A log directory in which two ids of one coordinator, and one of another, have a transaction open since noon."""
    write_root(root)
    (another,) = ids_of(K + 1, 1)
    first = state_record(0, OWNER, 7, "Ongoing", after(), on=[ORDERS])
    second = state_record(1, OTHER, 8, "Ongoing", after(), on=[("paid", 0)])
    third = state_record(0, another, 9, "Ongoing", after(), on=[("paid", 0)])
    write_state_topic(root, {K: [first, second], K + 1: [third]})
    write_log(root, "paid-0", [data(0, 8, after(seconds=5)), data(1, 9, after(seconds=5))])
    write_checkpoint(root, HIGH_WATERMARK, {ORDERS: 10, ("paid", 0): 2, STATES: 2, (STATE_TOPIC, K + 1): 1})


def test_a_damaged_time_makes_nothing_overdue(staged: StagedFiles) -> None:
    """One bit of the newest record of the coordinator's log, whose checksum is wrong, was nine years later."""
    staged.states[0] = state_record(0, OWNER, 7, "Ongoing", after(minutes=-1), on=[ORDERS])
    spoiled = bytearray(state_record(1, OTHER, 9, "Empty", after()))
    spoiled[37] ^= 1 << 2  # of max_timestamp
    staged.states[1] = bytes(spoiled)
    row = staged.judge()
    assert row["verdict"] != "overdue"
    assert row["brokers_time"] < after(minutes=11)


def test_a_damaged_time_of_the_controllers_ends_no_copy(staged: StagedFiles) -> None:
    """In a consistent copy it would be the time up to which all that is open is aged."""
    spoiled = bytearray(data(1, -1, after()))
    spoiled[37] ^= 1 << 2  # of max_timestamp
    write_log(staged.root, "__cluster_metadata-0", [data(0, -1, after()), bytes(spoiled)])
    (log,) = found_in([staged.root]).metadata_logs
    assert end_time(log) == after()


def test_a_batch_with_a_wrong_checksum_clears_nothing(staged: StagedFiles) -> None:
    """One bit of the only open batch, which was no longer transactional, made the partition clear."""
    spoiled = bytearray(data(0, 7, after()))
    spoiled[22] ^= 0x10
    whole, staged.orders[0] = [*staged.orders], bytes(spoiled)
    staged.write()
    (row,) = LogDir(staged.root).finding_rows(topics=["orders"])
    assert row["verdict"] == "unknown"
    assert str(row["error"]).startswith("CORRUPT_BATCH: the checksum at offset 0 is wrong")
    (partition,) = LogDir(staged.root).partition_rows(topics=["orders"])
    assert partition["error"] == row["error"], "nor in a table of its state"
    staged.replica(*whole)
    replicas = LogDir(staged.root.parent).finding_rows(topics=["orders"])
    assert [each["producer_id"] for each in replicas] == [7], "the intact replica has it open"


def test_a_copy_without_the_first_segments_and_snapshots_clears_nothing(tmp_path: Path) -> None:
    """Of a log whose newest segment alone was copied, the partition was clear: what is open may have begun before."""
    root = write_root(tmp_path / "one")
    folder = write_log(root, "orders-0", [write_batch([(None, b"v")], timestamp=NOON, base_offset=9)], base_offset=9)
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 10})
    (row,) = LogDir(root).finding_rows(topics=["orders"])
    assert (row["verdict"], row["last_stable_offset"]) == ("unknown", None)
    assert str(row["error"]).startswith("NO_SNAPSHOT: the files begin at offset 9")
    write_snapshot(folder, 9, {})
    (row,) = LogDir(root).finding_rows(topics=["orders"])
    assert (row["verdict"], row["last_stable_offset"]) == ("clear", 10)


def test_what_began_before_a_copy_without_snapshots_may_be_open_beside_what_it_shows(tmp_path: Path) -> None:
    """With a transaction in the newest segment, nothing said that an earlier one may hold the LSO."""
    root = write_root(tmp_path / "one")
    write_log(root, "orders-0", [data(9, 7, after()), data(10, 8, after()), marker(11, 8, after())], base_offset=9)
    write_checkpoint(root, HIGH_WATERMARK, {ORDERS: 12})
    opened, unread = LogDir(root).finding_rows(topics=["orders"])
    assert (opened["producer_id"], unread["producer_id"], unread["verdict"]) == (7, None, "unknown")
    assert "what is open may have begun before" in str(unread["error"])


@pytest.mark.parametrize("consistent_copy", [False, True])
def test_a_log_that_ends_before_its_start_offset_proves_nothing(staged: StagedFiles, consistent_copy: bool) -> None:
    """The checkpoint was copied later: all that the log has was deleted, and it was `hanging` with 0 records held."""
    staged.later.append(lambda root: write_checkpoint(root, "log-start-offset-checkpoint", {ORDERS: 10}))
    row = staged.judge(consistent_copy=consistent_copy)
    assert (row["verdict"], row["action"], row["records_held"], row["last_stable_offset"]) == ("unknown",) + (None,) * 3
    partition, *_ = LogDir(staged.root).partition_rows(topics=["orders"])
    assert partition["error"] == (
        "OFFSETS_LOST: The files end at offset 3, before the log start 10 of log-start-offset-checkpoint: the last "
        "segment is missing or incomplete"
    )


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_a_coordinators_log_without_its_first_segment_is_not_whole(staged: StagedFiles, topic: str) -> None:
    """It was "read completely": the cleaner removes records, but never the first base offset."""
    assert staged.judge()["verdict"] == "hanging"
    folder = staged.root / f"{topic}-{K}"
    folder.mkdir(exist_ok=True)
    (folder / SEGMENT).unlink(missing_ok=True)
    record = state_record(501, OTHER, 9, "Empty", after()) if topic == STATE_TOPIC else marker(501, 9, after())
    write_snapshot(write_log(staged.root, folder.name, [record], base_offset=500), 500, {})
    files, lost = LogDir(staged.root), "OFFSETS_LOST: The files begin at offset 500, and the log at 0"
    if topic == STATE_TOPIC:
        assert any(each.startswith(f"a complete {topic}-{K}: {lost}") for each in files.observe().coverage.gaps)
        assert not files.observe().coverage.proofs
        assert any(str(each["error"]).startswith(lost) for each in files.transaction_history_rows())
    else:
        with pytest.raises(DecodeError, match=lost):
            files.committing_groups([TopicPartition(*ORDERS)])


def test_a_partition_that_was_moved_during_the_copy_is_not_absent(staged: StagedFiles) -> None:
    """Of two log directories the new one was copied first: "no transaction is open", with exit code 0."""
    staged.judge()
    moved = staged.root / "orders-0.0123456789abcdef0123456789abcdef-future"
    shutil.copytree(staged.root / "orders-0", moved)
    assert all(row["topic"] is not None for row in LogDir(staged.root).finding_rows()), "the copy is another one"
    shutil.rmtree(staged.root / "orders-0")
    (row,) = LogDir(staged.root).finding_rows()
    assert (row["verdict"], row["topic"]) == ("unknown", None)
    assert [each.partition(": ")[0] for each in row["missing"]] == [str(moved)]


def test_statistics_add_partitions_of_one_name_in_two_clusters(tmp_path: Path) -> None:
    """The total had one of them, as of two replicas."""
    for cluster in ("A-Cluster", "B-Cluster"):
        for broker in (1, 2):
            root = write_root(tmp_path / f"{cluster}-{broker}", broker_id=broker, cluster_id=cluster)
            write_log(root, "orders-0", [data(0, 7, after()), marker(1, 7, after())])
    found = LogDir(tmp_path).statistics()
    assert found.loc[found["topic"].notna(), "committed"].tolist() == [1, 1, 1, 1]
    assert found.loc[found["topic"].isna(), "committed"].tolist() == [2]


def test_a_follower_that_lags_clears_nothing_that_a_damaged_replica_may_hold(staged: StagedFiles) -> None:
    """The leader's replica has a damaged batch, so the follower's was read, which ends before the open transaction."""
    ended = [data(0, 8, after()), marker(1, 8, after())]
    follower = staged.replica(*ended)
    staged.orders = [*ended, b"x" * len(ended[0]), data(3, 7, after(minutes=2))]
    staged.write()
    (row,) = LogDir(staged.root, follower).finding_rows(topics=["orders"])
    assert row["verdict"] == "unknown"
    error = "reaches further, to offset 4, and could not be read completely (CORRUPT_BATCH)"
    assert error in str(row["error"])
    # The record at 3 was "not written, or truncated", and nothing had held the LSO.
    files = LogDir(staged.root, follower)
    (row,) = files.offset_visibility_rows("orders", 0, 3)
    assert error in str(row["error"])
    assert any(error in str(each["error"]) for each in files.missing_offset_rows("orders", 0, start=0, stop=4))
    assert any(error in str(each["error"]) for each in files.lso_hold_rows(topics=["orders"]))


def test_a_follower_that_lags_ends_no_history_that_a_damaged_replica_may_have(staged: StagedFiles) -> None:
    """Its newest record, Ongoing, was that of the id: the damaged replica has the commit."""
    begun = [state_record(0, OWNER, 7, "Empty", after()), state_record(1, OWNER, 7, "Ongoing", after(), on=[ORDERS])]
    decided = state_record(2, OWNER, 7, "PrepareCommit", after(), on=[ORDERS])
    follower = write_root(staged.root.parent / "follower", broker_id=2)
    for root, more in (
        (follower, []),
        (staged.root, [b"x" * len(decided), state_record(3, OWNER, 7, "Empty", after())]),
    ):
        write_state_topic(root, {K: [*begun, *more]})
        write_checkpoint(root, HIGH_WATERMARK, {STATES: 2 + len(more)})
    files = LogDir(staged.root, follower)
    for rows in (
        files.transaction_history_rows(transactional_ids=[OWNER])[-1:],
        files.transaction_history_rows()[-1:],
        [each for each in files.transaction_rows(transactional_ids=[OWNER]) if each["error"]],
        [each for each in files.exposure_rows() if each["subject"] == "transactional_id" and each["error"]],
    ):
        (row,) = rows
        assert "reaches further, to offset 4" in str(row["error"])


def test_a_follower_clears_nothing_beside_a_replica_that_cannot_be_opened(staged: StagedFiles) -> None:
    """Only one that was read in part had a follower in doubt: of the leader's, nothing was known to reach further."""
    follower = staged.replica(data(0, 8, after()), marker(1, 8, after()))
    (write_log(staged.root, "orders-0", staged.orders) / SEGMENT).unlink()
    (row,) = LogDir(staged.root, follower).finding_rows(topics=["orders"])
    assert row["verdict"] == "unknown"
    assert "may reach further, and could not be read completely (EMPTY)" in str(row["error"])


def test_a_batch_with_a_wrong_checksum_is_no_evidence_of_files(staged: StagedFiles) -> None:
    """A marker before the open records shows what was closed: one bit of it showed another time, or epoch."""
    spoiled = bytearray(marker(0, 7, after(minutes=-1)))
    spoiled[37] ^= 1 << 2  # of max_timestamp
    folder = write_log(staged.root, "orders-0", [bytes(spoiled), data(1, 7, after())])
    write_snapshot(folder, 1, {})
    write_checkpoint(staged.root, HIGH_WATERMARK, {ORDERS: 2})
    contents = found_in([staged.root])
    observed = observe_files(contents, contents.named_logs(["orders"]))
    tp = TopicPartition(*ORDERS)
    start = ExcerptStart(tp=tp, leader=observed.observation.partitions[0], offset=1, producer_ids=frozenset({7}))
    for keeps in (True, False):
        if not keeps:
            observed.replicas[tp][0].window.neighbourhood = MarkerNeighbourhood()
        excerpt = observed.excerpts([start])[tp]
        assert (excerpt.headers["base_offset"].tolist(), excerpt.error) == (
            [1], "CORRUPT_BATCH: the checksum at offset 0 is wrong."
        )  # fmt: skip


def test_a_log_that_ends_early_has_not_all_histories(staged: StagedFiles) -> None:
    """Of an id whose records are in the segment that was not copied, nothing was said."""
    write_state_topic(staged.root, {K: staged.states[:1]})
    write_checkpoint(staged.root, HIGH_WATERMARK, {STATES: 2})
    (row,) = LogDir(staged.root, consistent_copy=True).transaction_history_rows(transactional_ids=[OTHER])
    assert str(row["error"]).startswith("OFFSETS_LOST: The files end at offset 1, before the high watermark 2")


def test_of_several_replicas_the_longest_is_diagnosed(staged: StagedFiles) -> None:
    staged.write()
    files = LogDir(staged.root, staged.replica(*staged.orders, marker(3, 7, after(minutes=11))))
    assert [row["broker_id"] for row in files.partition_rows(topics=["orders"])] == [1, 2]
    (row,) = files.finding_rows(topics=["orders"])
    assert (row["verdict"], row["broker_id"]) == ("clear", 2)
    assert any("2 replicas: the one of broker 2" in entry["value"] for entry in row["evidence"])
