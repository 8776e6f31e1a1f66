"""Histories of transactional ids, from records as real brokers write them (see test_transaction_history_live.py)."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.stored import compare
from toolkit.analysis.transaction_history import names_any, newest, transaction_history
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTIONS
from toolkit.schema.log import ClusterEvent, PastTransaction, TransactionLogRecord
from toolkit.schema.table import TopicPartition

T0 = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
ORDERS = (TopicPartition("orders", 0),)
STATES_WITH_PARTITIONS = {"Ongoing", "PrepareCommit", "PrepareAbort"}  # states that list partitions


def at(milliseconds: int) -> dt.datetime:
    return T0 + dt.timedelta(milliseconds=milliseconds)


def record(offset: int, ms: int, state: str | None, epoch: int | None = 0, **more: Any) -> TransactionLogRecord:
    """A record written `ms` after T0; `start` and `updated` are also relative to T0."""
    updated, start = more.pop("updated", ms), more.pop("start", None)
    known = state is not None
    columns = {
        "txn_state_partition": 3, "offset": offset, "timestamp": at(ms), "transactional_id": "payments",
        "producer_id": 7 if known else None, "producer_epoch": epoch, "state": state,
        "timeout_ms": 2000 if known else None,
        "topic_partitions": (ORDERS if state in STATES_WITH_PARTITIONS else ()) if known else None,
        "start_time": None if start is None else at(start), "last_update_time": at(updated) if known else None,
        "tombstone": state is None, "value_version": 0 if known else None, "broker_id": 1, **more,
    }  # fmt: skip
    return TransactionLogRecord(**columns)


def transaction(
    end: str, *, begin: int = 0, decide: int, epochs: tuple[int, int] = (0, 0), offset: int = 0, **more: Any
) -> list[TransactionLogRecord]:
    """Ongoing, Prepare*, and 5 ms later Complete*, whose update time is 1 ms after the decision, as on brokers."""
    return [
        record(offset, begin, "Ongoing", epochs[0], start=begin, **more),
        record(offset + 1, decide, f"Prepare{end}", epochs[1], start=begin, **more),
        record(offset + 2, decide + 5, f"Complete{end}", epochs[1], start=begin, updated=decide + 1, **more),
    ]


def version_2(events: list[TransactionLogRecord]) -> list[TransactionLogRecord]:
    return [replace(event, client_transaction_version=2, value_version=1) for event in events]


def only(events: list[TransactionLogRecord], **options: Any) -> PastTransaction:
    """The only transaction; the rows must fit their table."""
    rows = transaction_history(events, **options)
    assert len(TRANSACTION_HISTORY.arrow(row.row() for row in rows)) == len(rows)
    [row] = [row for row in rows if row.kind == "transaction"]
    return row


def unread(offset: int, error: str = "MALFORMED_LINE: no.", **more: Any) -> TransactionLogRecord:
    """A record of the id whose value could not be read."""
    return replace(record(offset, 0, None, None), tombstone=False, error=error, **more)


def as_dump(events: list[TransactionLogRecord]) -> list[TransactionLogRecord]:
    """As text of kafka-dump-log.sh before Kafka 4.1: no start time, no client version."""
    return [replace(event, start_time=None, value_version=None) for event in events]


def untimed(events: list[TransactionLogRecord]) -> list[TransactionLogRecord]:
    return [replace(event, timestamp=None) for event in events]


EMPTY_AFTER = {"soon": 120, "later": 60_000}


def with_next_init(events: list[TransactionLogRecord], after: str | None) -> list[TransactionLogRecord]:
    """The records, followed by InitProducerId if `after` is set."""
    if after is None:
        return events
    last = events[-1]
    assert last.timestamp is not None
    assert last.producer_epoch is not None
    ms = (last.timestamp - T0) // dt.timedelta(milliseconds=1) + EMPTY_AFTER[after]
    return [*events, record(90, ms, "Empty", last.producer_epoch + 1)]


ONGOING, PREPARED, COMPLETE = COMMITTED = transaction("Commit", decide=100)
NEXT = transaction("Commit", begin=300, decide=400, offset=10)
RAISED = transaction("Abort", decide=2500, epochs=(4, 5))  # past its timeout, with a new epoch
AT_ONCE = version_2(transaction("Abort", begin=5, decide=5, epochs=(3, 3))[1:])
WITHOUT_DATA = [replace(AT_ONCE[0], topic_partitions=()), AT_ONCE[1]]
UNUSED_OF_EPOCH_5 = [replace(each, producer_epoch=5, client_transaction_version=None) for each in WITHOUT_DATA]
BEGUN_WITH_IT = [  # PrepareAbort and CompleteAbort: aborted in the millisecond of its start
    replace(each, last_update_time=at(5)) for each in transaction("Abort", begin=5, decide=5, epochs=(3, 4))[1:]
]
INIT = record(0, 0, "Empty", 4)
DUMP_OF_ABORT = transaction("Abort", begin=10, decide=110, epochs=(4, 5), offset=1)
ROTATED = version_2(transaction("Abort", decide=2500, epochs=(32766, 0)))
MANY = (*(TopicPartition(topic, number) for topic in ("a", "b", "c") for number in range(3)), *ORDERS)
DAMAGED = replace(record(5, 0, None, None), tombstone=False, error="CORRUPT_RECORD: no.")
WITHOUT_ID = replace(DAMAGED, transactional_id=None)
TWO_PHASE = 2**31 - 1

LATER_ABORT = transaction("Abort", begin=200, decide=300, epochs=(4, 5), offset=10)
DUMPED_ABORTS = [
    *transaction("Abort", begin=10, decide=110, epochs=(4, 4), offset=1),
    *transaction("Abort", begin=200, decide=210, epochs=(4, 4), offset=4),
]
EXHAUSTED = version_2(transaction("Commit", decide=10, epochs=(32766, 32767)))
CASES: dict[str, tuple[list[TransactionLogRecord], int | None]] = {  # records, and when they were read
    "a commit and its times": (transaction("Commit", begin=10, decide=1010, offset=40), None),
    **{
        f"a duration has two digits: {text}": (transaction("Commit", decide=ms), None)
        for ms, text in
        ((0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (1240, "1.2 s"), (9940, "9.9 s"), (10_400, "10 s"))
    },
    "two-phase commit passes no timeout": (
        transaction("Abort", decide=5000, epochs=(4, 5), timeout_ms=TWO_PHASE), None),
    "every added partition is kept": (
        [ONGOING, replace(ONGOING, last_update_time=at(5), topic_partitions=MANY), PREPARED, COMPLETE], None),
    "a timeout and a fence at once are indistinguishable": (with_next_init(RAISED, "soon"), None),
    # The coordinator writes its own transaction version into a PrepareAbort of its own.
    "the Ongoing record has the version of an older client": (
        [replace(RAISED[0], client_transaction_version=0),
         *version_2(transaction("Abort", decide=100, epochs=(4, 5))[1:])], None),
    "Kafka 4.0.0 raises the epoch twice in its own aborts": (
        version_2(transaction("Abort", decide=100, epochs=(4, 6))), None),
    # Transaction version 2, from CompleteAbort: observed on 4.3.1.
    "an end without a transaction is the client's": (WITHOUT_DATA, None),
    "what was aborted at once is no end without a transaction": (version_2(BEGUN_WITH_IT), None),
    "nor if only its last record is left": (version_2(BEGUN_WITH_IT[1:]), None),
    # Its PrepareAbort is missing, and CompleteAbort already has the next producer id.
    "epochs of two producer ids are not compared": (
        [ROTATED[0], replace(ROTATED[2], producer_id=9, previous_producer_id=7)], None),
    "a timeout, long ago": (RAISED, None),
    "3 s after the markers a fence is excluded": (RAISED, 8000),
    "not 3 s after the decision": (RAISED, 5504),
    "right after the end it is not": (RAISED, 3000),
    "an init that follows at once, without CompleteAbort": ([*RAISED[:2], record(90, 2620, "Empty", 6)], None),
    "an init of unknown time": ([*RAISED, replace(record(90, 2620, "Empty", 6), timestamp=None)], None),
    # Open transactions, and those that are being ended
    "open until the read time": ([ONGOING], 1500),
    "open at its timeout": ([ONGOING], 2000),
    "open past its timeout": ([ONGOING], 10_000),
    "open in two-phase commit": ([replace(ONGOING, timeout_ms=TWO_PHASE)], 10_000),
    "without a read time, open to the newest record": (
        [ONGOING, record(9, 700, "Empty", transactional_id="other")], None),
    "whichever is first": ([record(9, 700, "Empty", transactional_id="other"), ONGOING], None),
    "a prepare state is ending": ([ONGOING, PREPARED], 200),
    "and later stuck": ([ONGOING, PREPARED], 61_200),
    "ending for a minute": ([ONGOING, PREPARED], 60_100),
    "ending for more": ([ONGOING, PREPARED], 60_101),
    "a record without a time has no age": (untimed([ONGOING]), None),
    "a prepare record without a time, neither": (untimed([ONGOING, PREPARED]), None),
    "an end by the time in the record itself": (untimed(COMMITTED), None),
    # What compaction left
    "a prepare record without its start": ([PREPARED, COMPLETE], None),
    **{
        f"a single Complete{end}": (transaction(end, begin=10, decide=500)[2:], None)
        for end in ("Commit", "Abort")
    },
    "a single abort past its timeout": (transaction("Abort", decide=2500, epochs=(0, 1))[2:], None),
    "a single record of version 2 has the raised epoch": (
        version_2(transaction("Commit", decide=50, epochs=(4, 5)))[2:], None),
    "a single complete record keeps the previous producer id": (
        [replace(version_2(transaction("Commit", decide=10))[2], producer_id=9, previous_producer_id=7)], None),
    "a record retried after a failed append": (
        [ONGOING, PREPARED, replace(PREPARED, offset=7, last_update_time=at(130)), COMPLETE], None),
    # Text of kafka-dump-log.sh, without start times
    "a dump, with the init before": (as_dump([INIT, *DUMP_OF_ABORT]), None),
    "a dump that begins mid-transaction": ([replace(event, value_version=0) for event in as_dump(DUMP_OF_ABORT)], None),
    "a dump of what is open": (as_dump(DUMP_OF_ABORT[:1]), None),
    "a dump has no proof of a start after an unread record": (as_dump([unread(0), *DUMP_OF_ABORT]), None),
    "an end without a transaction in a dump": (as_dump([INIT, *UNUSED_OF_EPOCH_5]), None),
    "not without the record before it": (as_dump(UNUSED_OF_EPOCH_5), None),
    # Records that could not be read: before, after, of the id or without one
    "unread, and read before": ([*RAISED[:2], WITHOUT_ID], 9000),
    "unread after Ongoing": ([RAISED[0], DAMAGED], None),
    "unread after Ongoing, without id": ([RAISED[0], WITHOUT_ID], None),
    "unread after CompleteAbort: it may be of a fencing instance": ([*RAISED, DAMAGED], None),
    "unread after CompleteAbort, without id": ([*RAISED, WITHOUT_ID], None),
    "the last error": ([ONGOING, WITHOUT_ID, replace(WITHOUT_ID, error="CORRUPT_BATCH: last.")], None),
    "unread before its end": ([DAMAGED, RAISED[2]], None),
    "unread before its start": ([WITHOUT_ID, *RAISED], None),
    "unread on another partition": ([ONGOING, replace(WITHOUT_ID, txn_state_partition=4)], None),
    # A commit and a fence are proven, whatever the next record is; a whole transaction, whatever the last one was.
    **{
        f"what proves a {ended} needs no unread record": (
            [unread(0), *transaction(end, decide=100, epochs=epochs, offset=1, value_version=0), unread(4)], None)
        for end, epochs, ended in (("Commit", (4, 4), "commit"), ("Abort", (4, 5), "fence"))
    },
    # Several rows
    # AddPartitionsToTxn as before version 2, and EndTxn of version 2: observed on 4.3.1.
    "a client that raised its epoch is of version 2": (
        [*transaction("Commit", decide=100, epochs=(4, 5)),
         *transaction("Abort", begin=200, decide=300, epochs=(5, 6), offset=10)], None),
    "an end without a transaction shows that the next client is of version 2": (
        [*WITHOUT_DATA, *transaction("Abort", begin=200, decide=300, epochs=(3, 4), offset=10)], None),
    "a commit whose start is gone shows no version": (
        [transaction("Commit", decide=100, epochs=(4, 4))[2], *LATER_ABORT], None),
    "a transaction that follows is no fence": (
        [*RAISED, *transaction("Commit", begin=2600, decide=2700, epochs=(5, 5), offset=10)], None),
    "a missing end": ([ONGOING, *NEXT], None),
    "a missing end of what was decided": ([ONGOING, PREPARED, *NEXT], None),
    "an unread record": ([DAMAGED], None),
    "an unread record without id": ([WITHOUT_ID], None),
    "history continues after an unread record": (
        [record(0, 0, "Empty"), unread(1), *transaction("Commit", begin=10, decide=20, offset=10),
         *transaction("Commit", begin=30, decide=40, offset=30), unread(90)], None),
    "a producer id is remembered across an unread record": (
        [record(0, 0, "Empty"), unread(1), record(2, 500, None, None), record(3, 600, "Empty", producer_id=9)], None),
    # Later records keep the previous id.
    "the first record shows a change of producer id if it is of init": (
        [record(5, 50, "Empty", 0, start=50, producer_id=9, previous_producer_id=7)], None),
    "and only then": ([record(5, 50, "Ongoing", 0, start=50, producer_id=9, previous_producer_id=7)], None),
    "compaction may leave only the expiry": ([record(9, 500, None, None)], None),
    "a dump after a commit that has proven the version": (
        as_dump([INIT, *transaction("Commit", begin=5, decide=8, epochs=(4, 4), offset=1), *DUMP_OF_ABORT]), None),
    "a dump keeps successive transactions apart": (as_dump(DUMPED_ABORTS), None),
    "and ends without transactions": (
        as_dump([replace(each, topic_partitions=()) for each in DUMPED_ABORTS if each.state != "Ongoing"]), None),
    "a dump that lacks a segment joins no abort to a commit": (
        as_dump([record(1, 10, "PrepareCommit", 4), record(900, 9000, "CompleteAbort", 4)]), None),
    "ids and replicas are kept apart": (
        [*COMMITTED, *(replace(event, broker_id=2) for event in COMMITTED[:2]),
         *(replace(event, transactional_id="a") for event in COMMITTED)], None),
    **{
        f"version 2 writes every abort alike: after {ms} ms, and the next init {after}": (
            with_next_init(version_2(transaction("Abort", decide=ms, epochs=(4, 5))), after), None)
        for ms, after in ((100, None), (100, "later"), (100, "soon"), (2500, None), (2500, "soon"))
    },
    "a dump, maybe of a client of version 2": (as_dump([INIT, *with_next_init(DUMP_OF_ABORT, "soon")]), None),
    # As written by 4.3.1: epochs exhausted by version 2, then by InitProducerId, then expiry.
    "successive producer ids of an id": ([
        record(0, 0, "Empty", 32766), EXHAUSTED[0], replace(EXHAUSTED[1], next_producer_id=9),
        replace(EXHAUSTED[2], producer_id=9, producer_epoch=0, previous_producer_id=7),
        *version_2(transaction("Commit", begin=20, decide=30, epochs=(0, 1), offset=10, producer_id=9)),
        record(20, 40, "Empty", 32766, producer_id=9),
        record(21, 50, "Empty", 0, producer_id=11, previous_producer_id=9), record(22, 60, None, None),
        record(23, 70, "Empty", 0, producer_id=13, previous_producer_id=13)], None),
    # A timeout's abort at epoch 32767 is no such loss: before 4.3 it rotates nothing.
    "a rotation that a new coordinator lost": (EXHAUSTED, None),
    "an abort at the last epoch": (version_2(transaction("Abort", decide=10, epochs=(32766, 32767))), None),
    "a commit before the last epoch": (version_2(transaction("Commit", decide=10, epochs=(32765, 32766))), None),
    **{
        f"why InitProducerId wrote a record: {why}": ([record(0, 0, "Empty", before), init], None)
        for why, before, init in (
            ("the same epoch", 3, record(1, 50, "Empty", 3)), ("a higher one", 3, record(1, 50, "Empty", 5)),
            ("another producer id", 3, record(1, 50, "Empty", producer_id=9)),
            ("the same at its end", 32766, record(1, 50, "Empty", 32766)))
    },
}  # fmt: skip


def test_the_rows_of_a_history() -> None:
    """Each column that is known."""
    lines = []
    for name, (records, as_of) in CASES.items():
        rows = [row.row() for row in transaction_history(records, as_of=None if as_of is None else at(as_of))]
        assert len(TRANSACTION_HISTORY.arrow(rows)) == len(rows)
        lines.append(f"# {name}")
        for row in rows:
            known = {column: value for column, value in row.items() if value is not None and column != "reason"}
            lines += [", ".join(f"{column}={value}" for column, value in known.items()), f"    {row['reason']}"]
    compare("transaction_history.txt", lines)


@pytest.mark.parametrize("name", ["producer_id", "previous_producer_id", "next_producer_id"])
def test_a_record_names_its_previous_and_next_producer_id_too(name: str) -> None:
    event = record(0, 0, "Ongoing", **{"producer_id": 1, name: 9})
    assert names_any(event, {9})
    assert not names_any(event, {8})


# Order, damage, and the newest state


def test_records_of_one_batch_are_in_the_order_of_their_offsets() -> None:
    """They have one location in the file; unread records are listed last."""
    batch: dict[str, Any] = {"file": "0.log", "position": 100}
    ongoing = record(7, 0, "Ongoing", start=0, **batch)
    before, after = (unread(offset, transactional_id=None, **batch) for offset in (6, 8))
    assert [only([ongoing, each]).error for each in (before, after)] == [None, "MALFORMED_LINE: no."]


def test_damage_before_the_last_record_is_no_loss() -> None:
    events = [
        replace(event, file="0.log", position=100 * (event.offset or 0))
        for event in transaction("Commit", decide=100, offset=1)
    ]
    damage = TransactionLogRecord(txn_state_partition=3, broker_id=1, file="0.log")
    before, after = (
        replace(damage, position=position, error=f"CORRUPT_BATCH: at {position}.") for position in (50, 150)
    )
    ongoing, without_position = events[0], replace(before, position=None)
    for records, error in (
        ([ongoing, before], None), ([ongoing, after, before], after.error), ([after, ongoing], after.error),
        ([*events, before, after], None), ([ongoing, without_position], before.error),
        ([without_position, ongoing], None),
    ):  # fmt: skip
        assert only(records).error == error


def test_partitions_share_the_newest_time() -> None:
    later = record(0, 90_000, "Empty", transactional_id="other", txn_state_partition=4)
    assert only([ONGOING]).ongoing_ms == 0
    assert [each.ongoing_ms for each in transaction_history([ONGOING, later])] == [None, 90_000]


def test_the_newest_record_of_each_id_gives_its_state() -> None:
    ongoing = record(20, 300, "Ongoing", 1, start=300, transactional_id="open")
    expired = record(22, 500, None, None, transactional_id="gone")
    rows = newest([COMPLETE, ongoing, expired], observed_at=at(1000))
    assert len(TRANSACTIONS.arrow(row.row() for row in rows)) == 2
    still_open, payments = rows
    assert (still_open.transactional_id, still_open.state, still_open.topic_partitions) == ("open", "Ongoing", ORDERS)
    assert [row.start_time for row in rows] == [at(300), None]
    assert (payments.state, payments.last_update_time) == ("CompleteCommit", at(101))
    assert {(row.source, row.txn_state_partition, row.broker_id, row.observed_at, row.error) for row in rows} == {
        ("__transaction_state", 3, 1, at(1000), None)
    }
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"):
        [row] = newest([record(0, 10, state, 1, start=5)], observed_at=at(1000))
        assert row.start_time == at(5)


# Brokers' own logs


def logged(event: str, ms: int, **more: Any) -> ClusterEvent:
    """A line of the coordinator's broker, `ms` after T0."""
    columns = {"transactional_id": "payments", "broker_id": 1, "file": "server.log", **more}
    return ClusterEvent(event=event, timestamp=at(ms), **columns)


