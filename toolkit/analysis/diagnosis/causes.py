"""Root causes of a held transaction, as far as the log shows them; and the rest of an explanation: time and impact.

They change no decision. With transaction version 1 a late batch has the same bytes as the first batch of a healthy
producer's next transaction. So causes that require that no coordinator owns the transaction apply to `hanging` findings
only.

Markers and batches under LogAppendTime have the time of the partition's leader; other batches have their producer's.
"""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from toolkit.analysis.cluster_events import LEADER_EVENTS, UNCLEAN
from toolkit.analysis.diagnosis.evidence_text import at, event_entry, record_entry
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ProducerBatches
from toolkit.analysis.exposure import may_affect
from toolkit.analysis.log.log_transactions import (
    OPEN,
    LogTransactions,
    amounts,
    begin,
    finish,
    lso_steps,
    partial_transactions,
    records_inside,
)
from toolkit.analysis.log.offset_status import COMMITTED, NON_TRANSACTIONAL, LogSlice, batch_statuses
from toolkit.analysis.log.offset_status import OPEN as OPEN_RECORDS
from toolkit.formats.batches import CONTROL
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import COMMIT, Headers
from toolkit.schema import utc
from toolkit.schema.durations import CLOCKS_DIFFER, elapsed_ms
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.log import FROM_BROKER_LOG, ClusterEvent
from toolkit.schema.table import Error, TransactionKey
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


FLINK_ID = re.compile(r".+-\d+-\d+")  # prefix, subtask, checkpoint
RANDOM_ID = re.compile(r".*[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}.*", re.IGNORECASE)
FLINK_TIMEOUT_MS = 3_600_000  # KafkaSink
SKIPPED = "a coordinator from 4.3.0 on skips the marker of a partition that has no leader (KAFKA-20734)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a transaction is held, or one indication of it."""

    text: str
    names: tuple[str, ...] = ()  # keys of `CAUSES`, the deciding one first; empty if it has no name, or none was found
    evidence: tuple[EvidenceEntry, ...] = ()  # the batches and records that prove it


def cause(case: Case, checks: Sequence[CauseCheck]) -> Cause | None:
    """The root cause of a held transaction, as far as the log shows it.

    Null if there is nothing to explain. A transaction that no coordinator will end always has one: if no cause was
    found, it states what was read.
    `checks`: `DISOWNED` for a transaction that no coordinator will end, else some of `CHECKS`.
    """
    found = cause_of([found for check in checks if (found := check(case)) is not None])
    return Cause(text=_no_cause_found(case)) if found is None and checks is DISOWNED else found


def cause_of(indications: Sequence[Cause]) -> Cause | None:
    """The cause that these indications show together, with its names in its text; null if there are none."""
    if not indications:
        return None
    names = tuple(dict.fromkeys(name for each in indications for name in each.names))
    return Cause(
        text="; ".join(each.text for each in indications) + (f" ({', '.join(names)})" if names else ""),
        names=names,
        evidence=tuple(entry for each in indications for entry in each.evidence),
    )


def _head_deleted(case: Case) -> Cause | None:
    start, log_start = case.start, case.leader.log_start_offset
    if start is None or log_start is None or start >= log_start:
        return None
    text = (
        f"its head is deleted: it begins at {start}, and the log starts at {log_start} now; deleting records ends no "
        "transaction"
    )
    return Cause(text=text, names=("head-deleted",))


def _mixed_epochs(case: Case) -> Cause | None:
    if case.opening is None:
        return None
    batches = case.opening.open_data
    later = batches[batches["producer_epoch"] > case.opening_epoch]
    if not len(later):
        return None
    text = (
        f"mixed epochs in one transaction: epoch {case.opening_epoch}, which is dead, opened it, and epoch "
        f"{later['producer_epoch'][0]} writes into it from offset {later['base_offset'][0]} on"
    )
    evidence = (case.opening.entry("first_batch", batches), case.opening.entry("first_of_new_epoch", later))
    return Cause(text=text, evidence=evidence)


