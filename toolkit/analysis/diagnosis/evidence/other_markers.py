"""Markers of the producer on other partitions: they contradict the coordinators' log, or prove what it has lost.

The log can lose its tail, or come back from a backup: then a COMMIT marker is left of a transaction that it does not
have. So they are read before a transaction is said to hang.

With transaction version 2 each transaction has an epoch of its own, and its markers have the next one (KIP-890). So a
COMMIT marker with the next epoch, right after data of the open records' epoch, is of the same transaction, if the epoch
itself began with the commit before: a client can go from version 1 to 2 within an epoch, and coordinators raise the
epoch in aborts of version 1, too. With version 1 a COMMIT marker has the data's own epoch, and proves nothing here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.analysis.coordinator.coordinator_log import IdHistory
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, Excerpt, producer_batches
from toolkit.analysis.diagnosis.evidence.open_parts import OpenPart
from toolkit.analysis.diagnosis.evidence_text import FILES, REQUESTS, at, elsewhere_entry, record_entry
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, UNKNOWN, Outcome
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import COMMIT as COMMIT_MARKER
from toolkit.formats.log.headers import Headers
from toolkit.schema import utc
from toolkit.schema.live import EvidenceEntry, Producer
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case

END = 2**63 - 1
RESTART = dt.timedelta(seconds=3)  # no broker starts again and loads its log sooner


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMarker:
    """A marker of a producer, of an open transaction's own partition or of another one."""

    # tp, offset: where it is
    tp: TopicPartition
    offset: int
    # producer_id, epoch: as in the marker
    producer_id: int
    epoch: int
    # whether it repeats no other marker: data of the producer is between them, or nothing of it is before in the log
    is_first: bool
    is_raised: bool  # whether the data right before it has the epoch below its own, as with transaction version 2
    is_commit: bool  # COMMIT, or ABORT
    coordinator_epoch: int  # leader epoch of the coordinator that wrote it
    time: dt.datetime | None  # when it was written, by its leader's clock; null if it has no time
    # time of the same marker before it, if it was written twice: nothing of the producer is between them; else null
    first_time: dt.datetime | None
    entry: EvidenceEntry  # the marker as evidence

    @property
    def name(self) -> str:
        """``the COMMIT marker at offset 12 of orders-0``."""
        topic, partition = self.tp
        return f"the {'COMMIT' if self.is_commit else 'ABORT'} marker at offset {self.offset} of {topic}-{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSearch:
    """Markers of producers on other partitions, and why they are not known to be all, by producer id.

    `ahead`: where a producer has an epoch that the coordinators' log does not have, by producer id.
    """

    markers: Sequence[OtherMarker] = ()
    unread: Mapping[int, str] = field(default_factory=dict)
    ahead: Mapping[int, Producer] = field(default_factory=dict)


def markers_found(
    tp: TopicPartition, excerpt: Excerpt, producer_ids: Collection[int], *, errors: Sequence[str], cut: str | None
) -> MarkerSearch:
    """The markers of producers in what was read of a partition; one may be in what could not be read, or was cut off.

    `errors`: what could not be read. `cut`: as by `cut_search`.
    """
    unread = f"{tp} could not be read ({errors[0]})" if errors else cut
    markers = [each for producer_id in producer_ids for each in other_markers(tp, excerpt, producer_id)]
    return MarkerSearch(markers=markers, unread=dict.fromkeys(producer_ids, unread) if unread else {})


