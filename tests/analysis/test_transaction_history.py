"""Histories of transactional ids, from records as real brokers write them (see test_transaction_history_live.py)."""

import datetime as dt
from typing import Any

import pytest

from toolkit.analysis.coordinator.coordinator_log import names_any, producer_ids
from toolkit.analysis.coordinator.transaction_history import HistoryState, advance, current, newest, transaction_history
from toolkit.analysis.coordinator.transaction_states import replica_of
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTIONS
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.metadata import ClusterEvent
from toolkit.schema.record import replace
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


def test_a_commit_and_its_times() -> None:
    row = only(transaction("Commit", begin=10, decide=1010, offset=40))
    assert row.ended == "commit"
    assert row.reason == "Its client committed it 1 s after its start."
    assert (row.start_time, row.decided_at, row.end_time) == (at(10), at(1010), at(1015))
    assert (row.ongoing_ms, row.prepare_ms) == (1000, 5)
    assert (row.records, row.first_offset, row.last_offset, row.truncated) == (3, 40, 42, False)
    assert (row.producer_id, row.producer_epoch, row.state) == (7, 0, "CompleteCommit")
    assert row.topic_partitions == ORDERS


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (1240, "1.2 s"), (9940, "9.9 s"), (10_400, "10 s")]
)
def test_durations_have_two_digits(ms: int, text: str) -> None:
    assert only(transaction("Commit", decide=ms)).reason == f"Its client committed it {text} after its start."


def test_two_phase_commit_passes_no_timeout() -> None:
    row = only(transaction("Abort", decide=5000, epochs=(4, 5), timeout_ms=2**31 - 1))
    assert row.ended == "fence"


def test_every_added_partition_is_kept() -> None:
    more = (*(TopicPartition(topic, number) for topic in ("a", "b", "c") for number in range(3)), *ORDERS)
    events = transaction("Commit", decide=1000)
    events.insert(1, replace(events[0], last_update_time=at(5), topic_partitions=more))
    row = only(events)
    assert row.topic_partitions == more
    assert (row.records, row.truncated) == (4, False)


EMPTY_AFTER = {"soon": 120, "later": 60_000}
BEFORE_VERSION_2 = {  # (end, epoch after the end, when it was decided, InitProducerId afterwards): ended
    (0, 100, None): "abort",
    (0, 100, "soon"): "abort",
    (0, 5000, None): "abort",
    (1, 100, "soon"): "fence",
    (1, 100, None): "fence",  # Admin.fenceProducers of Kafka 3.5
    (1, 2001, None): "timeout",
    (1, 2001, "later"): "timeout",
    (1, 2000, None): "fence",  # the coordinator aborts only after the timeout
    (1, 2500, "soon"): "abort",  # by the coordinator, for its timeout or for the fence
}


def with_next_init(events: list[TransactionLogRecord], after: str | None) -> list[TransactionLogRecord]:
    """The records, followed by InitProducerId if `after` is set."""
    if after is None:
        return events
    last = events[-1]
    assert last.timestamp is not None
    assert last.producer_epoch is not None
    ms = (last.timestamp - T0) // dt.timedelta(milliseconds=1) + EMPTY_AFTER[after]
    return [*events, record(90, ms, "Empty", last.producer_epoch + 1)]


@pytest.mark.parametrize(("raised", "decide", "after"), BEFORE_VERSION_2)
def test_the_initiator_of_an_abort_before_transaction_version_2(raised: int, decide: int, after: str | None) -> None:
    row = only(with_next_init(transaction("Abort", decide=decide, epochs=(4, 4 + raised)), after))
    assert row.ended == BEFORE_VERSION_2[raised, decide, after]
    assert row.producer_epoch == 4
    if raised == 0:
        assert row.reason.startswith("Its client aborted it ")
        assert row.reason.endswith("the epoch stayed 4.")
    else:
        assert "the epoch was raised from 4 to 5" in row.reason