def _no_owner(case: Case) -> Cause | None:
    if case.owner:
        return None
    for history in case.id_histories:
        name, last = history.transactional_id, history.records[-1]
        if last.tombstone:
            text = f'its id "{name}" has expired: {STATE_TOPIC}-{last.txn_state_partition} has its tombstone'
        elif case.producer_id in (last.producer_id, last.next_producer_id):
            continue
        else:
            text = f'its id "{name}" now has producer id {last.producer_id}'
        return Cause(text=text, names=("no-owner",), evidence=(record_entry(last),))
    return Cause(text="no owner: its id has expired or moved on to another producer id", names=("no-owner",))


def _superseded(case: Case) -> Cause | None:
    if case.owner_epoch <= case.opening_epoch or case.outcome.is_decided:
        return None
    name, epoch = case.transactional_id, case.owner_epoch
    return Cause(text=f'superseded epoch: "{name}" is at epoch {epoch}, this transaction at {case.opening_epoch}')


def _late(case: Case) -> Cause | None:
    if case.outcome.is_decided:
        return None
    if not case.is_late or case.opening is None:
        return None
    producer_batches = case.opening
    committed = int(producer_batches.marker_before["marker"][0]) == COMMIT
    text = (
        f"a batch of the same producer came after the {'COMMIT' if committed else 'ABORT'} marker at offset "
        f"{producer_batches.marker_before['base_offset'][0]}"
    )
    if producer_batches.sequence_follows:
        text += f", with the next sequence number ({producer_batches.first_batch['base_sequence'][0]})"
    text += ": late, or sent again" if committed else ": in flight, or sent again, when the marker overtook it"
    evidence = (
        *(
            (producer_batches.entry("batch_before", producer_batches.data_before),)
            if len(producer_batches.data_before)
            else ()
        ),
        producer_batches.entry("marker_before", producer_batches.marker_before),
        producer_batches.entry("first_batch", producer_batches.first_batch),
        *map(record_entry, case.records[-1:]),
    )
    return Cause(text=text, names=("late-after-commit" if committed else "late-after-abort",), evidence=evidence)


def _torn(case: Case) -> Cause | None:
    """A hint: the late batch may be the rest of a transaction that a delayed EndTxn ended, as nothing in it says whose.

    It needs transaction version 1: with version 2, EndTxn has the epoch of its transaction. Seen on Kafka by Jepsen
    (Bufstream 0.1.0, 2024).
    """
    producer_batches = case.opening
    if producer_batches is None or not case.is_late or not producer_batches.sequence_follows:
        return None
    if case.outcome.is_decided:
        return None
    if int(producer_batches.marker_before["marker"][0]) != COMMIT:
        return None
    last = case.records[-1] if case.records else None
    if last is not None and (last.client_transaction_version or 0) >= 2:
        return None
    text = "a hint: an EndTxn that was delayed may have committed the first half of the same transaction"
    return Cause(text=text, names=("torn-transaction",))


def _never_added(case: Case) -> Cause | None:
    if case.outcome.is_decided:  # it was added to the transaction that was ended; a later one is open elsewhere
        return None
    records = case.of_epoch
    if case.was_never_added:
        text = (
            f"written but never added: the coordinator wrote {len(records)} record{'' if len(records) == 1 else 's'} "
            f"of producer {case.producer_id} epoch {case.opening_epoch}, and none includes {case.tp}"
        )
    elif case.is_late or case.opening_epoch != case.owner_epoch:
        return None
    elif case.state == "Empty":
        text = "written but never added: no transaction of this epoch has begun"
    elif case.state == "Ongoing" and not case.listed:
        text = "written but not added to the transaction that is open elsewhere"
    else:
        return None
    return Cause(text=text, names=("never-added",), evidence=(*_first_batch(case), *map(record_entry, records[-3:])))


