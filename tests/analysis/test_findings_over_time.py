"""What becomes of findings over time: of samples, of a log and a recording, and once their end is known."""

import datetime as dt
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.analysis.build import (
    COMPLETE,
    NOW,
    ago,
    columns,
    first_batch,
    observation,
    only,
    partition,
    producer,
    transaction,
    twice,
)
from tests.analysis.logged import by_logs, diagnosed, diagnosed_sample, sample_diagnosis
from tests.stored import compare
from toolkit.analysis.diagnosis.decision import (
    ABORT,
    ALL_COMMITTED,
    COMMIT,
    NO_COMMIT,
    NOT_PROVEN,
    PROVEN,
    REFUTED,
    UNDECIDED,
    UNKNOWN,
    Decision,
    Outcome,
    decide_merged,
    recorded_claims,
)
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.observation import Coverage, Observation
from toolkit.analysis.findings_over_time import (
    close_by_log,
    close_by_observation,
    first_seen,
    late_transactions,
    merge_findings,
    observation_times,
    over_time,
    without_short,
    without_stale,
)
from toolkit.schema import FINDINGS, LATE_TRANSACTIONS, OBSERVATION_TIMES, RECORDED, Row
from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.log import LogTransaction
from toolkit.schema.recorded import LateTransaction, RecordedSample
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict

INTERVAL_S = 10  # seconds


def due(number: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=INTERVAL_S * number)


def sample(number: int, error: str | None = None, *, topic_gaps: Any = ()) -> RecordedSample:
    return RecordedSample(
        sampled_at=due(number),
        observed_at=due(number),
        interval_ms=INTERVAL_S * 1000,
        topic_gaps=tuple(topic_gaps),
        error=error,
    )


def finding(number: int, verdict: str = "hanging", **fields: Any) -> Row:
    return {
        **dict.fromkeys(FINDINGS.names),
        "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 7, "producer_epoch": 0, "start_offset":
        100, "verdict": verdict, "reason": f"It is, sample {number}.", "remedy": "Do what is right.", "missing": [],
        "evidence": [], "sampled_at": due(number), "observed_at": due(number) + dt.timedelta(seconds=1),
        "brokers_time": due(number) + dt.timedelta(seconds=1), **fields,
    }  # fmt: skip


def recorded_findings(*rows: Row, samples: Any = range(10)) -> list[Finding]:
    """Findings of these samples, which are numbers or records."""
    times = observation_times(sample(each) if isinstance(each, int) else each for each in samples)
    found = over_time(RECORDED["findings"].arrow(rows), times)
    FINDINGS.arrow(each.row() for each in found)
    return found


def entries(row: Finding) -> list[tuple[str | None, str | None]]:
    return [(entry.name, entry.value) for entry in row.evidence]


PARTITION_ROW = {"producer_id": None, "producer_epoch": None, "start_offset": None, "queue_position": None}
FAILED = [sample(number, "TIMED_OUT: nobody answered.") for number in (3, 4)]
UNREAD_ROW: dict[str, Any] = {**PARTITION_ROW, "verdict": "unknown", "error": "NOT_LEADER: moved."}
GAP = "DESCRIBE on Topic '*' for this principal"
HIDDEN = [0, 1, 2, *(sample(number, topic_gaps=[GAP]) for number in (3, 4))]
OTHER_THERE: dict[str, Any] = {"producer_id": 8, "start_offset": 200}
OVER_TIME: dict[str, tuple[list[Row], Any]] = {  # findings, and the samples: ten by default
    "it is held since before": ([finding(3), finding(4, held_from=due(1)), finding(5)], range(10)),
    "it ended before the next sample": ([finding(3), finding(4, "ending", held_to=due(4))], range(10)),
    "it is held from later than seen": ([finding(9, held_from=due(20))], range(10)),
    "failed samples end nothing": ([finding(2), finding(5)], [0, 1, 2, *FAILED, 5, 6]),
    "failed samples at the end": ([finding(2)], [0, 1, 2, *FAILED]),
    "one failed sample": ([finding(2)], [0, 1, 2, FAILED[0]]),
    "a sample that could not read the partition": ([finding(2), finding(3, **UNREAD_ROW), finding(4)], range(10)),
    "and does not have it afterwards": ([finding(2), finding(3, **UNREAD_ROW)], range(10)),
    "it recurs": ([finding(2), finding(5)], range(10)),
    # Once the new epoch has written, brokers report only that epoch, with the old start offset.
    "a superseding epoch does not end it": ([finding(8), finding(9, "ongoing", producer_epoch=1)], range(10)),
    "a clear partition": ([finding(2, "clear", **PARTITION_ROW)], range(10)),
    "what has written nothing holds nothing": (
        [finding(2, "ongoing", start_offset=None, queue_position=None)], range(10)),
    "what waits for replicas": ([finding(2, "unreplicated", **PARTITION_ROW)], range(10)),
    "an unfinished sample does not count": ([finding(3)], [0, 1, 2]),
    # A report must not call a transaction hanging that was ended before it was written.
    "it is missing from a later sample": ([finding(2), finding(3, outcome="undecided", action="abort")], range(10)),
    "it is in the last one": ([finding(8), finding(9)], range(10)),
    "another row of the partition: it was read": ([finding(2), finding(3, "unreplicated", **PARTITION_ROW)], range(10)),
    "topics may be hidden, so it may be open": ([finding(2)], HIDDEN),
    "another finding of its partition: it was read": ([finding(2), finding(3, **OTHER_THERE)], HIDDEN),
    # It was open for ever, with its verdict of then: it was not followed beyond the sample that may have hidden it.
    "all is seen again": ([finding(2)], [*HIDDEN, 5, 6]),
    "all is seen again, and another one there": ([finding(2), finding(6, **OTHER_THERE)], [*HIDDEN, 5, 6]),
    "it is seen again": ([finding(2), finding(6)], [*HIDDEN, 6, 7]),
    "its partition could not be read then": ([finding(2), finding(5, **UNREAD_ROW)], [*HIDDEN, 5, 6]),
}  # fmt: skip