def test_a_timeout_and_a_fence_at_once_are_indistinguishable() -> None:
    row = only(with_next_init(transaction("Abort", decide=2500, epochs=(4, 5)), "soon"))
    assert row.reason.startswith(
        "Aborted 2.5 s after its start, past its timeout of 2 s: by the coordinator for its timeout or by the "
        "fence of a new instance, which followed 120 ms later. The records do not decide: the epoch was raised from 4 "
        "to 5."
    )


VERSION_2 = {  # the possible endings that the reason names
    (100, None): ["by its client"],
    (100, "later"): ["by its client"],
    (100, "soon"): ["by its client", "by the fence of a new instance"],
    (2500, None): ["by its client", "by the coordinator for its timeout"],
    (2500, "soon"): ["by its client", "by the coordinator for its timeout", "by the fence of a new instance"],
}


@pytest.mark.parametrize(("decide", "after"), VERSION_2)
def test_transaction_version_2_writes_every_abort_alike(decide: int, after: str | None) -> None:
    row = only(with_next_init(version_2(transaction("Abort", decide=decide, epochs=(4, 5))), after))
    assert row.ended == "abort"
    choices = ["by its client", "by the coordinator for its timeout", "by the fence of a new instance"]
    assert [choice for choice in choices if choice in row.reason] == VERSION_2[decide, after]
    assert ('the broker logged "Completed rollback' in row.reason) == (decide > 2000)
    assert (row.producer_epoch, row.client_transaction_version) == (4, 2)


def test_the_ongoing_record_has_the_version_of_an_older_client() -> None:
    """The coordinator writes its own transaction version into a PrepareAbort of its own."""
    ongoing, *rest = transaction("Abort", decide=100, epochs=(4, 5))
    row = only([replace(ongoing, client_transaction_version=0), *version_2(rest)])
    assert (row.ended, row.client_transaction_version) == ("fence", 0)


def test_a_client_that_raised_its_epoch_is_of_version_2() -> None:
    """AddPartitionsToTxn as before version 2, and EndTxn of version 2: observed on 4.3.1."""
    first = transaction("Commit", decide=100, epochs=(4, 5))
    second = transaction("Abort", begin=200, decide=300, epochs=(5, 6), offset=10)
    rows = transaction_history([*first, *second])
    assert [row.ended for row in rows] == ["commit", "abort"]
    assert rows[1].reason.startswith("Aborted by its client ")


def test_kafka_4_0_0_raises_the_epoch_twice_in_its_own_aborts() -> None:
    assert only(version_2(transaction("Abort", decide=100, epochs=(4, 6)))).ended == "fence"


def test_an_end_without_a_transaction_is_the_clients() -> None:
    """Transaction version 2, from CompleteAbort: observed on 4.3.1."""
    events = version_2(transaction("Abort", begin=5, decide=5, epochs=(3, 3))[1:])
    row = only([replace(events[0], topic_partitions=()), events[1]])
    assert (row.ended, row.truncated, row.producer_epoch) == ("abort", False, 2)
    assert row.reason.endswith(": it had no partition, and a coordinator ends only Ongoing transactions.")
    assert row.client_transaction_version == 2


def test_an_end_without_a_transaction_shows_version_2_of_the_next_transactions_client() -> None:
    unused, complete = version_2(transaction("Abort", begin=5, decide=5, epochs=(3, 3))[1:])
    following = transaction("Abort", begin=200, decide=300, epochs=(3, 4), offset=10)
    rows = transaction_history([replace(unused, topic_partitions=()), complete, *following])
    assert rows[1].reason.startswith("Aborted by its client ")


def test_a_transaction_aborted_in_the_millisecond_of_its_start_is_no_end_without_a_transaction() -> None:
    """Compaction has removed the Ongoing record; then PrepareAbort, too."""
    _, prepared, complete = transaction("Abort", begin=5, decide=5, epochs=(3, 4))
    records: list[TransactionLogRecord] = [prepared, replace(complete, last_update_time=at(5))]
    for left in (records, records[1:]):
        row = only(version_2(left))
        assert (row.ended, row.truncated) == ("abort", True)
        assert "it had no partition" not in row.reason