def _marker_lost(case: Case) -> Cause | None:
    if not case.outcome.is_decided:
        return None
    text = f"its marker is lost: {case.outcome.reason}"
    evidence = _first_batch(case)
    for names, why in (_by_lines(case), _by_leaders(case), _compacted(case), _led_by_another(case), _refused(case)):
        if why:
            return Cause(text=f"{text}; {why}", names=names, evidence=evidence)
    return Cause(text=f"{text}; what was read does not show why", names=("marker-lost",), evidence=evidence)


def _may_be_skipped(case: Case) -> bool:
    """Whether the coordinators are of a release that skips markers, or may be."""
    return may_affect("KAFKA-20734", case.observation.coverage.releases)


Reason = tuple[tuple[str, ...], str]
"""Cause names, and why; the text is empty if there is no such reason."""


def _by_lines(case: Case) -> Reason:
    """Where a broker logged what became of the marker."""
    for event, names in (("marker_skipped", ("marker-skipped",)), ("marker_refused", ("marker-refused",))):
        if found := case.lines(event):
            return names, _logged(found[-1])
    return (), ""


def _logged(line: ClusterEvent) -> str:
    broker = "a broker" if line.broker_id is None else f"broker {line.broker_id}"
    return f'{broker} logged at {at(line.timestamp)}: "{line.text}"' if line.timestamp else f'{broker}: "{line.text}"'


def _by_leaders(case: Case) -> Reason:
    """Where the metadata log says who led when: whether there was a leader to write the marker, or one that lost it."""
    if case.opening is None:
        return (), ""
    opened_in = int(case.opening.first_batch["leader_epoch"][0])
    of_leaders = (each for each in case.cluster_events if each.tp == case.tp and each.event in LEADER_EVENTS)
    changes = [each for each in of_leaders if (each.leader_epoch or 0) > opened_in]
    decided = case.outcome.transaction.decided_at if case.outcome.transaction else None
    before = [each for each in changes if decided and each.timestamp and each.timestamp <= decided]
    if before and before[-1].event == "no_leader" and _may_be_skipped(case):
        return ("marker-skipped",), f"{_with_time(before[-1])}, and {SKIPPED}"
    unclean = next((each for each in changes if each.event == UNCLEAN), None)
    truncated = next(iter(case.lines("log_truncated")), None)
    why = "; ".join(_with_time(each) for each in (unclean, truncated) if each is not None)
    return ("marker-lost",) if why else (), why


def _with_time(event: ClusterEvent) -> str:
    if event.source == FROM_BROKER_LOG:
        return _logged(event)
    return f"{event.text}{f' ({at(event.timestamp)})' if event.timestamp else ''}"


def _compacted(case: Case) -> Reason:
    compacted = case.opening is not None and case.opening.excerpt.is_compacted
    return ("marker-compacted",), "the topic is compacted, and the cleaner may have removed it" if compacted else ""


def _led_by_another(case: Case) -> Reason:
    """By the leader epochs alone; a partition that had no leader for a while has another one afterwards, too."""
    if case.opening is None:
        return (), ""
    opened_in = int(case.opening.first_batch["leader_epoch"][0])
    later = case.opening.excerpt.headers
    epochs = later["leader_epoch"][(later["base_offset"] > case.opening.start) & (later["leader_epoch"] > opened_in)]
    now = int(epochs[0]) if len(epochs) else case.leader.leader_epoch or -1
    if now <= opened_in:
        return (), ""
    changed = f"(leader epoch {opened_in}, then {now})"
    if len(case.leader.replicas or ()) == 1:  # there is no other that could lead
        if _may_be_skipped(case):
            return ("marker-skipped",), f"its only replica was offline {changed}, and {SKIPPED}"
        return ("marker-lost",), f"its only replica was offline {changed}, and may have lost its last records"
    lost = f"another leader took over {changed}, perhaps without the last records"
    if not _may_be_skipped(case):
        return ("marker-lost",), lost
    return ("marker-lost", "marker-skipped"), f"{lost}, or the partition had no leader for a while, and {SKIPPED}"