STARTED = logged("broker_started", -1000, transactional_id=None)
TIMED_OUT = logged("transaction_timed_out", 2502)
ABORTED = with_next_init(
    [replace(each, leader_epoch=7) for each in version_2(transaction("Abort", decide=2500, epochs=(4, 5)))], "soon"
)
ABORTED[-1] = replace(ABORTED[-1], leader_epoch=7)
FOLLOWED = logged("producer_initialized", 2626, producer_id=7, producer_epoch=6)


def test_a_timeout_that_the_coordinator_logged_is_no_other_abort() -> None:
    row = only(ABORTED, broker_log_events=[STARTED, TIMED_OUT, FOLLOWED])
    assert (row.ended, row.reason) == (
        "timeout",
        "The coordinator aborted it 2.5 s after its start, past its timeout of 2 s: broker 1 logged the timeout.",
    )
    unnamed = [STARTED, replace(TIMED_OUT, broker_id=None)]
    assert "its broker logged" in only(ABORTED, broker_log_events=unnamed).reason
    before_version_2 = transaction("Abort", decide=2500, epochs=(4, 5))
    assert only(with_next_init(before_version_2, "soon"), broker_log_events=[TIMED_OUT]).ended == "timeout"


def test_a_log_of_that_time_without_a_timeout_excludes_it() -> None:
    row = only(ABORTED, broker_log_events=[STARTED, FOLLOWED])
    assert row.ended == "abort"
    assert ": by its client or by the fence of a new instance, which followed 120 ms later. " in row.reason
    assert "with every end, and its broker logged no timeout. No broker logs a fence: " in row.reason
    old = [replace(each, client_transaction_version=0) for each in ABORTED]
    assert only(old).ended == "abort"
    assert only(old, broker_log_events=[STARTED, FOLLOWED]).ended == "fence"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [FOLLOWED],  # whether the file reaches back is not known
        [replace(STARTED, file="server.log.1"), FOLLOWED],
        [replace(STARTED, timestamp=at(2450)), FOLLOWED],
        [STARTED],  # whether that level is logged is not known
        [STARTED, replace(FOLLOWED, producer_epoch=8)],
        [STARTED, replace(FOLLOWED, timestamp=at(2626 - 3_600_000))],  # in another zone
        [STARTED, replace(FOLLOWED, timestamp=None)],
        [STARTED, FOLLOWED, ClusterEvent(file="server.log", error="UNREADABLE: cut off.")],
        [STARTED, replace(TIMED_OUT, transactional_id="other"), replace(FOLLOWED, transactional_id="other")],
        [replace(TIMED_OUT, timestamp=at(2300))],  # of an earlier transaction
        [replace(TIMED_OUT, timestamp=at(2700))],  # of a later one
    ],
)
def test_lines_that_prove_nothing_change_nothing(lines: list[ClusterEvent]) -> None:
    assert only(ABORTED, broker_log_events=lines) == only(ABORTED)


def test_of_two_coordinators_one_log_excludes_no_timeout() -> None:
    moved = [*ABORTED[:-1], replace(ABORTED[-1], leader_epoch=8)]
    assert only(moved, broker_log_events=[STARTED, FOLLOWED]) == only(moved)
    unknown = [replace(each, leader_epoch=None) for each in ABORTED]
    assert only(unknown, broker_log_events=[STARTED, FOLLOWED]) == only(unknown)


def test_records_without_a_time_exclude_no_timeout() -> None:
    no_init_time = [*ABORTED[:-1], replace(ABORTED[-1], timestamp=None)]
    no_times = [replace(each, timestamp=None, last_update_time=None) for each in ABORTED]
    for events in (no_init_time, no_times):
        assert only(events, broker_log_events=[STARTED, FOLLOWED]) == only(events)