def other_markers(tp: TopicPartition, excerpt: Excerpt, producer_id: int) -> Iterator[OtherMarker]:
    """The markers of a producer in an excerpt."""
    batches, headers = producer_batches(excerpt, producer_id, END), excerpt.headers
    own = headers[headers["producer_id"] == producer_id]
    for number in range(len(batches.markers_before)):
        marker = batches.markers_before[number : number + 1]
        offset, epoch = int(marker["base_offset"][0]), int(marker["producer_epoch"][0])
        before: Headers = own[own["base_offset"] < offset][-1:]
        is_first, is_raised, first_time = excerpt.start == 0 and excerpt.is_contiguous(0, offset), False, None
        if len(before):
            (last,) = before
            is_first = last["attributes"] & CONTROL == 0
            # A missing batch may have the marker's own epoch, as with version 1.
            if excerpt.is_contiguous(int(last["base_offset"]), offset):
                is_data = last["attributes"] & (CONTROL | TRANSACTIONAL) == TRANSACTIONAL
                is_raised = is_data and int(last["producer_epoch"]) == epoch - 1
                if not is_first and last["marker"] == marker["marker"][0] and int(last["producer_epoch"]) == epoch:
                    first_time = utc(int(last["max_timestamp"]))
        yield OtherMarker(
            tp=tp,
            offset=offset,
            producer_id=producer_id,
            epoch=epoch,
            is_first=bool(is_first),
            is_raised=bool(is_raised),
            is_commit=bool(marker["marker"][0] == COMMIT_MARKER),
            coordinator_epoch=int(marker["coordinator_epoch"][0]),
            time=utc(int(marker["max_timestamp"][0])),
            first_time=first_time,
            entry=batches.entry("marker_elsewhere", marker),
        )


def checked_by_markers(case: Case, outcome: Outcome) -> Outcome:
    """The outcome by the coordinators' log unless markers contradict it; where that proves none, the one by markers."""
    search, producer_id = case.marker_search, case.producer_id
    if search is None or outcome.is_contradicted:
        return outcome
    here = () if case.excerpt is None else other_markers(case.tp, case.excerpt, producer_id)
    markers = list({(each.tp, each.offset): each for each in (*search.markers, *here)}.values())
    if outcome.name == UNKNOWN:
        by_markers = outcome_by_markers(case, markers)
        return outcome if by_markers is None else replace(by_markers, offsets=outcome.offsets)
    history = case.id_histories[0] if len(case.id_histories) == 1 else None
    # An operator's ABORT marker has the epoch of the data; one that is raised is a coordinator's.
    aborts = [each for each in markers if each.is_raised or outcome.name == COMMIT]
    unexplained = unexplained_marker(producer_id, history, markers, is_commit=True) or unexplained_marker(
        producer_id, history, aborts, is_commit=False
    )
    if unexplained is not None:
        missing, evidence = unexplained_text(unexplained, outcome.offsets), [unexplained.entry]
    elif (ahead := search.ahead.get(producer_id)) is not None:
        sources = FILES if case.observation.from_files else REQUESTS
        missing, evidence = ahead_text(ahead, outcome.offsets), [elsewhere_entry(ahead, source=sources.producers)]
    elif outcome.name != COMMIT and (lost := lost_end(case, history, markers)):
        missing, evidence = lost_end_text(lost, outcome.offsets), [*lost.evidence]
    else:
        return outcome
    return Outcome(
        name=UNKNOWN,
        reason=missing,
        missing=(missing,),
        evidence=tuple(evidence),
        offsets=outcome.offsets,
        is_contradicted=True,
    )


def unexplained_marker(
    producer_id: int, history: IdHistory | None, markers: Sequence[OtherMarker], *, is_commit: bool
) -> OtherMarker | None:
    """A marker whose decision the coordinators' log does not have; null if there is none.

    A marker without data before it may have been written twice. One that `kafka-txn complete` has written comes late.
    On a partition the markers are in the order of the decisions, and one decision has one of them.
    `history`: the records of the id that has the producer id; null if none is left.
    `is_commit`: which markers are looked at.
    """
    first = None if history is None else history.first_of(producer_id)
    if history is None or first is None or first.timestamp is None:
        return None
    is_whole = first.state == "Empty" and first.producer_epoch == 0  # compaction has taken nothing
    explained: dict[TopicPartition, int] = {}  # how many transactions are over for the markers of a partition
    earliest: dict[TopicPartition, dt.datetime] = {}  # the marker of a later decision was looked for
    for marker in sorted(markers, key=lambda each: (each.tp, each.offset)):
        if marker.time is not None:
            earliest.setdefault(marker.tp, marker.time)
        if not marker.is_first or marker.producer_id != producer_id or marker.time is None:
            continue
        late_after = earliest[marker.tp] + CLOCKS_DIFFER if marker.is_commit else None
        number = _decision_of(marker, history, since=explained.get(marker.tp, 0), late_after=late_after)
        if number is not None:
            explained[marker.tp] = number + 1
            continue
        is_since = is_whole or _is_since(marker, first) or marker.time >= first.timestamp + CLOCKS_DIFFER
        if is_since and marker.is_commit == is_commit:
            return marker
    return None