def _refused(case: Case) -> Reason:
    """Whether the partition refuses the coordinator's epoch as too old."""
    known = case.producer.coordinator_epoch
    epochs = (record.leader_epoch for record in case.records if record.leader_epoch is not None)
    coordinator_epoch = max(epochs, default=None)
    if known is None or coordinator_epoch is None or known <= coordinator_epoch:
        return (), ""
    return (
        ("marker-refused",),
        f"the partition knows coordinator epoch {known} and refuses the coordinator, which is at {coordinator_epoch}",
    )


def _of_groups(case: Case) -> Cause | None:
    if case.tp[0] != OFFSETS_TOPIC:
        return None
    producer_id = case.producer_id
    groups = case.batches.excerpt.groups.get(producer_id, ()) if case.batches else ()
    names = ", ".join(f'"{each}"' for each in groups)
    groups_text = f"group{'s' if len(groups) > 1 else ''} {names}" if groups else "consumer groups"
    return Cause(text=f"it holds offsets of {groups_text}", names=("group-offsets",))


def _not_ended(case: Case) -> Cause | None:
    isr, replicas = case.leader.isr, case.leader.replicas
    if isr is not None and replicas is not None and len(isr) < len(replicas):
        text = f"its marker cannot be written while replicas are missing: {len(isr)} of {len(replicas)} are in sync"
        return Cause(text=text, names=("marker-not-written",))
    for names, why in (_refused(case), _by_lines(case)):
        if why:
            return Cause(text=f"its marker is not written: {why}", names=names)
    if failed := case.lines("marker_request_failed"):
        text = f"a broker does not know the version in which coordinators send markers: {_logged(failed[-1])}"
        return Cause(text=text, names=("marker-not-sent",))
    if retried := case.lines("marker_retried"):
        text = f"the partition's leader does not write the marker: {_logged(retried[-1])}"
        return Cause(text=text, names=("marker-not-written",))
    last = case.records[-1] if case.records else None
    if last is not None and last.client_transaction_version == 2:
        text = "its coordinator has lost the marker that it has to write, or the partition's leader refuses it as old"
        return Cause(text=text, names=("marker-not-written", "marker-not-sent"), evidence=(record_entry(last),))
    return Cause(
        text="its coordinator has lost the marker that it has to write, or cannot send it",
        names=("marker-not-written",),
    )


def _two_phase(case: Case) -> Cause | None:
    if not case.two_phase:  # a checkpoint of Flink has decided: its reason says so
        return None
    return Cause(
        text="prepared by two-phase commit; its external coordinator has not decided", names=("two-phase-commit",)
    )


def _habit(case: Case) -> Cause | None:
    return habit(case.transactional_id or "", case.owner.timeout_ms if case.owner else None)


def habit(name: str, timeout_ms: int | None) -> Cause | None:
    """A hint from the format of a transactional id."""
    if FLINK_ID.fullmatch(name) and timeout_ms == FLINK_TIMEOUT_MS:
        text = f'a hint: "{name}" with a timeout of 1 h looks like Apache Flink, whose checkpoint decides what to do'
        return Cause(text=text, names=("flink-timeout",))
    if RANDOM_ID.fullmatch(name):
        text = f'a hint: "{name}" looks random; if its client is gone, no later instance will fence it'
        return Cause(text=text, names=("random-id",))
    return None


def _no_cause_found(case: Case) -> str:
    excerpt, unread = case.excerpt, () if case.coordinators is None else case.coordinators.gaps
    start = -1 if case.start is None or excerpt is None else max(case.start, excerpt.log_start_offset or 0)
    if excerpt is None:
        read = "the log was not read"
    elif excerpt.start < excerpt.stop <= start:  # too slow, or an error
        why = f" ({Error.of(excerpt.error).code})" if excerpt.error else " in time"
        read = f"offset {start}, where it begins, was not read{why}"
    elif excerpt.start >= excerpt.stop:
        read = f"the log could not be read ({Error.of(excerpt.error or 'it is empty').code})"
    else:
        read = f"offsets {excerpt.start} to {excerpt.stop - 1} were read and do not show what opened it"
    return "no cause found: " + "; ".join([read, *unread])