def test_a_commit_whose_start_is_gone_shows_no_transaction_version() -> None:
    *_, complete = transaction("Commit", decide=100, epochs=(4, 4))
    aborted = transaction("Abort", begin=200, decide=300, epochs=(4, 5), offset=10)
    assert [row.ended for row in transaction_history([complete, *aborted])] == ["commit", "fence"]


def test_epochs_of_two_producer_ids_are_not_compared() -> None:
    """Its PrepareAbort is missing, and CompleteAbort already has the next producer id."""
    ongoing, _, complete = version_2(transaction("Abort", decide=2500, epochs=(32766, 0)))
    row = only([ongoing, replace(complete, producer_id=9, previous_producer_id=7)])
    assert (row.ended, row.producer_epoch) == ("abort", 32766)
    assert "the record of its start is gone" in row.reason


def test_right_after_the_end_a_fence_cannot_be_excluded() -> None:
    events = transaction("Abort", decide=2500, epochs=(4, 5))
    assert only(events).ended == "timeout"
    assert only(events, as_of=at(5504)).ended == "abort", "3 s after the markers, not after the decision"
    early = only(events, as_of=at(3000))
    assert early.ended == "abort"
    assert "by the fence of a new instance whose record is not written yet" in early.reason
    assert only(events, as_of=at(8000)).ended == "timeout"


def test_only_an_init_that_follows_at_once_may_be_of_a_fence() -> None:
    events = transaction("Abort", decide=2500, epochs=(4, 5))
    next_one = transaction("Commit", begin=2600, decide=2700, epochs=(5, 5), offset=10)
    assert transaction_history([*events, *next_one])[0].ended == "timeout"
    init = record(90, 2620, "Empty", 6)
    for before, after, followed in [
        (events[:2], init, "followed 120 ms later"),  # CompleteAbort is missing
        (events, replace(init, timestamp=None), "followed 0 ms later"),
    ]:
        row = only([*before, after])
        assert row.ended == "abort"
        assert followed in row.reason


def test_open_transactions_last_until_the_read_time() -> None:
    ongoing = transaction("Commit", decide=100)[:1]
    row = only(ongoing, as_of=at(1500))
    assert (row.ended, row.ongoing_ms, row.prepare_ms) == ("open", 1500, None)
    assert row.reason == "Ongoing for 1.5 s as of the last read."
    assert only(ongoing, as_of=at(2000)).reason == "Ongoing for 2 s as of the last read."
    late = only(ongoing, as_of=at(10_000))
    assert late.reason == "Ongoing for 10 s as of the last read, past its timeout of 2 s."
    prepared = only([replace(ongoing[0], timeout_ms=2**31 - 1)], as_of=at(10_000))
    assert prepared.reason.endswith("in two-phase commit, which has no timeout.")


def test_without_a_read_time_open_transactions_last_to_the_newest_record() -> None:
    ongoing = transaction("Commit", decide=100)[:1]
    other = record(9, 700, "Empty", transactional_id="other")
    assert only([*ongoing, other]).ongoing_ms == 700
    assert only([other, *ongoing]).ongoing_ms == 700


def test_a_prepare_state_is_ending_and_later_stuck() -> None:
    decided = transaction("Commit", decide=100)[:2]
    young, old = only(decided, as_of=at(200)), only(decided, as_of=at(200 + 61_000))
    assert (young.ended, young.prepare_ms, young.ongoing_ms) == ("open", 100, 100)
    assert (old.ended, old.prepare_ms) == ("stuck", 61_100)
    assert old.reason == "PrepareCommit for 1 min 1 s as of the last read: not every marker is written."
    assert [only(decided, as_of=at(100 + ms)).ended for ms in (60_000, 60_001)] == ["open", "stuck"]