def _is_since(marker: OtherMarker, first: TransactionLogRecord) -> bool:
    """Whether epochs show that a marker is younger than the first record that is left of its producer."""
    epoch = -1 if first.producer_epoch is None else first.producer_epoch
    # InitProducerId never gives an epoch that a commit had.
    return marker.epoch > epoch or (marker.is_commit and first.state == "Empty" and marker.epoch == epoch)


def _decision_of(
    marker: OtherMarker, history: IdHistory, *, since: int, late_after: dt.datetime | None = None
) -> int | None:
    """Which transaction of the history is the first that a marker can be of; null if there is none.

    `since`: the first one to look at.
    `late_after`: markers of later decisions may come after their end; null if none does.
    """
    for number in range(since, len(history.transactions)):
        each = history.transactions[number]
        if marker.time is None or each.decided_at is None:
            continue
        is_in_time = each.end_time is None or marker.time <= each.end_time + CLOCKS_DIFFER
        if (
            each.producer_id in {marker.producer_id, None}
            and (each.state or "").endswith("Commit") == marker.is_commit
            and (each.topic_partitions is None or marker.tp in each.topic_partitions)
            and each.producer_epoch in _data_epochs(marker, each)
            and each.decided_at <= marker.time + CLOCKS_DIFFER
            and (is_in_time or (late_after is not None and each.decided_at > late_after))
        ):
            return number
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEnd:
    """A sign that the coordinators' log has lost that a transaction had ended: it may have lost the next one, too."""

    reason: str
    evidence: tuple[EvidenceEntry, ...]


def lost_end(case: Case, history: IdHistory | None, markers: Sequence[OtherMarker]) -> LostEnd | None:
    """A transaction that was ended twice, if open records may be of a lost one after it; null if there is none.

    A coordinator that loads its log writes the markers of a decision again, unless the log has their end. So there are
    two on a partition. From 4.3.0 on (KAFKA-20734) it skips those without a leader, and what is left is an end of
    another coordinator, or long after the decision; it had not ended before its last first marker. The client of the
    lost transaction may go on, until it begins the next one.
    """
    parts, markers = case.open_parts, [each for each in markers if each.producer_id == case.producer_id]
    own = [] if history is None else [each for each in history.records if each.producer_id == case.producer_id]
    begun = [each.timestamp for each in own if each.state in {"Ongoing", "Empty"} and each.timestamp is not None]
    explained: dict[TopicPartition, int] = {}
    for marker in sorted(markers, key=lambda each: (each.tp, each.offset)):
        number = None if history is None else _decision_of(marker, history, since=explained.get(marker.tp, 0))
        decided_at = None
        if number is not None and history is not None:
            explained[marker.tp] = number + 1
            decided_at = history.transactions[number].decided_at
        first, last = marker.first_time, marker.time
        if first is None or last is None:
            continue
        if decided_at is not None and decided_at > first:
            continue  # it is of the next transaction, which had no records on the partition
        until = next((each for each in begun if each > last + CLOCKS_DIFFER), None)
        if _may_be_between(parts, epoch=marker.epoch, first=first, until=until):
            reason = f"{marker.name}, of {at(last)}, repeats that of {at(first)}"
            return LostEnd(reason=reason, evidence=(marker.entry,))
    for decision, end in pairwise(own):
        first, last, epoch = decision.timestamp, end.timestamp, end.producer_epoch
        is_end = (decision.state or "").startswith("Prepare") and (end.state or "").startswith("Complete")
        # On its own partitions the second marker, if it is not skipped, ends what is open.
        if not is_end or first is None or last is None or epoch is None or case.tp in (decision.topic_partitions or ()):
            continue
        is_of_another = decision.leader_epoch != end.leader_epoch
        own_markers: dict[TopicPartition, OtherMarker] = {}  # on each of its partitions, the first since the decision
        for each in sorted(markers, key=lambda each: each.offset):
            is_since = each.time is not None and each.time >= first - CLOCKS_DIFFER
            if is_since and each.is_first and each.tp in (decision.topic_partitions or ()):
                own_markers.setdefault(each.tp, each)
        if is_of_another and any(each.coordinator_epoch == end.leader_epoch for each in own_markers.values()):
            continue
        times = [each.time - CLOCKS_DIFFER for each in own_markers.values() if each.time is not None]
        not_ended = max([first, *(min(each, last) for each in times)])
        if not is_of_another and last - not_ended <= RESTART:
            continue
        until = next((each for each in begun if each > last), None)
        if _may_be_between(parts, epoch=epoch, first=not_ended, until=until):
            reason = f"it was decided at {at(first)}, and ended at {at(last)}"
            entries = record_entry(decision, name="decision"), record_entry(end, name="end")
            return LostEnd(reason=reason, evidence=entries)
    return None