def _first_batch(case: Case) -> tuple[EvidenceEntry, ...]:
    return (case.opening.entry("first_batch", case.opening.first_batch),) if case.opening else ()


CauseCheck = Callable[["Case"], Cause | None]

DISOWNED: tuple[CauseCheck, ...] = (
    _head_deleted,
    _no_owner,
    _superseded,
    _late,
    _torn,
    _never_added,
    _marker_lost,
    _of_groups,
)
"""Causes of a transaction that no coordinator will end."""

CHECKS: Mapping[str, tuple[CauseCheck, ...]] = {
    "unknown": (_head_deleted, _mixed_epochs),
    **{verdict: (_mixed_epochs,) for verdict in Verdict if verdict.is_live},
    "long": (_mixed_epochs, _head_deleted, _habit),
    Verdict.OVERDUE: (_head_deleted, _habit),
    Verdict.PREPARED: (_two_phase,),
    Verdict.STUCK_ENDING: (_not_ended,),
}
"""Causes of the others, by verdict."""


MAX_EVENTS = 20  # of the cluster, from shortly before the first batch on
LOG_LEFT_OUT = (
    "the log around it was not read for cause, opening time and impact: too many partitions are held, or too little "
    "time was left; diagnose this partition alone"
)


def explain(findings: Sequence[Finding], cases: Mapping[TransactionKey, Case]) -> list[Finding]:
    """Add log evidence to findings.

    Returns: with ``cause``, ``opened_at``, ``records_held``, ``bytes_held``, ``compaction_held``, ``held_from`` and
        further evidence.
    `findings`: from `Diagnosis.findings`.
    `cases`: the open transactions whose logs had to be read. Without an excerpt of a partition, the evidence of its
        findings states so (``left_out``), as for one that could not be read.
    """
    excerpts = {each.tp: each.excerpt for each in cases.values() if each.excerpt is not None}
    found = []
    for finding in findings:
        case, excerpt = cases.get(finding.key), None if finding.tp is None else excerpts.get(finding.tp)
        if excerpt is not None:
            finding = held_back(finding, excerpt)
            if finding.queue_position == 1:
                groups = excerpt.groups.get(finding.producer_id or -1)
                held = None if groups is None else tuple(groups)
                finding = replace(finding, compaction_held=excerpt.is_compacted, groups_held=held)
        if case is not None:
            finding = _left_out(finding, LOG_LEFT_OUT) if excerpt is None else _explained(finding, case, excerpt)
        found.append(finding)
    return found


def _explained(finding: Finding, case: Case, excerpt: Excerpt) -> Finding:
    batches = case.batches
    if batches is not None:
        finding = opening_time(finding, batches)
    elif excerpt.error is not None:
        finding = _left_out(finding, f"the log around it could not be read: {excerpt.error}")
    finding = replace(finding, evidence=(*finding.evidence, *_events_around(case)))
    if batches is not None and finding.queue_position == 1:
        finding = held_since(finding, batches)
    is_ended = case.state.startswith("Prepare")
    is_disowned = finding.verdict is Verdict.HANGING or (finding.verdict is Verdict.STUCK_ENDING and not is_ended)
    why = cause(case, DISOWNED if is_disowned else CHECKS.get(finding.verdict, ()))
    if why is None:
        return finding
    return replace(finding, cause=why.text, evidence=(*finding.evidence, *why.evidence))


