"""Which transaction held the LSO, from and to when, and the findings of these holds."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given

from tests.analysis.build import NOW, columns
from tests.analysis.logged import at
from tests.analysis.random_logs import Step, batches, step_lists
from tests.analysis.test_log_transactions import BASE, all_opened_before
from tests.stored import compare
from tests.tiers import fuzzed
from toolkit.analysis.hold_findings import (
    attribute,
    by_producer,
    held_findings,
    held_offsets,
    hold_table,
    lso_holds,
    merge_holds,
)
from toolkit.analysis.log.log_transactions import (
    OPEN,
    LogArray,
    LogTransactions,
    begin,
    finish,
    lso_steps,
    partial_transactions,
)
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.schema import LSO_HOLDS, Row, utc
from toolkit.schema.live import Finding
from toolkit.schema.log import PastTransaction
from toolkit.schema.recorded import LsoHold
from toolkit.schema.table import LogId
from toolkit.schema.verdict import Verdict

thorough = fuzzed(20)

MINUTE = 60_000


WHERE = LogId(topic="orders", partition=0, broker_id=1)


def hold_rows(log_transactions: LogTransactions, **options: Any) -> list[Row]:
    found = hold_table(LogArray(lso_holds(log_transactions, **options), WHERE, ("00.log",)), log_end_offset=None)
    assert found.schema.equals(LSO_HOLDS.arrow_schema, check_metadata=True)
    rows: list[Row] = found.to_pylist()
    return rows


def holds_of(*steps: Step, **options: Any) -> list[Row]:
    return hold_rows(finish(begin() + partial_transactions(batches(steps))), **options)


def holders_by_offset(headers: Headers, opened: dict[int, tuple[int, int]]) -> list[Any]:
    """Offset by offset, each lowest transaction: its first offset, where it became the lowest, and where it ended."""
    open_ = {producer: start for producer, (start, _) in opened.items()}
    holders: list[Any] = []
    holder = min(((start, producer) for producer, start in open_.items()), default=None)
    if holder:
        holders.append([holder[0], holder[0], None])
    for batch in headers:
        producer, control = int(batch["producer_id"]), batch["attributes"] & CONTROL
        if producer >= 0 and control and int(batch["marker"]) in {COMMIT, ABORT, UNREAD_MARKER}:
            open_.pop(producer, None)
        elif producer >= 0 and not control and batch["attributes"] & TRANSACTIONAL:
            open_.setdefault(producer, int(batch["base_offset"]))
        lowest = min(((start, producer) for producer, start in open_.items()), default=None)
        if holder and lowest != holder:
            holders[-1][2] = int(batch["base_offset"])
        if lowest and lowest != holder:
            holders.append([lowest[0], int(batch["base_offset"]), None])
        holder = lowest
    return [tuple(each) for each in holders]


def became_at(row: Row) -> int:
    return int(row["first_offset"] if row["after_offset"] is None else row["after_offset"])


@thorough
@given(step_lists, all_opened_before)
@example([Step("data", 1), Step("data", 2), Step("commit", 2), Step("data", 2), Step("commit", 2)], {})
def test_the_holders_match_an_offset_by_offset_model(steps: list[Step], opened: dict[int, tuple[int, int]]) -> None:
    headers = batches(steps, base_offset=BASE)
    rows = hold_rows(finish(begin(opened_before=opened) + partial_transactions(headers)))
    assert [(row["first_offset"], became_at(row), row["marker_offset"]) for row in rows] == holders_by_offset(
        headers, opened
    )
    for row in rows:
        assert (row["held_to"] is None) == (row["marker_offset"] is None)
        assert row["held_ms"] is None or row["held_ms"] >= 0
        assert row["held_ms"] is None or row["least_ms"] <= row["held_ms"] + 5_000


@thorough
@given(step_lists, all_opened_before)
def test_the_holders_match_the_steps_of_the_lso(steps: list[Step], opened: dict[int, tuple[int, int]]) -> None:
    headers = batches(steps, base_offset=BASE)
    log_transactions = finish(begin(opened_before=opened) + partial_transactions(headers))
    end = int(headers["last_offset"][-1]) + 1 if len(headers) else BASE
    holders: list[tuple[int, int]] = []
    for step in lso_steps(log_transactions, log_end_offset=end):
        holder = int(step["holder_first_offset"])
        if holder >= 0 and holder not in [first for first, _ in holders]:
            holders.append((holder, holder if step["event"] == OPEN else int(step["offset"]) - 1))
    assert [(row["first_offset"], became_at(row)) for row in hold_rows(log_transactions)] == holders


BEFORE = (Step("data", 3), Step("commit", 3))  # a marker at 1002


@pytest.mark.parametrize(
    ("wait", "opened_at", "opened_at_clock", "held_ms"),
    [
        (1, 1003, "producer", MINUTE),
        (-3_600_000, 1002, "broker", MINUTE + 1),  # a backfill, or a clock behind
        (3_600_000, 1002, "broker", MINUTE + 1),  # a clock ahead
        (MINUTE + 1_000, 1002 + MINUTE + 1_000, "producer", 0),  # slightly ahead: the hold has no negative duration
    ],
)
def test_a_producers_clock_counts_within_the_markers(
    wait: int, opened_at: int, opened_at_clock: str, held_ms: int
) -> None:
    steps = (*BEFORE, Step("data", 1, wait=wait), Step("commit", 1, wait=MINUTE + 1 - wait))
    (row,) = [row for row in holds_of(*steps) if row["producer_id"] == 1000]
    assert (row["opened_at"], row["opened_at_clock"], row["held_ms"]) == (utc(opened_at), opened_at_clock, held_ms)
    assert row["held_from"] <= row["held_to"] == utc(1003 + MINUTE)


def holder(*steps: Step, **options: Any) -> Row:
    """The last hold."""
    return holds_of(*steps, **options)[-1]


HOUR = 60 * MINUTE


def test_a_clock_an_hour_behind_is_replaced_by_the_marker_before() -> None:
    row = holder(Step("data", 3, wait=2 * HOUR), Step("commit", 3), Step("data", 1, wait=-HOUR), Step("commit", 1))
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(1001 + 2 * HOUR), "broker")


@pytest.mark.parametrize(
    ("before", "opened_at"),
    [
        ([Step("abort", 3)], 1001),  # of a transaction that wrote nothing: at offset 0
        ([*BEFORE, Step("data", 2), Step("commit", 2)], 1004),  # of a hold that is left out
        ([*BEFORE, Step("data", 2), Step("commit", 2, wait=-1004)], 1002),  # the last one has no time
    ],
)
def test_the_last_marker_with_a_time_shows_when_a_hold_began_at_least(before: list[Step], opened_at: int) -> None:
    row = holder(*before, Step("data", 1, wait=HOUR), Step("commit", 1, wait=5_000 - HOUR), min_held_ms=5)
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(opened_at), "broker")


def test_a_future_time_without_a_previous_marker_is_left_open() -> None:
    steps = (Step("data", 1, wait=3_600_000), Step("data", 2), Step("commit", 2, wait=-3_590_000), Step("commit", 1))
    (row,) = holds_of(*steps, min_held_ms=MINUTE)
    assert (row["opened_at"], row["held_from"], row["held_ms"], row["least_ms"]) == (None, None, None, 1)
    assert row["opened_at_clock"] is None


def test_a_log_is_observed_as_of_its_last_marker() -> None:
    rows = holds_of(*BEFORE, Step("commit", 3, wait=-100), Step("data", 1))
    assert {row["as_of"] for row in rows} == {utc(902)}
    assert [row["as_of"] for row in holds_of(Step("data", 1))] == [None]


HERE = [{"topic": "orders", "partition": 0}]
ELSEWHERE = [{"topic": "orders", "partition": 1}]


def hold(**fields: Any) -> LsoHold:
    """Producer 7 from second 0 to 120, at offsets 100 to 110."""
    row: Row = {
        "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 3, "first_epoch": 3, "broker_id": 1,
        "first_offset": 100, "last_offset": 104, "marker_offset": 110, "marker_epoch": 3, "coordinator_epoch": 0,
        "outcome": "commit", "marker": "COMMIT", "start": at(0), "start_clock": "producer", "end": at(120),
        "truncated": False, "opened_at": at(0), "opened_at_clock": "producer", "held_from": at(0), "held_to": at(120),
        "held_ms": 120_000, "least_ms": 0, "first_sequence": 0, "as_of": at(500), "records_held": 9, "bytes_held": 900,
        **fields,
    }  # fmt: skip
    return LsoHold.of(row)


def open_hold(**fields: Any) -> LsoHold:
    unset = ("marker_offset", "marker_epoch", "coordinator_epoch", "marker", "end", "held_to", "held_ms", "least_ms")
    return hold(**{**dict.fromkeys(unset), "outcome": "open", "log_end_offset": 110, **fields})


def history(ended: str | None = "commit", **fields: Any) -> PastTransaction:
    row: Row = {
        "transactional_id": "payments", "txn_state_partition": 33, "kind": "transaction", "producer_id": 7,
        "producer_epoch": 3, "ended": ended, "reason": "Its client did what it did.", "state": "CompleteCommit",
        "start_time": at(0), "decided_at": at(119), "end_time": at(121), "timeout_ms": 600_000,
        "topic_partitions": HERE, "first_offset": 5, "last_offset": 7, "truncated": False, "broker_id": 2, **fields,
    }  # fmt: skip
    return PastTransaction.of(row)


# The owner of a hold


THIS = history(reason="This one.")
LATE = history(decided_at=at(122), end_time=at(123))
SHORT = replace(LATE, start_time=at(60))
BY_MARKER: tuple[Row, ...] = (
    {"opened_at_clock": "broker"}, {"opened_at": None, "opened_at_clock": None},
    {"opened_at": None, "opened_at_clock": None, "start": None, "start_clock": None},
)  # fmt: skip
BEFORE_IT = history(start_time=at(-99), decided_at=at(-90), end_time=at(-90), first_offset=1)
AFTER = history(start_time=at(200), decided_at=at(201), end_time=at(201), first_offset=9)
OTHER = history(topic_partitions=ELSEWHERE)
RIGHT_BEFORE = history(start_time=at(117.9), decided_at=at(118), end_time=at(118))
INIT: Row = {"kind": "init", "ended": None, "start_time": None, "decided_at": None, "topic_partitions": None}
ENDINGS = ("commit", "abort", "timeout", "fence", "open", "stuck", None)
OF_THAT_TIME: dict[str, Row] = {
    "short": {"start_time": at(60), "end_time": at(63)},
    "of unknown start": {"start_time": None, "decided_at": None, "end_time": at(63)},
    "open, of another epoch": {"start_time": at(60), "end_time": None, "producer_epoch": 9},
}
OWNERS: dict[str, tuple[LsoHold, list[PastTransaction]]] = {
    # A match by the broker's clock wins over other clocks.
    "two that fit, of which one ended with the marker": (
        hold(), [THIS, history(decided_at=at(123), end_time=at(124), first_offset=8)]),
    "clocks of brokers differ a little": (hold(), [LATE]),
    "it began later, by a tenth of the time": (hold(), [replace(LATE, start_time=at(10))]),
    "it began much later": (hold(), [SHORT]),
    **{f"its first batch may be later: {[*fields]}": (hold(**fields), [SHORT]) for fields in BY_MARKER},
    "it ended much later": (hold(), [history(decided_at=at(126), end_time=at(127))]),
    "two matches": (hold(), [history(first_offset=8), history()]),
    "two matches of unknown partitions": (
        hold(), [history(first_offset=8, topic_partitions=None), history(topic_partitions=None)]),
    # A transaction fits the marker unless it ended otherwise.
    **{
        f"{what}, and its end is {ended}": (one, [history(ended)])
        for what, one in (("a COMMIT", hold()), ("an ABORT", hold(marker="ABORT")), ("open", open_hold()),
                          ("a marker that was not read", hold(marker=None)))
        for ended in ENDINGS
    },
    "one with the partition, one with unknown ones": (hold(), [history(topic_partitions=None, first_offset=8), THIS]),
    "of the next producer id of its id": (hold(), [history(producer_id=9, previous_producer_id=7)]),
    "of another producer id": (hold(), [history(producer_id=9)]),
    "Kafka gives a producer id to one id only": (hold(), [history(), history(transactional_id="other")]),
    "the marker of transaction version 2 has the next epoch": (hold(marker_epoch=4), [history()]),
    "which the next transaction has": (hold(marker_epoch=4), [THIS, history(producer_epoch=4, first_offset=8)]),
    "a late batch, by its time": (hold(opened_at=at(118.1)), [RIGHT_BEFORE]),
    "a late batch, by its length": (hold(), [RIGHT_BEFORE]),
    # Records before and after prove that the coordinator did not own it.
    "before, elsewhere, after": (hold(), [BEFORE_IT, OTHER, AFTER]),
    "before, elsewhere: its records of that time may not have been read": (hold(), [BEFORE_IT, OTHER]),
    "elsewhere, after: compaction may have removed them": (hold(), [OTHER, AFTER]),
    "a record that could not be read": (hold(), [replace(BEFORE_IT, error="CORRUPT_RECORD: one."), AFTER]),
    "it opened at an unknown time": (hold(opened_at=None), [BEFORE_IT, OTHER, AFTER]),
    "it ended at an unknown time": (hold(held_to=None, marker="ABORT"), [BEFORE_IT, OTHER, AFTER]),
    **{
        f"one of that time whose partitions are unknown may be it: {fields}": (
            hold(), [BEFORE_IT, history(topic_partitions=None, **times), AFTER])
        for fields, times in OF_THAT_TIME.items()
    },
    "an init during the hold is no transaction": (hold(), [BEFORE_IT, history(**{**INIT, "end_time": at(60)}), AFTER]),
}  # fmt: skip


def test_the_owner_of_a_hold() -> None:
    lines = []
    for name, (one, histories) in OWNERS.items():
        owner = attribute(one, histories)
        which = "none" if owner.history is None else f"number {histories.index(owner.history) + 1}"
        known = "was known" if owner.was_known else "was not known"
        lines += [f"{name}: {which} of {len(histories)}; {owner.transactional_id} {known}", f"    {owner.sentence}"]
    compare("hold_owners.txt", lines)


# The findings of holds


FLINK: Row = {"transactional_id": "sink-3-17", "timeout_ms": 3_600_000}
SLOW: Row = {"decided_at": at(30)}
ENDED_HOLDS: dict[str, tuple[LsoHold, list[PastTransaction]]] = {
    "without the records of its id": (hold(), []),
    "its first batch has no time": (hold(start=None), []),
    "its first batch has no clock": (hold(start_clock=None), []),
    "a client that did not end it in time": (hold(marker="ABORT"), [history("timeout")]),
    "a client that left it open": (hold(marker="ABORT"), [history("fence")]),
    "two epochs": (hold(first_epoch=2), [history()]),
    "a marker of the next epoch": (hold(marker_epoch=4), [history(producer_epoch=4)]),
    "a marker that came late": (hold(), [history(**SLOW)]),
    "a marker of version 2 that came late": (hold(), [history(**SLOW, client_transaction_version=2)]),
    "two-phase commit": (hold(), [history(timeout_ms=2**31 - 1)]),
    **{f"an id of Flink: {each}": (hold(marker="ABORT" if each != "commit" else "COMMIT"), [history(each, **FLINK)])
       for each in ("timeout", "fence", "commit")},
    "still open by its records": (hold(), [history("open", decided_at=None)]),
    "of unknown end": (hold(held_to=None, held_ms=None), [history(**SLOW)]),
    "the epoch of its first batch is not known": (hold(first_epoch=None), [history()]),
    "its own epoch is not known": (hold(producer_epoch=None), [history()]),
    "that of its records is not known": (hold(), [history(producer_epoch=None)]),
    "a commit": (hold(), [history()]),
    "its coordinator did not know of it": (hold(marker="ABORT"), [BEFORE_IT, AFTER]),
    "offsets of groups": (hold(topic="__consumer_offsets"), []),
    "a start time within the difference of clocks corrects nothing": (hold(), [history(start_time=at(3))]),
    "without a start time the opening is that of the log": (hold(), [history(start_time=None)]),
    "before its id got another producer id": (hold(), [history(producer_id=9, previous_producer_id=7)]),
}  # fmt: skip


def current_finding(**fields: Any) -> Finding:
    row: Row = {
        "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 7, "producer_epoch": 3, "start_offset":
        100, "verdict": "hanging", "reason": "So it is.", "remedy": "kafka-txn abort.", "missing": [], "evidence": [],
        "opened_at": at(0), "opened_at_clock": "producer", "last_stable_offset": 100, "high_watermark": 109,
        "observed_at": NOW, "brokers_time": NOW, **fields,
    }  # fmt: skip
    return Finding.of(row)


UNTIMED_SHORT = hold(opened_at=None, opened_at_clock=None, held_from=None, held_ms=None, least_ms=50_000)
OF_EXCERPT = current_finding(
    held_from=at(60), held_ms=5,
    evidence=[{"name": "held_at_least_since", "value": "offset 105", "source": "Fetch"}],
)  # fmt: skip
UNTIMED = open_hold(held_from=None, records_held=None, bytes_held=None)
AN_HOUR_AHEAD = NOW + dt.timedelta(hours=1)
AHEAD = open_hold(opened_at=AN_HOUR_AHEAD, held_from=AN_HOUR_AHEAD)
COORDINATORS = current_finding(queue_position=None, start_offset=None, verdict=Verdict.ONGOING)
OTHERS = [
    current_finding(queue_position=2, producer_id=8, start_offset=105),
    current_finding(queue_position=None, producer_id=None, start_offset=None, verdict=Verdict.UNREPLICATED),
    replace(COORDINATORS, producer_id=9),
]
LOG_ALONE = by_producer([history("open", reason="Ongoing.", decided_at=None, end_time=None)])
AS_OF: dict[str, Row] = {
    "its start": {},
    "behind another": {"after_offset": 103, "held_from": at(30)},
    "behind another since an unknown time": {"after_offset": 103, "held_from": None},
    "nothing": {"held_from": None, "opened_at": None},
}
HELD: dict[str, tuple[list[LsoHold], dict[str, Any]]] = {
    **{name: ([one], {"transaction_history": by_producer(histories), "current_findings": []})
       for name, (one, histories) in ENDED_HOLDS.items()},
    "too short": ([UNTIMED_SHORT], {"min_held_ms": 60_000}),
    "one of two is too short": ([UNTIMED_SHORT, hold(first_offset=120)], {"min_held_ms": 60_000}),
    "too short without its records": (
        [UNTIMED_SHORT], {"min_held_ms": 60_000, "transaction_history": by_producer([history()])}),
    "just long enough": ([UNTIMED_SHORT], {"min_held_ms": 50_000}),
    "a backfill, of which the records show the time": (
        [hold(opened_at=at(-9999), held_from=at(-9999), held_ms=10_119_000)],
        {"min_held_ms": 120_001, "transaction_history": by_producer([history()])}),
    "of unknown time": ([replace(UNTIMED_SHORT, least_ms=None)], {}),
    # Open transactions
    "the diagnosis and the log": ([open_hold()], {"current_findings": [current_finding()]}),
    "a diagnosis that knows what is held": ([open_hold()], {"current_findings": [
        current_finding(held_from=at(1), held_ms=5, records_held=3, bytes_held=300)]}),
    "the complete log wins over an excerpt": ([open_hold()], {"current_findings": [OF_EXCERPT]}),
    "and names its evidence": ([open_hold(after_offset=103, held_from=at(30))], {"current_findings": [OF_EXCERPT]}),
    "not if it has no time": ([UNTIMED], {"current_findings": [OF_EXCERPT]}),
    "nor behind another": ([replace(UNTIMED, after_offset=103)], {"current_findings": [OF_EXCERPT]}),
    "a clock ahead of now is replaced by the previous marker": (
        [replace(AHEAD, not_before=at(-1))], {"current_findings": [current_finding()]}),
    "without one, the time is not known": ([AHEAD], {"current_findings": [current_finding()]}),
    "or is the coordinator's": (
        [AHEAD], {"current_findings": [current_finding(opened_at_clock="coordinator", opened_at=at(2))]}),
    "other findings are unchanged": ([], {"current_findings": OTHERS}),
    "at another offset": ([open_hold()], {"current_findings": [current_finding(start_offset=90)]}),
    "another replica has one before it": ([open_hold()], {"current_findings": [current_finding(queue_position=2)]}),
    "an ended one before it": (
        [open_hold(), hold(producer_id=8, first_offset=80)], {"current_findings": [current_finding(queue_position=2)]}),
    "its marker is in the log, however short it was held": (
        [hold()], {"current_findings": [current_finding(brokers_time=at(119))], "min_held_ms": 120_001}),
    "it has ended since": (
        [hold()], {"current_findings": [current_finding(transactional_id="payments", brokers_time=at(119))]}),
    "it has ended since, and its id is in the records": (
        [hold()], {"current_findings": [current_finding(brokers_time=at(119))],
                   "transaction_history": by_producer([history()])}),
    "open minutes after its marker": ([hold()], {"current_findings": [current_finding()]}),
    "a log alone, without a diagnosis": ([open_hold()], {"transaction_history": LOG_ALONE, "current_findings": None}),
    "a log alone, and a diagnosis without it": (
        [open_hold()], {"transaction_history": LOG_ALONE, "current_findings": []}),
    "a finding without offset is not that of an open hold": ([open_hold()], {"current_findings": [COORDINATORS]}),
    # A log without times of markers is as of its last known time.
    **{
        f"without times of markers: {name}": ([open_hold(as_of=None, log_end_offset=None, **fields)], {})
        for name, fields in AS_OF.items()
    },
}  # fmt: skip


def test_the_findings_of_holds() -> None:
    """Each column of them that is known, of a log alone, or with the current findings."""
    lines = []
    for name, (holds, options) in HELD.items():
        lines.append(f"# {name}")
        lines += columns(held_findings(holds, **options))
    compare("hold_findings.txt", lines)


def test_a_hold_goes_on_after_a_marker_that_its_leader_lost() -> None:
    """The holds of a recording and of a deposed leader's log said until when it had held the LSO."""
    recorded = open_hold(as_of=at(500))
    (ended,) = merge_holds([hold()], [recorded])
    (goes_on,) = merge_holds([hold()], [recorded], still_open={recorded.key})
    assert (ended.held_to, goes_on.held_to, goes_on.as_of) == (at(120), None, at(500))


def test_a_hold_that_is_open_in_a_log_ends_by_a_later_sample() -> None:
    """The finding had `ended` by the sample, and the hold was open for ever: a copy of its log has no marker."""
    log = open_hold()
    recorded = replace(log, held_to=at(300), held_ms=180_000, least_ms=None)
    (ended,) = merge_holds([log], [recorded])
    (goes_on,) = merge_holds([log], [recorded], still_open={log.key})
    assert (ended.held_to, ended.held_ms, goes_on.held_to) == (at(300), 180_000, None)


def test_held_offsets_are_unknown_unless_the_log_was_read_to_their_end() -> None:
    assert held_offsets(hold()) == (100, 110)
    assert held_offsets(hold(truncated=True)) is None
    assert held_offsets(open_hold()) == (100, 110)
    assert held_offsets(open_hold(), lso=103, high_watermark=109) == (103, 109)
    assert held_offsets(open_hold(), lso=90, high_watermark=111) is None, "the log was not read that far"
    assert held_offsets(open_hold(log_end_offset=None)) is None
    assert held_offsets(open_hold(log_end_offset=None), high_watermark=109) is None