def test_records_without_timestamps_have_no_age() -> None:
    ongoing, prepared, complete = (replace(event, timestamp=None) for event in transaction("Commit", decide=100))
    assert only([ongoing]).reason == "Ongoing as of the last read."
    row = only([ongoing, prepared])
    assert (row.ended, row.prepare_ms) == ("open", None)
    row = only([ongoing, prepared, complete])
    assert (row.end_time, row.prepare_ms) == (at(101), 1)  # by the time in the record itself


def test_a_prepare_record_without_its_start_is_truncated() -> None:
    assert only(transaction("Commit", decide=100)[1:]).truncated


@pytest.mark.parametrize("end", ["Commit", "Abort"])
def test_a_single_complete_record_gives_most_columns(end: str) -> None:
    """As left by compaction."""
    row = only(transaction(end, begin=10, decide=500)[2:])
    assert (row.ended, row.truncated, row.records) == (end.lower(), True, 1)
    assert (row.start_time, row.decided_at, row.end_time) == (at(10), at(501), at(505))
    assert row.topic_partitions is None
    assert row.producer_id == 7
    assert row.producer_epoch == (0 if end == "Commit" else None)  # the coordinator may have raised it


def test_a_single_abort_past_its_timeout_names_both_possible_endings() -> None:
    row = only(transaction("Abort", decide=2500, epochs=(0, 1))[2:])
    assert row.ended == "abort"
    assert "by its client or by the coordinator for its timeout. The records do not decide: " in row.reason
    assert "the record of its start is gone" in row.reason


def test_a_single_record_of_version_2_has_the_raised_epoch() -> None:
    row = only(version_2(transaction("Commit", decide=50, epochs=(4, 5)))[2:])
    assert (row.producer_epoch, row.client_transaction_version) == (4, 2)


def test_a_missing_end_record_leaves_the_ending_unknown() -> None:
    first, second = transaction("Commit", decide=100), transaction("Commit", begin=300, decide=400, offset=10)
    rows = transaction_history([first[0], *second])
    assert [(row.ended, row.truncated) for row in rows] == [(None, False), ("commit", False)]
    assert rows[0].reason == "No record of its end could be read."
    assert transaction_history([*first[:2], *second])[0].ended == "commit"  # decided: no end needed


def test_a_record_retried_after_a_failed_append_is_the_same_transaction() -> None:
    ongoing, prepared, complete = transaction("Commit", decide=100)
    row = only([ongoing, prepared, replace(prepared, offset=7, last_update_time=at(130)), complete])
    assert (row.records, row.decided_at) == (4, at(100))


def test_successive_producer_ids_of_an_id_are_linked() -> None:
    """As written by 4.3.1: epochs exhausted by version 2, then by InitProducerId, then expiry."""
    exhausted = version_2(transaction("Commit", decide=10, epochs=(32766, 32767)))
    exhausted[1] = replace(exhausted[1], next_producer_id=9)
    exhausted[2] = replace(exhausted[2], producer_id=9, producer_epoch=0, previous_producer_id=7)
    events = [
        record(0, 0, "Empty", 32766),
        *exhausted,
        *version_2(transaction("Commit", begin=20, decide=30, epochs=(0, 1), offset=10, producer_id=9)),
        record(20, 40, "Empty", 32766, producer_id=9),
        record(21, 50, "Empty", 0, producer_id=11, previous_producer_id=9),
        record(22, 60, None, None),
        record(23, 70, "Empty", 0, producer_id=13, previous_producer_id=13),
    ]
    rows = transaction_history(events)
    ids = [(row.kind, row.producer_id, row.previous_producer_id) for row in rows]
    assert ids == [
        ("init", 7, None),
        ("transaction", 7, None),
        ("transaction", 9, 7),
        ("init", 9, None),
        ("init", 11, 9),
        ("expired", 11, None),
        ("init", 13, 11),
    ]
    assert rows[1].reason.endswith("Its epochs were exhausted: the id continued with producer id 9.")
    assert rows[3].reason.startswith("InitProducerId raised the epoch from 1 to 32766: a new instance")
    assert rows[4].reason == "InitProducerId assigned producer id 11: 9 had no epochs left after 32766."
    assert rows[5].state == "Empty"
    assert rows[6].reason == "InitProducerId assigned producer id 13: the transactional id had expired."

    owners = producer_ids(events)
    assert {
        pid: [(o.transactional_id, o.now, o.producer_epoch) for o in owners_of_id]
        for pid, owners_of_id in owners.items()
    } == {
        7: [("payments", "replaced", 32767)],
        9: [("payments", "replaced", 32766)],
        11: [("payments", "expired", 0)],
        13: [("payments", "owner", 0)],
    }