def _may_be_between(parts: Sequence[OpenPart], *, epoch: int, first: dt.datetime, until: dt.datetime | None) -> bool:
    """Whether open records of an epoch may be from between two times."""
    for part in parts:
        before = None if part.before is None else utc(int(part.before.time))
        after = None if part.after is None else utc(int(part.after.time))
        is_before = before is not None and before + CLOCKS_DIFFER < first
        is_after = after is not None and until is not None and after - CLOCKS_DIFFER > until
        if part.lowest_epoch <= epoch <= part.highest_epoch and not is_before and not is_after:
            return True
    return False


def lost_end_text(lost: LostEnd, offsets: str) -> str:
    """What is missing if a transaction was ended twice."""
    return (
        f"why a transaction of this producer was ended twice ({lost.reason}): if the coordinators' log has lost its "
        f"first end, it may have lost a later transaction with {offsets}, too"
    )


def _data_epochs(marker: OtherMarker, decision: PastTransaction) -> set[int | None]:
    """The epochs that the data of a decision can have if a marker is of it; coordinators raise them in their aborts."""
    if not marker.is_commit:
        return {None, marker.epoch, marker.epoch - 1}
    return {None, marker.epoch - ((decision.client_transaction_version or 0) >= 2)}


def unexplained_text(marker: OtherMarker, offsets: str) -> str:
    """What is missing if a marker contradicts the coordinators' log."""
    when = "" if marker.time is None else f", of {at(marker.time)}"
    return (
        f"the decision of {marker.name}{when}: the coordinators' log does not have it, so it has lost records, and may "
        f"have lost a decision on {offsets}"
    )


def ahead_text(producer: Producer, offsets: str) -> str:
    """What is missing if a producer has an epoch that the coordinators' log does not have."""
    return (
        f"why producer {producer.producer_id} has epoch {producer.producer_epoch} on {producer.topic}-"
        f"{producer.partition}: a coordinator writes an epoch to its log before anyone uses it, so the log has lost "
        f"records, and may have lost a decision on {offsets}"
    )


def outcome_by_markers(case: Case, markers: Sequence[OtherMarker]) -> Outcome | None:
    """The outcome that markers on other partitions prove; null if they do not.

    `markers`: markers of its producer, those on its own partition included.
    """
    # InitProducerId began the epoch, or a client of version 1 has it: after a restore it was given out twice.
    if any(each.state == "Empty" or (each.client_transaction_version or 1) < 2 for each in case.of_epoch):
        return None
    batches, own = case.batches, [each for each in markers if each.producer_id == case.producer_id]
    first = None if batches is None or not len(batches.first_batch) else batches.first_batch[0]
    if first is not None and first["base_sequence"] > 0:  # with version 2, a transaction begins with number 0
        return None
    epoch = case.first_epoch if first is None else int(first["producer_epoch"])
    if epoch is None or epoch != case.epoch:
        return None
    # A commit that raised the epoch to this one: the client was of version 2 when it began.
    if not any(each.is_commit and each.is_raised and each.epoch == epoch for each in own):
        return None
    found = [each for each in own if each.is_raised and each.epoch == epoch + 1 and each.tp != case.tp]
    written_after = None if batches is None else batches.brokers_time_before
    is_late = written_after is not None and any(
        each.time is None or each.time + CLOCKS_DIFFER < written_after for each in found
    )
    if is_late or len({each.is_commit for each in found}) != 1:
        return None
    marker = found[0]
    return Outcome(
        name=COMMIT if marker.is_commit else ABORT,
        reason=f"{marker.name} is of the same transaction (epoch {epoch}), and the log has no marker of it here",
        evidence=(marker.entry,),
    )