def _events_around(case: Case) -> tuple[EvidenceEntry, ...]:
    """What happened to the cluster, in order; rather what is about the transaction or its partition than the rest."""
    events = case.cluster_events
    is_own = [each.error or each.tp == case.tp or each.transactional_id is not None for each in events]
    chosen = sorted(range(len(events)), key=lambda number: not is_own[number])[:MAX_EVENTS]
    return tuple(event_entry(events[number]) for number in sorted(chosen))


def _left_out(finding: Finding, why: str) -> Finding:
    entry = EvidenceEntry.of_record(finding, source="log", name="left_out", value=why)
    return replace(finding, evidence=(*finding.evidence, entry))


def held_back(finding: Finding, excerpt: Excerpt) -> Finding:
    """Count data records and bytes between the LSO and the high watermark.

    Returns: with ``records_held`` and ``bytes_held``; null if the range was not read completely. Bytes are those of
    complete batches, including markers.
    """
    lso, high_watermark = finding.last_stable_offset, finding.high_watermark
    if lso is None or high_watermark is None:
        return replace(finding, records_held=None, bytes_held=None)
    first = max(lso, excerpt.log_start_offset or 0)  # the LSO may be below the log start
    if first >= high_watermark:
        return replace(finding, records_held=0, bytes_held=0)
    if excerpt.held is None and (excerpt.start > first or excerpt.stop < high_watermark):
        return replace(finding, records_held=None, bytes_held=None)
    records, size = excerpt.held or amounts(excerpt.headers, first, high_watermark)
    return replace(finding, records_held=records, bytes_held=size)


def opening_time(finding: Finding, batches: ProducerBatches) -> Finding:
    """Correct a transaction's opening time if a broker's clock contradicts its producer's.

    Returns: with ``opened_at`` and ``opened_at_clock``: unchanged, or the broker time before the first batch, null if
    none was read.
    `batches`: its producer's batches in the excerpt.
    """
    if finding.opened_at is None or finding.opened_at_clock != "producer":
        return finding
    opened_at = _plausible(finding.opened_at, batches, now=finding.brokers_time)
    if opened_at == finding.opened_at:
        return finding
    return replace(finding, opened_at=opened_at, opened_at_clock=None if opened_at is None else "broker")


def _plausible(by_producer: dt.datetime, batches: ProducerBatches, *, now: dt.datetime | None) -> dt.datetime | None:
    """A producer's time if brokers' clocks allow it, else the broker time before the first batch.

    Broker times before and after the first batch bound the opening time. A producer's time outside these bounds is
    wrong, or its records have other times on purpose.
    """
    earliest = batches.brokers_time_before
    latest = batches.brokers_time_after or now or by_producer
    is_plausible = (earliest or by_producer) - CLOCKS_DIFFER <= by_producer <= latest + CLOCKS_DIFFER
    return by_producer if is_plausible else earliest