@pytest.mark.parametrize("ended", ["Commit", "Abort"])
def test_exhausted_epochs_without_the_other_producer_ids(ended: str) -> None:
    """Up to 4.2 a coordinator writes neither the previous nor the next producer id (KAFKA-20310): null says nothing."""
    after = version_2(transaction("Commit", begin=20, decide=30, epochs=(0, 1), offset=10, producer_id=9))
    found = []
    for next_id, previous_id in ((9, 7), (None, None)):
        exhausted = version_2(transaction(ended, decide=10, epochs=(32766, 32767)))
        exhausted[1] = replace(exhausted[1], next_producer_id=next_id)
        exhausted[2] = replace(exhausted[2], producer_id=9, producer_epoch=0, previous_producer_id=previous_id)
        found.append((transaction_history([*exhausted, *after]), producer_ids([*exhausted, *after])))
    (rows, owners), (without, owners_without) = found
    assert rows == without
    assert {key: [each.now for each in of] for key, of in owners.items()} == {
        key: [each.now for each in of] for key, of in owners_without.items()
    }


def test_a_rotation_that_a_new_coordinator_lost() -> None:
    """A timeout's abort at epoch 32767 is no such loss: before 4.3 it rotates nothing."""
    (lost,) = transaction_history(version_2(transaction("Commit", decide=10, epochs=(32766, 32767))))
    assert lost.reason.endswith("is lost (KAFKA-20310): it has to be restarted.")
    (aborted,) = transaction_history(version_2(transaction("Abort", decide=10, epochs=(32766, 32767))))
    (earlier,) = transaction_history(version_2(transaction("Commit", decide=10, epochs=(32765, 32766))))
    assert "KAFKA-20310" not in aborted.reason + earlier.reason


def test_a_next_producer_id_already_has_an_owner() -> None:
    ongoing, prepared, _ = version_2(transaction("Commit", decide=10, epochs=(32766, 32767)))
    owners = producer_ids([ongoing, replace(prepared, next_producer_id=9)])
    assert {pid: owners_of_id[0].now for pid, owners_of_id in owners.items()} == {7: "owner", 9: "next"}


AFTER_EPOCH_3 = {  # why InitProducerId wrote its record
    "returned epoch 3 again.": record(1, 50, "Empty", 3),
    "raised the epoch from 3 to 5: a new instance, or the same after an error.": record(1, 50, "Empty", 5),
    "replaced producer id 7 with 9.": record(1, 50, "Empty", producer_id=9),
}


@pytest.mark.parametrize("why", AFTER_EPOCH_3)
def test_why_init_producer_id_wrote_a_record(why: str) -> None:
    [_, row] = transaction_history([record(0, 0, "Empty", 3), AFTER_EPOCH_3[why]])
    assert row.reason == f"InitProducerId {why}"


def test_the_last_epoch_may_be_returned_twice() -> None:
    [_, row] = transaction_history([record(0, 0, "Empty", 32766), record(1, 50, "Empty", 32766)])
    assert row.reason == "InitProducerId returned epoch 32766 again."


def test_an_init_without_a_known_record_before_it() -> None:
    init = record(5, 50, "Empty", 3, updated=40)
    for events in ([init], [unread(4), init]):
        row = transaction_history(events)[-1]
        assert row.reason == "InitProducerId assigned producer id 7 with epoch 3."
        assert (row.kind, row.end_time, row.truncated) == ("init", at(50), False)
    [row] = transaction_history([replace(init, timestamp=None)])
    assert row.end_time == at(40)  # by the time in the record itself