def test_findings_over_time() -> None:
    lines = []
    for name, (rows, samples) in OVER_TIME.items():
        lines += [f"# {name}", *columns(recorded_findings(*rows, samples=samples))]
    compare("findings_over_time.txt", lines)


def test_samples_are_read_in_order() -> None:
    times = observation_times([sample(2), sample(1, "DOWN: all."), sample(0), sample(9)])
    OBSERVATION_TIMES.arrow(each.row() for each in times)
    assert [(row.sampled_at, row.next_sampled_at) for row in times] == [
        (due(0), due(2)),
        (due(2), due(9)),
        (due(9), None),
    ]
    assert [row.missed is None for row in times] == [False, False, True]
    assert observation_times([]) == observation_times([sample(1, "DOWN: all.")]) == []


# Merged with the findings of a log


def log_finding(**fields: Any) -> Finding:
    row = {name: value for name, value in finding(0).items() if name != "sampled_at"}
    times = {"held_from": due(1), "held_to": due(6), "held_ms": 50_000}
    ended = {"verdict": "ended", "reason": "It ended.", "remedy": "None: it has ended.", "queue_position": None}
    clock = {"brokers_time": fields["observed_at"]} if "observed_at" in fields else {}
    return Finding.of({**row, **ended, **times, **clock, **fields})


def claims(no_commit: str, all_committed: str = "refuted") -> list[Any]:
    values = {NO_COMMIT: f"no commit includes offset 100: {no_commit}", ALL_COMMITTED: f"a commit: {all_committed}"}
    return [{"source": "claims", "name": name, "value": value} for name, value in values.items()]