def held_since(finding: Finding, batches: ProducerBatches) -> Finding:
    """Since when the lowest open transaction has held the LSO: since its first batch, or since a later marker.

    An earlier transaction holds the LSO until its marker. If the excerpt has only the marker of a transaction, that may
    have begun earlier: the time is then the latest possible one, and the evidence is named ``held_at_least_since``.

    With ``held_from``, ``held_to`` (if its marker was read) and ``held_ms``, null if the excerpt does not show them or
    the clocks contradict each other; and ``evidence``, with the marker after which it was the lowest.
    `batches`: its producer's batches in the excerpt.
    """
    excerpt, high_watermark = batches.excerpt, finding.high_watermark
    # A transaction that was open before the excerpt may have ended after it.
    if excerpt.start != 0 and (high_watermark is None or excerpt.stop < high_watermark):
        return finding
    log_transactions, unsure = _log_transactions_around(batches)
    own = log_transactions[
        (log_transactions["producer_id"] == batches.producer_id) & (log_transactions["first_offset"] == batches.start)
    ]
    steps = lso_steps(log_transactions, log_end_offset=batches.excerpt.stop)
    holds = (steps["holder_producer_id"] == batches.producer_id) & (steps["holder_first_offset"] == batches.start)
    if not holds.any():
        return finding
    step, evidence, started = steps[holds][0], finding.evidence, finding.opened_at
    if step["event"] == OPEN:  # since its first batch; not before its coordinator's start time, which is a broker's
        held_from = utc(int(own[0]["start"]))
        if held_from is not None and own[0]["start_clock"] != 1:
            held_from = _plausible(held_from, batches, now=finding.brokers_time)
        if finding.opened_at_clock == "coordinator" and started is not None:
            held_from = started if held_from is None or held_from < started - CLOCKS_DIFFER else held_from
    else:
        held_from = utc(int(step["at"]))
        name = "held_at_least_since" if step["offset"] - 1 in unsure else "held_since"
        headers = excerpt.headers
        evidence = (*evidence, batches.entry(name, headers[headers["base_offset"] == step["offset"] - 1]))
    held_to = utc(int(own[0]["end"]))
    held_ms = elapsed_ms(held_from, held_to or finding.brokers_time, differ=CLOCKS_DIFFER)
    return replace(finding, held_from=held_from, held_to=held_to, held_ms=held_ms, evidence=evidence)


def _log_transactions_around(batches: ProducerBatches) -> tuple[LogTransactions, set[int]]:
    """Transactions in the excerpt, and the marker offsets of those that may have begun before it.

    Those are assumed to have begun before it. A first batch with sequence number 0 begins its producer's epoch, and so
    a transaction.
    """
    headers, start = batches.excerpt.headers, batches.excerpt.start
    if start == 0:  # a transaction that begins later cannot have held the LSO before this one
        earlier = headers["producer_id"][: bisect_right(headers["base_offset"], batches.start)]
        return finish(partial_transactions(headers[np.isin(headers["producer_id"], earlier)])), set()
    found = partial_transactions(headers)
    read = finish(found)
    unsure = read[(read["truncated"] == -1) & (read["marker_offset"] >= 0) & (read["first_sequence"] != 0)]
    unsure = unsure[unsure["first_offset"] != batches.start]
    before = {int(each["producer_id"]): (0, int(each["producer_epoch"])) for each in unsure} if batches.start else {}
    if batches.start < start:
        before[batches.producer_id] = batches.start, -1
    return finish(begin(opened_before=before) + found), set(unsure["marker_offset"].tolist())


class AbortEffects(NamedTuple):
    """Data records that read_committed consumers never receive, and those that they can receive after the abort."""

    dropped: int
    released: int


def abort_effects(
    headers: Headers, *, producer_id: int, start_offset: int, last_stable_offset: int, next_stable_offset: int
) -> AbortEffects:
    """Count the records that an abort drops, and the records behind the LSO that it releases.

    Returns: `released` counts the records between the two LSOs that are committed or not transactional.
    `headers`: structured array of `toolkit.formats.headers.HEADER`: every batch from the lower of `start_offset`
        and `last_stable_offset` to the high watermark, in order.
    `last_stable_offset`, `next_stable_offset`: the LSO before the abort marker, and after it.
    """
    statuses = batch_statuses(LogSlice(batches=headers), last_stable_offset=0, opened={}, reaches_end=True)
    dropped_batches = (headers["producer_id"] == producer_id) & (statuses == OPEN_RECORDS)
    is_committed = (statuses == NON_TRANSACTIONAL) | (statuses == COMMITTED)
    visible = is_committed & (headers["base_offset"] < next_stable_offset)
    dropped, released = (
        records_inside(
            first,
            base_offset=headers["base_offset"],
            last_offset=headers["last_offset"],
            record_count=headers["record_count"],
            is_control=headers["attributes"] & CONTROL != 0,
        )
        for first in (start_offset, last_stable_offset)
    )
    return AbortEffects(int(dropped[dropped_batches].clip(0).sum()), int(released[visible].clip(0).sum()))