def test_compaction_may_leave_only_the_expiry() -> None:
    [row] = transaction_history([record(9, 500, None, None)])
    assert (row.kind, row.end_time, row.producer_id, row.state) == ("expired", at(500), None, None)


def test_a_producer_id_is_remembered_across_an_unread_record() -> None:
    events = [record(0, 0, "Empty"), unread(1), record(2, 500, None, None), record(3, 600, "Empty", producer_id=9)]
    rows = transaction_history(events)
    assert [(row.kind, row.producer_id) for row in rows] == [("init", 7), ("expired", None), ("init", 9)]
    assert rows[-1].previous_producer_id == 7


@pytest.mark.parametrize(("state", "before"), [("Empty", 7), ("Ongoing", None)])
def test_the_first_record_shows_a_change_of_producer_id_only_if_it_is_of_init(state: str, before: int | None) -> None:
    """Later records keep the previous id."""
    [row] = transaction_history([record(5, 50, state, 0, start=50, producer_id=9, previous_producer_id=7)])
    assert row.previous_producer_id == before


def test_a_single_complete_record_keeps_the_previous_producer_id() -> None:
    [event] = version_2(transaction("Commit", decide=10, epochs=(0, 0)))[2:]
    row = only([replace(event, producer_id=9, previous_producer_id=7)])
    assert (row.producer_id, row.producer_epoch) == (7, 32766)


def unread(offset: int, **more: Any) -> TransactionLogRecord:
    """A record of the id whose value could not be read."""
    return replace(record(offset, 0, None, None), tombstone=False, error="MALFORMED_LINE: no.", **more)


def as_dump(events: list[TransactionLogRecord]) -> list[TransactionLogRecord]:
    """As text of kafka-dump-log.sh before Kafka 4.1: no start time, no client version."""
    return [replace(event, start_time=None, value_version=None) for event in events]


def test_a_dump_without_start_times_gives_the_other_columns() -> None:
    init = record(0, 0, "Empty", 4)
    aborted = transaction("Abort", begin=10, decide=110, epochs=(4, 5), offset=1)
    unknown = only(as_dump([init, *aborted]))
    assert (unknown.ended, unknown.start_time, unknown.truncated) == ("abort", at(10), False)
    assert unknown.reason.startswith("Aborted by its client ")

    committed = transaction("Commit", begin=5, decide=8, epochs=(4, 4), offset=1)
    fenced = transaction_history(as_dump([init, *committed, *aborted]))[-1]
    assert (fenced.ended, fenced.ongoing_ms) == ("fence", 100)  # the commit has proven the client's version

    soon = with_next_init(aborted, "soon")
    fields = transaction_history(as_dump([init, *soon]))[1]
    assert "the epoch was raised from 4 to 5, maybe by a client of transaction version 2" in fields.reason


def test_a_dump_that_begins_mid_transaction_has_no_start() -> None:
    events = as_dump(transaction("Abort", begin=10, decide=110, epochs=(4, 5)))
    row = only([replace(event, value_version=0) for event in events])
    assert (row.ended, row.start_time, row.ongoing_ms, row.truncated) == ("abort", None, None, None)
    assert row.reason.startswith(
        "Aborted: by the coordinator for its timeout or by the fence of a new instance that did not retry. "
    )
    assert only(events[:1]).reason == "Ongoing as of the last read."


def test_a_dump_keeps_successive_transactions_apart() -> None:
    aborted = [
        *transaction("Abort", begin=10, decide=110, epochs=(4, 4), offset=1),
        *transaction("Abort", begin=200, decide=210, epochs=(4, 4), offset=4),
    ]
    assert [row.records for row in transaction_history(as_dump(aborted))] == [3, 3]
    without_data: list[TransactionLogRecord] = [
        replace(event, topic_partitions=()) for event in aborted if event.state in {"PrepareAbort", "CompleteAbort"}
    ]
    assert [row.records for row in transaction_history(as_dump(without_data))] == [2, 2]