HANGS = {"verdict": "hanging", "outcome": "undecided", "action": "abort"}
STUCK = {"verdict": "stuck_ending", "outcome": "commit", "action": "complete"}
UNKNOWN_YET = {"verdict": "unknown", "outcome": "unknown", "missing": ["an answer"]}
IN_PART, PERHAPS = ({**UNKNOWN_YET, "evidence": claims(*each)} for each in (("refuted",), ("not proven", "not proven")))
MERGED: dict[str, tuple[Row, float, Row, str]] = {  # by the log, and when that was; as of sample 9; the verdict of both
    "a sample proves the commit since": (HANGS, 1, STUCK, "stuck_ending"),
    "a sample proved the commit before": (HANGS, 20, STUCK, "unknown"),
    "an abort and a commit": ({**HANGS, "outcome": "abort"}, 1, STUCK, "unknown"),
    "the log proves the commit since": (STUCK, 20, HANGS, "stuck_ending"),
    # A record was never added, and recorded as hanging. Then its producer committed others here, in the same epoch, and
    # the marker was lost: the report told to abort them all.
    "a commit includes a part, in the log": (IN_PART, 20, HANGS, "unknown"),
    "in a sample": (HANGS, 20, IN_PART, "unknown"),
    "a commit was likely in the log before": (PERHAPS, 1, HANGS, "hanging"),
    "is likely in a sample since": (HANGS, 1, PERHAPS, "unknown"),
    # A commit lost its marker here; then a record that was never added joined it. A report told to complete both.
    "a commit, of which the log has a part": (IN_PART, 1, STUCK, "unknown"),
    "of which a sample has a part": (STUCK, 20, IN_PART, "unknown"),
    # Its coordinator does not answer now; of the last sample of yesterday it was said to be within its timeout.
    "it was live in a sample since": (UNKNOWN_YET, 1, {"verdict": "ongoing"}, "ongoing"),
    "it was live in a sample before": (UNKNOWN_YET, 20, {"verdict": "ongoing"}, "unknown"),
    # Versions that did not record the outcome called committed records hanging.
    "hanging without an outcome": (UNKNOWN_YET, 1, {"verdict": "hanging"}, "unknown"),
    "overdue without an outcome": (UNKNOWN_YET, 1, {"verdict": "overdue"}, "overdue"),
    # One that lived while the log was copied, and hung in the newest sample, was healthy in the report.
    "it hangs since the copy": ({"verdict": "ongoing", "outcome": "undecided"}, 1, HANGS, "hanging"),
    "unknown since the copy": ({"verdict": "ongoing", "outcome": "undecided"}, 1, UNKNOWN_YET, "unknown"),
    "only files show a prepared one": (
        {"verdict": "prepared", "outcome": "undecided"}, 1, {"verdict": "ongoing", "outcome": "undecided"}, "prepared"
    ),
    # Batches of a newer epoch joined it since it was recorded as hanging, and perhaps a commit with them.
    "a newer epoch in the log": ({**UNKNOWN_YET, "producer_epoch": 1}, 20, HANGS, "unknown"),
    # The recorder, whose clock is ahead, knew no brokers' time: a sample from before the copy ended what is open.
    **{
        f"clocks of two machines tell no order: {name}": (log, 1, {"brokers_time": None, **sampled}, verdict)
        for name, log, sampled, verdict in (
            ("it has ended by sample 2", HANGS, {"number": 2}, "unknown"),
            ("a commit", HANGS, {**STUCK, "verdict": "hanging"}, "unknown"),
            ("unknown and live", UNKNOWN_YET, {"verdict": "ongoing"}, "unknown"),
            ("of two epochs", {"verdict": "ongoing", "producer_epoch": 1}, {"verdict": "overdue"}, "ongoing"),
            ("overdue", {"verdict": "ongoing"}, {"verdict": "overdue"}, "overdue"),
            ("live", HANGS, {"verdict": "ongoing"}, "hanging"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MERGED)
def test_neither_of_two_looks_is_trusted_with_what_the_other_denies(name: str) -> None:
    log, seconds, sampled, verdict = MERGED[name]
    of_log = log_finding(**log, observed_at=due(seconds), held_to=None)
    row = only(merge_findings([of_log], recorded_findings(finding(**{"number": 9, **sampled}))))
    assert (row.verdict, row.action) == (verdict, {"hanging": "abort", "stuck_ending": "complete"}.get(verdict))
    assert row.outcome == "unknown" or verdict != "unknown"


NO, ALL = "no commit includes", "a commit includes"
STATES: dict[str, tuple[Verdict, str | None, str | None, tuple[str, str]]] = {
    "hanging": (Verdict.HANGING, UNDECIDED, "abort", (PROVEN, REFUTED)),
    "hanging after an abort": (Verdict.HANGING, ABORT, "abort", (PROVEN, REFUTED)),
    "hanging after a commit": (Verdict.HANGING, COMMIT, "complete", (REFUTED, PROVEN)),
    "unknown": (Verdict.UNKNOWN, UNKNOWN, None, (NOT_PROVEN, REFUTED)),
    "perhaps committed": (Verdict.UNKNOWN, UNKNOWN, None, (NOT_PROVEN, NOT_PROVEN)),
    "committed in part": (Verdict.UNKNOWN, UNKNOWN, None, (REFUTED, REFUTED)),
    "committed, perhaps all": (Verdict.UNKNOWN, UNKNOWN, None, (REFUTED, NOT_PROVEN)),
    "to abort": (Verdict.STUCK_ENDING, ABORT, "complete", (PROVEN, REFUTED)),
    "to commit": (Verdict.STUCK_ENDING, COMMIT, "complete", (REFUTED, PROVEN)),
    "overdue": (Verdict.OVERDUE, UNDECIDED, "fence", (PROVEN, REFUTED)),
    "prepared": (Verdict.PREPARED, UNDECIDED, "commit", (PROVEN, REFUTED)),
    "ongoing": (Verdict.ONGOING, UNDECIDED, None, (PROVEN, REFUTED)),
    "ending": (Verdict.ENDING, COMMIT, None, (REFUTED, PROVEN)),
    "ended": (Verdict.ENDED, None, None, (NOT_PROVEN, REFUTED)),
}
"""What a source may show of a transaction: verdict, outcome, action, and the claims: no commit, all committed."""


def look(state: str, *, epoch: int, seconds: float | None, offsets: str) -> Finding:
    verdict, outcome, action, (no_commit, all_committed) = STATES[state]
    values = {NO_COMMIT: f"{NO} {offsets}: {no_commit}", ALL_COMMITTED: f"{ALL} {offsets}: {all_committed}"}
    claimed = [{"source": "claims", "name": name, "value": value} for name, value in values.items()]
    time = None if seconds is None else due(seconds)
    return log_finding(
        verdict=verdict, outcome=outcome, action=action, reason=f"{state}, {offsets}",
        missing=["one decision"] if verdict is Verdict.UNKNOWN else [], evidence=claimed if outcome else [],
        producer_epoch=epoch, brokers_time=time, held_to=None,
    )  # fmt: skip


@pytest.mark.parametrize("epochs", [(0, 0), (0, 1), (1, 0)], ids=["one epoch", "log older", "log newer"])
@pytest.mark.parametrize("times", [(1, 0), (0, 1), (1, 1), (None, 1), (1, None)], ids=str)
def test_of_any_two_looks_at_a_transaction_none_is_trusted_with_what_the_other_denies(times: Any, epochs: Any) -> None:
    """The decision on two looks had ten rules, each of which had been a fault: here is every pair of them."""
    order = (epochs[0] > epochs[1]) - (epochs[0] < epochs[1])
    if None not in times and not order:
        order = (times[0] > times[1]) - (times[0] < times[1])
    more = "offsets 100 to 104 of orders-0"
    for of_log, of_recording, joined in itertools.product(STATES, STATES, (False, True)):
        looks = look(of_log, epoch=epochs[0], seconds=times[0], offsets=more if joined else "offset 100 of orders-0"), \
            look(of_recording, epoch=epochs[1], seconds=times[1], offsets="offset 100 of orders-0")  # fmt: skip
        log, recorded = looks
        decided = decide_merged(log, recorded)
        context = f"{of_log}, {of_recording} {order} {joined}: {decided}"
        if decided not in (Decision.of(log), Decision.of(recorded)):
            assert (decided.verdict, decided.action, len(decided.missing)) == (Verdict.UNKNOWN, None, 1), context
            assert Verdict.ENDED in (log.verdict, recorded.verdict) or COMMIT in (log.outcome, recorded.outcome), (
                context
            )
            continue
        if Verdict.ENDED in (log.verdict, recorded.verdict):
            assert log.verdict is Verdict.ENDED or decided.verdict is Verdict.ENDED, context
            assert log.verdict is Verdict.ENDED or (None not in times and times[0] <= times[1]), context
            continue
        is_log = decided == Decision.of(log)
        chosen, other = looks if is_log else reversed(looks)
        may_be_later = (order <= 0) if is_log else (order >= 0)  # the other look
        claims = recorded_claims(other)
        if chosen.outcome in (UNDECIDED, ABORT) and chosen.verdict is not other.verdict:
            assert claims[NO_COMMIT].status != REFUTED or (other.outcome == COMMIT and not may_be_later), context
            assert claims[ALL_COMMITTED].status != NOT_PROVEN or not may_be_later, context
        if chosen.outcome == COMMIT:
            assert other.outcome != ABORT, context
            assert other.outcome != UNDECIDED or not may_be_later, context
            assert not other.reason.startswith("committed in part"), context
        if other.verdict is Verdict.UNKNOWN and chosen.verdict is not Verdict.UNKNOWN and may_be_later:
            assert epochs[0] == epochs[1], f"what joined it is not known: {context}"
            assert not joined, f"what joined it is not known: {context}"
            assert not chosen.verdict.is_healthy, f"no all-clear for what is not known: {context}"
        elif chosen.verdict.is_healthy and not other.verdict.is_healthy:
            assert not may_be_later, f"an all-clear of before: {context}"
        is_known = Verdict.UNKNOWN not in (log.verdict, recorded.verdict) and (of_log != of_recording or joined)
        if order and is_known and (log.verdict is not Verdict.PREPARED or epochs[0] != epochs[1]):
            assert is_log is (order > 0), f"the later look decides: {context}"
        if Verdict.PREPARED not in (log.verdict, recorded.verdict):  # which only files show of Flink
            assert decide_merged(recorded, log).verdict == decided.verdict, context


def log_transaction(**fields: Any) -> LogTransaction:
    row: Row = {
        "topic": "orders", "partition": 0, "producer_id": 7, "first_offset": 100, "marker_offset": 110,
        "marker": "ABORT", "end": due(6), **fields,
    }  # fmt: skip
    return LogTransaction.of(row)


# Closing by a later observation.


def test_a_partition_without_producer_state_is_not_read() -> None:
    """Its offsets may have arrived anyway: then the finding names what is missing, and has no error."""
    denied = "TOPIC_AUTHORIZATION_FAILED: no."
    partition_row = partition(lso=100, observed_at=NOW)
    hanging = observation(
        transaction(8, state="Empty", on=()), partitions=[partition_row], producers=[producer(8, observed_at=NOW)]
    )
    unread = observation(partitions=[partition_row], producers=[producer(start=None, error=denied, producer_id=None)])
    observations = [
        replace(each, observed_at=due(number)) for number, each in enumerate((hanging, hanging, unread, unread))
    ]
    rows = [
        {**row.row(), "sampled_at": due(number)}
        for number in range(1, 4)
        for row in diagnosed_sample(observations[number], observations[number - 1])
    ]
    assert [(row["verdict"], row["error"]) for row in rows if row["sampled_at"] == due(3)] == [("unknown", None)]
    times = observation_times(sample(number) for number in range(4))
    row, of_partition = over_time(RECORDED["findings"].arrow(rows), times)
    assert (row.verdict, row.outcome, row.held_to) == ("hanging", "undecided", None)
    assert (
        "missed",
        "the sample of 2026-11-21 12:00:20 UTC could not read the partition (TOPIC_AUTHORIZATION_FAILED)",
    ) in (entries(row))
    assert of_partition.verdict == "unknown"


def current(*rows: Row, at: float = 20) -> list[Finding]:
    return [Finding.of({**row, "observed_at": due(at)}) for row in rows or [finding(0, "clear", **PARTITION_ROW)]]


@pytest.mark.parametrize(
    "later",
    [
        [],
        current(finding(0)),
        current(finding(0, "ongoing", producer_epoch=1)),
        current(finding(0, "unknown", error="NOT_LEADER: moved.", **PARTITION_ROW)),
        current(finding(0, "unknown", missing=["an answer"], **PARTITION_ROW)),
        current(finding(0, "clear", **{**PARTITION_ROW, "partition": 1})),
        current(at=3),
        current(at=9.1),  # the time of the finding
    ],
)
def test_an_observation_without_proof_of_an_end_ends_no_finding(later: list[Finding]) -> None:
    recorded = recorded_findings(finding(8), finding(9))
    assert close_by_observation(recorded, later) == recorded


OPEN: Row = {"verdict": "hanging", "held_to": None}
UNKNOWN_TO_LOG: Row = {"verdict": "unknown", "outcome": "unknown", "held_to": None}
COMMITTED: Row = {"verdict": "stuck_ending", "outcome": "commit", "action": "complete"}
UNDECIDED_YET: Row = {"outcome": "undecided", "action": "abort", "queue_position": 1}


def merged(log: Row, *recorded: Row) -> list[Finding]:
    return merge_findings([log_finding(**log)], recorded_findings(*recorded))


def merged_twice() -> list[Finding]:
    hanging = finding(9, outcome="undecided", action="abort", evidence=claims("proven"))
    return merge_findings(
        merged({**IN_PART, "observed_at": due(1), "held_to": None}, hanging), recorded_findings(hanging)
    )


def of_several(*numbers: int) -> list[Finding]:
    """Of a log that knows nothing, and findings of two moments."""
    found = {number: replace(only(recorded_findings(finding(9, "ongoing", reason=f"It is at {number}."))),
                             observed_at=due(8 + number)) for number in numbers}  # fmt: skip
    return merge_findings([log_finding(**UNKNOWN_TO_LOG)], found.values())


def closed(fields: Row, *rows: Row) -> list[Finding]:
    """By the end of the transaction in a log."""
    return close_by_log(recorded_findings(*(rows or [finding(8), finding(9)])), [log_transaction(**fields)])


JOINED: dict[str, tuple[str, Callable[[], list[Finding]]]] = {  # the verdicts, and how they come about
    "the log gives the times and the recording the verdict": ("ended", lambda: merged(
        {}, finding(2, transactional_id="payments", cause="late-after-commit", high_watermark=5))),
    # A deposed leader's log, or a backup, has a marker that the leader lost: what hung now was said to have ended.
    **{
        f"what is open {after} s after its marker, {name}": (verdict, partial(made, finding(
            9, **UNDECIDED_YET, brokers_time=due(6) + dt.timedelta(seconds=after))))
        for name, made in (("merged", partial(merged, {})), ("closed", partial(closed, {"end": due(6)})))
        for after, verdict in ((4, "ended"), (10, "unknown"))
    },
    "the recording supplies the verdict that a log lacks": ("hanging", lambda: merged(
        {"verdict": "unknown", "missing": ["an answer"], "held_to": None, "held_ms": 90_000},
        finding(9, high_watermark=5, outcome="undecided", action="abort"))),
    "and the start that it lacks": ("ended", lambda: merged({"held_from": None, "held_ms": None}, finding(2))),
    "of two sources that prove the same commit the newer counts": ("stuck_ending", lambda: merged(
        {**COMMITTED, "reason": "By the log.", "observed_at": due(20), "held_to": None}, finding(9, **COMMITTED))),
    # Of a log and two recordings, the claims of the first recording were taken for the log's.
    "the claims of a merged finding are those of its decision": ("unknown", merged_twice),
    **{
        f"of only one source: another {name}": ("ended, ended", partial(merged, {}, {**finding(2), name: value}))
        for name, value in (("start_offset", 101), ("producer_id", 8), ("partition", 1))
    },
    "a partition of only one source": (
        "ended, unreplicated", lambda: merged({}, finding(2, "unreplicated", **PARTITION_ROW))),
    "several epochs are one row with the last verdict": (
        "ended", lambda: merged({}, finding(2), finding(3, "ongoing", producer_epoch=1))),
    "a later read of the log reopens what a sample no longer had": (
        "unknown", lambda: merged({**UNKNOWN_TO_LOG, "observed_at": due(20), "held_ms": 190_000}, finding(2))),
    "of several recorded findings the last one counts": ("ongoing", lambda: of_several(1, 2)),
    "in any order of these": ("ongoing", lambda: of_several(2, 1)),
    "an observation after the log ends its open transaction": ("ended", lambda: merged(
        {**OPEN, "queue_position": 1, "held_ms": 90_000, "observed_at": due(3)}, finding(2), finding(3))),
    "an earlier one does not": ("unknown", lambda: merged(
        {**OPEN, "queue_position": 1, "observed_at": due(9)}, finding(2), finding(3))),
    # A look at the cluster replaced it by its own time; the samples of a recording kept it.
    "a later sample keeps the time of a marker that was read": ("ended", lambda: close_by_observation(
        recorded_findings(finding(8), finding(9, "ending", held_to=due(9))), current())),
    "a sample that has an undecided transaction has read its partition": ("ended", lambda: close_by_observation(
        recorded_findings(finding(9)), current(finding(0, "unknown", producer_id=8, start_offset=200)))),
    "only transactions end": ("unreplicated", lambda: close_by_observation(
        recorded_findings(finding(9, "unreplicated", **PARTITION_ROW)), current(finding(0)))),
    "a marker in a log ends it": ("ended", lambda: closed({"end": due(10)})),
    "it is ended once": ("ended", lambda: close_by_log(closed({"end": due(10)}), [log_transaction()])),
    "a marker without a time ends it at an unknown time": ("ended", lambda: closed({"end": None}, finding(9))),
}  # fmt: skip


def test_findings_of_several_sources() -> None:
    lines = []
    for name, (verdicts, join) in JOINED.items():
        found = join()
        FINDINGS.arrow(each.row() for each in found)
        assert ", ".join(sorted(each.verdict for each in found)) == verdicts, name
        lines += [f"# {name}", *columns(found)]
    compare("joined_findings.txt", lines)


@pytest.mark.parametrize(
    "fields", [{"marker_offset": None}, {"first_offset": 101}, {"producer_id": 8}, {"partition": 1}]
)
def test_the_end_of_another_transaction_ends_no_finding(fields: Any) -> None:
    assert closed(fields) == recorded_findings(finding(8), finding(9))


# Which findings are reported.


def test_ended_healthy_transactions_are_reported_only_after_long_holds() -> None:
    short = recorded_findings(finding(2, "ongoing"))
    assert without_short(short, min_held_ms=60_000) == []
    assert without_short(short, min_held_ms=10_000) == short
    second_in_queue = recorded_findings(finding(2, "ongoing", queue_position=2))
    assert without_short(second_in_queue, min_held_ms=10_000) == []
    was_hanging, open_rows = recorded_findings(finding(2), finding(3)), recorded_findings(finding(9, "ongoing"))
    for rows in (was_hanging, open_rows, [log_finding(held_ms=1)]):
        assert without_short(rows, min_held_ms=60_000) == rows


@pytest.mark.parametrize(
    ("verdict", "is_reported"),
    [("ongoing", False), ("long", False), ("ending", False), ("clear", False), ("overdue", True), ("prepared", True)],
)
def test_a_verdict_that_needs_no_action_is_healthy(verdict: str, is_reported: bool) -> None:
    assert bool(without_short(recorded_findings(finding(2, verdict)), min_held_ms=60_000)) == is_reported


def test_the_latest_sample_of_a_partition_wins() -> None:
    early, late = (recorded_findings(finding(number, "unknown", **PARTITION_ROW)) for number in (3, 9))
    assert without_stale(early, sampled_at=due(9)) == []
    assert without_stale(late, sampled_at=due(9)) == late
    assert without_stale(late, sampled_at=late[0].observed_at) == late
    assert without_stale(recorded_findings(finding(3)), sampled_at=due(9)) != []


HANGING = observation(transaction(state="Empty", on=()))


def earlier_sample(one: Observation, *, seconds: float = 10) -> Observation:
    return replace(one, observed_at=ago(seconds=seconds))


def test_two_samples_are_two_observations() -> None:
    assert diagnosed_sample(HANGING, earlier_sample(HANGING, seconds=5)) == diagnosed(twice(HANGING))
    assert only(diagnosed_sample(HANGING, earlier_sample(HANGING))).verdict == "hanging"


def test_a_transaction_in_only_one_sample_is_never_hanging() -> None:
    row = only(diagnosed_sample(HANGING))
    assert (row.verdict, row.cause) == ("unknown", None)
    assert row.missing == ("a second sample: it was seen in one only",)
    assert row.reason.startswith("Not proven to be hanging: coordinator 3:")


def test_a_new_partition_has_only_one_observation() -> None:
    new = [partition(), partition(number=1)]
    producers = [producer(), producer(9, partition=1)]
    rows = diagnosed_sample(
        observation(transaction(state="Empty", on=()), partitions=new, producers=producers), earlier_sample(HANGING)
    )
    assert [(row.partition, row.verdict) for row in rows] == [(0, "hanging"), (1, "unknown")]


def test_a_deleted_topic_holds_nothing() -> None:
    assert diagnosed_sample(observation(partitions=[], producers=[]), earlier_sample(HANGING)) == []


def test_missing_evidence_of_either_sample_is_missing() -> None:
    gap = earlier_sample(replace(HANGING, coverage=Coverage(brokers=(1, 2), gaps=("broker 3 did not answer",))))
    assert only(diagnosed_sample(HANGING, gap)).missing == ("broker 3 did not answer",)
    hidden_topics = replace(COMPLETE, topic_gaps=("DESCRIBE on all topics",))
    rows = diagnosed_sample(replace(HANGING, coverage=hidden_topics), earlier_sample(HANGING))
    assert [(row.topic, row.verdict) for row in rows] == [("orders", "hanging"), (None, "unknown")]
    rows = diagnosed_sample(
        observation(
            transaction(state="Empty", on=()), partitions=[partition(), partition("new")], coverage=hidden_topics
        ),
        earlier_sample(HANGING),
    )
    assert [row.topic for row in rows] == ["new", "orders", None], "reported once"
    for partitions, before in (([partition("new", hw=100)], earlier_sample(HANGING)), ([], None)):
        nothing_known = observation(partitions=partitions, producers=[], coverage=hidden_topics)
        assert [row.topic for row in diagnosed_sample(nothing_known, before)] == [None]


def test_requested_partitions_have_a_finding() -> None:
    idle = observation(producers=[], partitions=[partition(hw=100)])
    assert diagnosed_sample(idle) == []
    for earlier in (None, earlier_sample(idle)):
        assert only(diagnosed_sample(idle, earlier, requested=[TopicPartition("orders", 0)])).verdict == "clear"


def recorded_again(*recorded: Finding) -> Finding:
    """The finding of the sample, read again with what was recorded with it."""
    return only(sample_diagnosis(HANGING, earlier_sample(HANGING)).findings(recorded=recorded))


def test_cause_and_impact_are_read_from_the_recording() -> None:
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    recorded = replace(found, cause="late (late-after-commit)", records_held=7, groups_held=("g",), held_ms=12)
    assert recorded_again(recorded) == recorded
    unread = recorded_again()
    assert recorded_again(replace(recorded, start_offset=99)) == unread, "another transaction"
    assert recorded_again(replace(recorded, producer_epoch=1)) == unread


NOT_PROVEN_YET = "unknown unknown None"
OF_A_COMMIT = EvidenceEntry(name="outcome", value="commit: the transaction was committed")
RECORDED_AS: dict[str, tuple[str, dict[str, Any]]] = {  # what it is now, and what the hanging one was recorded as
    # The log of that time cannot be read again, and an older recorder did not read it.
    "hanging, without an outcome": (NOT_PROVEN_YET, {"outcome": None, "action": None}),
    "another transaction": (NOT_PROVEN_YET, {"start_offset": 99}),
    "a commit, which is never aborted": ("stuck_ending commit complete", {
        "verdict": Verdict.STUCK_ENDING, "outcome": "commit", "action": "complete", "evidence": (OF_A_COMMIT,)}),
    # An older recorder wrote so of committed records behind which a newer epoch had written.
    "a commit that could not be completed": (NOT_PROVEN_YET, {
        "verdict": Verdict.STUCK_ENDING, "outcome": "commit", "action": None, "evidence": (OF_A_COMMIT,)}),
    "ending": (NOT_PROVEN_YET, {"verdict": Verdict.ENDING, "outcome": None, "action": None}),
    "contradicted by the log": (NOT_PROVEN_YET, {
        "verdict": Verdict.UNKNOWN, "outcome": "unknown", "action": None, "reason": "It would be.",
        "missing": ("a log that agrees",)}),
}  # fmt: skip


def test_what_was_recorded_is_read_again() -> None:
    (hanging,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    lines = []
    for name, (expected, changed) in RECORDED_AS.items():
        row = recorded_again(replace(hanging, **changed))
        assert f"{row.verdict} {row.outcome} {row.action}" == expected, name
        assert "kafka-txn abort" not in row.remedy
        lines += [f"# {name}", *columns([row])]
    compare("recorded_findings.txt", lines)
    once = only(sample_diagnosis(HANGING).findings(recorded=[hanging]))
    assert once.missing == ("a second sample: it was seen in one only",), "hanging never overrides unknown"


def test_recorded_committed_records_below_a_live_transaction_are_not_undecided() -> None:
    """Its remedy was to wait, or to fence the id, which discards them."""
    live = observation(transaction(start_time=ago(minutes=20), timeout_ms=3_600_000))
    (found,) = sample_diagnosis(live).findings()
    recorded = replace(found, verdict=Verdict.ONGOING, outcome="commit", evidence=(OF_A_COMMIT,))
    row = only(sample_diagnosis(live).findings(recorded=[recorded]))
    assert (row.verdict, row.outcome, row.action) == ("ongoing", "commit", None)
    assert "Do not fence the id" in row.remedy


PARTLY = Outcome(
    name="unknown", reason="one", missing=("one decision",), offsets="offsets 4 to 9", is_partly_committed=True
)
LIKELY = Outcome(
    name="unknown", reason="a time", missing=("a time",), offsets="offset 4", commit_claim="they are older than it"
)
NOT_KNOWN = Outcome(name="unknown", reason="its log", missing=("its log",), offsets="offset 4")


@pytest.mark.parametrize("outcome", [PARTLY, LIKELY, NOT_KNOWN], ids=["committed in part", "likely", "not known"])
@pytest.mark.parametrize(
    "owner",
    [
        transaction(start_time=ago(minutes=20), timeout_ms=3_600_000),
        transaction(start_time=ago(minutes=2)),
        transaction(state="Empty", on=()),
    ],
    ids=["long", "overdue", "no owner"],
)
def test_a_finding_that_was_recorded_is_the_same_when_it_is_read(owner: Transaction, outcome: Outcome) -> None:
    one = observation(owner)
    diagnosis = sample_diagnosis(one, earlier_sample(one))
    recorded = only(diagnosis.findings(read=by_logs(diagnosis, replace(outcome, are_markers_sought=True))))
    again = only(diagnosis.findings(recorded=[recorded]))
    names = ("verdict", "outcome", "action", "missing", "cause")
    assert [getattr(again, name) for name in names] == [getattr(recorded, name) for name in names]
    # What is asserted is checked against the logs of the moment, not against the recording.
    for each in (recorded, again):
        assert "kafka-txn fence" not in each.remedy
        assert "kafka-txn abort" not in each.remedy


KEY = TransactionKey("orders", 0, 7, 100)


def late(one: Observation, *, first_seen_at: dt.datetime = NOW, **options: Any) -> list[LateTransaction]:
    rows = late_transactions(
        Diagnosis.of([one]).findings(), one, sampled_at=NOW, first_seen={KEY: first_seen_at}, **options
    )
    LATE_TRANSACTIONS.arrow(row.row() for row in rows)
    return rows


HALF_AN_HOUR: Any = {"first_seen_at": ago(minutes=30)}
BEHIND_OTHERS = observation(
    transaction(start_time=ago(minutes=1)),
    transaction(8, transactional_id="payments-8", start_time=ago(minutes=30)),
    partitions=[partition("a", error="LEADER_NOT_AVAILABLE: x", lso=None, hw=None), partition()],
    producers=[producer(), producer(8, start=120)],
)


def began(*, timeout_ms: int | None = 60_000, **duration: float) -> Observation:
    return observation(transaction(timeout_ms=timeout_ms, start_time=ago(**duration)))


def batch(time: dt.datetime | None, *owners: Transaction, **more: Any) -> Observation:
    return observation(*owners, first_batches=[first_batch(time=time, **more)])


LATE: dict[str, tuple[Observation, dict[str, Any]]] = {
    "by its own timeout and the padding": (began(minutes=6, seconds=6), {}),
    "not yet": (began(minutes=6, seconds=5), {}),
    "it may be open for an hour": (began(timeout_ms=3_600_000, minutes=50), {}),
    "within the default padding": (began(minutes=2), {}),
    "without padding": (began(minutes=2), {"padding_ms": 0}),
    "without an owner, past the longest timeout": (batch(ago(minutes=21), log_append_time=True), {}),
    "without an owner, within it": (batch(ago(minutes=19)), {}),
    "the longest timeout is an hour": (batch(ago(minutes=21)), {"longest_timeout_ms": 3_600_000}),
    "superseded, by the timeout of its id": (batch(ago(minutes=7), transaction(state="Empty", on=())), {}),
    "its first batch has no time": (batch(None), HALF_AN_HOUR),
    "the clock of its producer is ahead": (batch(NOW + dt.timedelta(minutes=50)), HALF_AN_HOUR),
    "no time, and seen for 3 min": (batch(None), {"first_seen_at": ago(minutes=3)}),
    # The coordinator listed the id and did not describe it.
    "an unknown timeout is the longest one": (began(timeout_ms=None, minutes=21), {}),
    "behind others": (BEHIND_OTHERS, {}),
    "two-phase commit has no timeout": (began(timeout_ms=2**31 - 1, days=60), {}),
    "nothing is open: unreplicated": (observation(producers=[producer(start=None)]), {}),
    "nothing was read": (
        observation(producers=[], partitions=[partition(error="LEADER_NOT_AVAILABLE: x", lso=None, hw=None)]), {}),
    "it has not written to this partition yet": (
        observation(transaction(start_time=ago(days=1)), producers=[], partitions=[partition(hw=100)]), {}),
}  # fmt: skip


def test_which_transactions_are_late() -> None:
    lines = [f"{name}: {[each.row() for each in late(one, **options)]}" for name, (one, options) in LATE.items()]
    compare("late_transactions.txt", lines)
    one = batch(None)
    assert late_transactions(Diagnosis.of([one]).findings(), one, sampled_at=NOW, first_seen={}, padding_ms=0) == [], (
        "it is seen for the first time"
    )


def test_the_first_sample_is_kept_while_the_transaction_is_open() -> None:
    before = first_seen(observation(at=ago(seconds=10)), {})
    assert before == {KEY: ago(seconds=10)}
    assert first_seen(observation(), before) == before
    other = observation(producers=[producer(start=140)])
    assert first_seen(other, before) == {("orders", 0, 7, 140): NOW}
    unread = observation(producers=[producer(None, start=None, error="NETWORK_EXCEPTION: gone")])  # type: ignore[arg-type]
    assert first_seen(unread, before) == before, "it may still be open"
    assert first_seen(observation(producers=[], partitions=[]), before) == {}, "the topic was deleted"
    hidden = replace(COMPLETE, topic_gaps=("DESCRIBE on Topic '*'",))
    assert first_seen(observation(producers=[], partitions=[], coverage=hidden), before) == before, "or is hidden"
    assert first_seen(observation(producers=[producer(start=None)]), before) == {}, "it has ended"