def test_a_dump_that_lacks_a_segment_joins_no_abort_to_a_commit() -> None:
    prepared, complete = record(1, 10, "PrepareCommit", 4), record(900, 9000, "CompleteAbort", 4)
    first, second = transaction_history(as_dump([prepared, complete]))
    assert (first.ended, second.ended, second.records) == ("commit", "abort", 1)


def test_a_dump_has_no_proof_of_a_start_after_an_unread_record() -> None:
    aborted = transaction("Abort", begin=10, decide=110, epochs=(4, 5), offset=1)
    row = only(as_dump([unread(0), *aborted]))
    assert (row.truncated, row.start_time, row.error) == (None, None, "MALFORMED_LINE: no.")


def test_an_end_without_a_transaction_is_recognized_in_a_dump() -> None:
    [_, *end] = transaction("Abort", begin=20, decide=20, epochs=(5, 5), offset=1)
    row = only(as_dump([record(0, 0, "Empty", 4), replace(end[0], topic_partitions=()), end[1]]))
    assert (row.ended, row.truncated, row.start_time) == ("abort", False, at(20))
    assert "it had no partition" in row.reason
    assert "it had no partition" not in only(as_dump([replace(end[0], topic_partitions=()), end[1]])).reason


def test_unread_records_give_an_error() -> None:
    ongoing, prepared, complete = transaction("Abort", decide=2500, epochs=(4, 5))
    damaged = replace(record(5, 0, None, None), tombstone=False, error="CORRUPT_RECORD: no.")
    without_id = replace(damaged, transactional_id=None)

    assert only([ongoing, prepared, without_id], as_of=at(9000)).ended == "abort"
    for after in (damaged, without_id):
        row = only([ongoing, after])
        assert (row.ended, row.error) == (None, "CORRUPT_RECORD: no.")
        assert only([ongoing, prepared, complete, after]).ended == "abort"  # it may be of a fencing instance
    last = replace(without_id, error="CORRUPT_BATCH: last.")
    assert only([ongoing, without_id, last]).error == "CORRUPT_BATCH: last."
    row = only([damaged, complete])
    assert (row.truncated, row.error) == (True, "CORRUPT_RECORD: no.")
    assert only([without_id, ongoing, prepared, complete]).error is None
    assert only([ongoing, replace(without_id, txn_state_partition=4)]).ended == "open"

    [alone] = transaction_history([damaged])
    assert (alone.reason, alone.error) == ("No record of the id could be read.", "CORRUPT_RECORD: no.")
    assert transaction_history([without_id]) == []


@pytest.mark.parametrize("epochs", [(4, 4), (4, 5)])
def test_what_records_prove_needs_no_unread_one(epochs: tuple[int, int]) -> None:
    """A commit and a fence are proven, whatever the next record is; a whole transaction, whatever the last one was."""
    end = "Commit" if epochs == (4, 4) else "Abort"
    row = only([unread(0), *transaction(end, decide=100, epochs=epochs, offset=1, value_version=0), unread(4)])
    assert (row.ended, row.truncated, row.error) == ("commit" if end == "Commit" else "fence", False, None)


def test_history_continues_after_an_unread_record() -> None:
    first, second = (transaction("Commit", begin=ms, decide=ms + 10, offset=ms) for ms in (10, 30))
    rows = transaction_history([record(0, 0, "Empty"), unread(1), *first, *second, unread(90)])
    assert [(row.kind, row.first_offset) for row in rows] == [("init", 0), ("transaction", 10), ("transaction", 30)]


def test_an_id_without_records_has_no_history() -> None:
    assert (advance(HistoryState(), []), current(HistoryState())) == (([], HistoryState()), [])


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
    ongoing, *_ = events
    assert only([ongoing, before]).error is None
    assert only([ongoing, after, before]).error == "CORRUPT_BATCH: at 150."
    assert only([after, ongoing]).error == "CORRUPT_BATCH: at 150."
    assert only([*events, before, after]).error is None
    without_position = replace(before, position=None)
    assert only([ongoing, without_position]).error == "CORRUPT_BATCH: at 50."
    assert only([without_position, ongoing]).error is None


def test_partitions_read_one_by_one_share_the_newest_time() -> None:
    events = transaction("Commit", decide=100)[:1]
    later = replace(record(0, 90_000, "Empty"), transactional_id="other", txn_state_partition=4)
    rows = transaction_history([*events, later])
    assert [*transaction_history([later], latest=at(90_000)), *transaction_history(events, latest=at(90_000))] == rows
    assert transaction_history(events)[0].ongoing_ms == 0
    assert transaction_history(events, latest=at(90_000))[0].ongoing_ms == 90_000
    assert transaction_history(events, as_of=at(5), latest=at(90_000)) == transaction_history(events, as_of=at(5))


def test_ids_and_replicas_are_kept_apart() -> None:
    events = transaction("Commit", decide=100)
    behind = [replace(event, broker_id=2) for event in events[:2]]
    rows = transaction_history([*events, *behind, *(replace(event, transactional_id="a") for event in events)])
    assert [(row.transactional_id, row.broker_id, row.ended) for row in rows] == [
        ("a", 1, "commit"),
        ("payments", 1, "commit"),
        ("payments", 2, "open"),
    ]


def test_the_newest_record_of_each_id_gives_its_state() -> None:
    complete = transaction("Commit", decide=100)[-1]
    ongoing = record(20, 300, "Ongoing", 1, start=300, transactional_id="open")
    expired = record(22, 500, None, None, transactional_id="gone")
    rows = newest([complete, ongoing, expired], observed_at=at(1000))
    assert len(TRANSACTIONS.arrow(row.row() for row in rows)) == 2
    still_open, payments = rows
    assert (still_open.transactional_id, still_open.state, still_open.topic_partitions) == ("open", "Ongoing", ORDERS)
    assert [row.start_time for row in rows] == [at(300), None]
    assert (payments.state, payments.last_update_time) == ("CompleteCommit", at(101))
    assert {(row.source, row.txn_state_partition, row.broker_id, row.observed_at, row.error) for row in rows} == {
        ("__transaction_state", 3, 1, at(1000), None)
    }


def test_of_several_replicas_the_longest_gives_the_owner() -> None:
    known, expired = record(1, 0, "Empty", 3), record(2, 10, None, None)
    for events in ([known, expired, replace(known, broker_id=2)], [replace(known, broker_id=2), known, expired]):
        assert [owner.now for owner in producer_ids(events)[7]] == ["expired"]


def test_unreadable_records_have_no_owner() -> None:
    without_id = replace(record(0, 0, "Empty"), transactional_id=None)
    damaged = replace(record(1, 0, "Empty", producer_id=8), error="CORRUPT_RECORD: no.")
    assert producer_ids([without_id, damaged, record(2, 0, "Empty", producer_id=9)]).keys() == {9}


@pytest.mark.parametrize("name", ["producer_id", "previous_producer_id", "next_producer_id"])
def test_a_record_names_its_previous_and_next_producer_id_too(name: str) -> None:
    event = record(0, 0, "Ongoing", **{"producer_id": 1, name: 9})
    assert names_any(event, {9})
    assert not names_any(event, {8})


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_every_open_state_has_a_start_time(state: str) -> None:
    [row] = newest([record(0, 10, state, 1, start=5)], observed_at=at(1000))
    assert row.start_time == at(5)


def test_an_unknown_replica_is_none_of_the_known_ones() -> None:
    event = replace(record(0, 0, "Empty"), broker_id=None, txn_state_partition=None)
    assert replica_of(event) == ("payments", -1, -1)


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


@pytest.mark.parametrize("end", ["Commit", "Abort"])
def test_lines_change_no_ending_of_a_client(end: str) -> None:
    events = with_next_init(transaction(end, decide=2500), "soon")
    assert only(events, broker_log_events=[STARTED, TIMED_OUT, FOLLOWED]) == only(events)
