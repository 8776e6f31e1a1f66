"""Markers of the same transaction on other partitions prove its outcome where the coordinators' log does not.

With transaction version 2 each transaction has an epoch of its own, and its markers have the next one (KIP-890). So a
COMMIT marker with the next epoch, right after data of the open records' epoch, is of the same transaction. With
transaction version 1 an epoch lasts for many transactions: a COMMIT marker has the data's own epoch, and proves nothing
here.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.evidence.log_excerpts import (
    CLOCKS_DIFFER,
    Excerpt,
    ProducerBatches,
    producer_batches,
)
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.analysis.diagnosis.outcome import ABORT, COMMIT, Outcome
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import COMMIT as COMMIT_MARKER
from toolkit.schema import utc
from toolkit.schema.live import EvidenceEntry, Producer
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.evidence.diagnosis_context import DiagnosisContext

__all__ = [
    "MAX_OFFSETS",
    "OtherMarker",
    "marker_partitions",
    "named_topics",
    "opened_after",
    "other_markers",
    "outcome_by_markers",
]

MAX_OFFSETS = 20_000  # to read of each partition, from the time of the open records on
MAX_OF_EACH = 3  # partitions of a producer: one marker of the transaction is enough
MAX_PARTITIONS = 100

END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMarker:
    """A marker of a producer on another partition, after data of the epoch before it.

    Parameters
    ----------
    tp, offset
        Where it is.
    producer_id, data_epoch
        The producer, and the epoch of its data; the marker has the next one.
    is_commit
        COMMIT, or ABORT.
    time
        When it was written, by its leader's clock; null if it has no time.
    entry
        The marker as evidence.
    """

    tp: TopicPartition
    offset: int
    producer_id: int
    data_epoch: int
    is_commit: bool
    time: dt.datetime | None
    entry: EvidenceEntry


def marker_partitions(
    contexts: Iterable[DiagnosisContext], producers: Iterable[Producer]
) -> Mapping[TopicPartition, Sequence[DiagnosisContext]]:
    """The partitions to read for markers of the same transactions: of each producer the nearest ones.

    Parameters
    ----------
    contexts
        Open transactions whose outcome the coordinators' log does not prove.
    producers
        Where the producers have written.
    """
    written: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
    for each in producers:
        if each.topic != STATE_TOPIC and each.producer_id is not None and each.producer_epoch is not None:
            written[each.producer_id].append((each.producer_epoch, (each.topic, each.partition)))
    known: defaultdict[TopicPartition, list[DiagnosisContext]] = defaultdict(list)
    for context in contexts:
        # A marker raises the epoch: the lowest of those that are higher have the fewest records after it.
        raised = sorted(each for each in written[context.txn.producer_id] if each[0] > context.txn.epoch)
        for _, tp in [each for each in raised if each[1] != context.txn.tp][:MAX_OF_EACH]:
            if tp in known or len(known) < MAX_PARTITIONS:
                known[tp].append(context)
    return known


def named_topics(contexts: Iterable[DiagnosisContext]) -> set[str]:
    """The topics of the open transactions, and those that their coordinators' records name."""
    contexts = list(contexts)
    named = {topic for context in contexts for event in context.events for topic, _ in event.topic_partitions or ()}
    return named | {context.txn.tp[0] for context in contexts}


def opened_after(contexts: Iterable[DiagnosisContext]) -> dt.datetime | None:
    """A broker's time before all of the open records, as markers come after them; null if one is unknown."""
    times = [context.opened_after for context in contexts]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None


def other_markers(tp: TopicPartition, excerpt: Excerpt, producer_id: int) -> Iterator[OtherMarker]:
    """The markers in an excerpt of another partition that raise the epoch of the data right before them.

    Parameters
    ----------
    tp
        The partition.
    excerpt
        A part of its log.
    producer_id
        The producer.
    """
    batches, headers = producer_batches(excerpt, producer_id, END), excerpt.headers
    own = headers[headers["producer_id"] == producer_id]
    for number in range(len(batches.markers_before)):
        marker = batches.markers_before[number : number + 1]
        offset, epoch = int(marker["base_offset"][0]), int(marker["producer_epoch"][0])
        before = own[own["base_offset"] < offset][-1:]
        if not len(before) or before["attributes"][0] & (CONTROL | TRANSACTIONAL) != TRANSACTIONAL:
            continue
        is_raised = int(before["producer_epoch"][0]) == epoch - 1
        # A missing batch may have the marker's own epoch, as with version 1.
        if is_raised and excerpt.is_contiguous(int(before["base_offset"][0]), offset):
            yield OtherMarker(
                tp=tp,
                offset=offset,
                producer_id=producer_id,
                data_epoch=epoch - 1,
                is_commit=bool(marker["marker"][0] == COMMIT_MARKER),
                time=utc(int(marker["max_timestamp"][0])),
                entry=batches.entry("marker_elsewhere", marker),
            )


def outcome_by_markers(
    txn: OpenTransaction, batches: ProducerBatches | None, markers: Sequence[OtherMarker]
) -> Outcome | None:
    """The outcome that markers on other partitions prove; null if they do not.

    Parameters
    ----------
    txn
        The open transaction.
    batches
        Its producer's batches around its start; null if the partition's log was not read.
    markers
        Markers of its producer on other partitions.
    """
    own = [each for each in markers if each.producer_id == txn.producer_id]
    # Only clients of version 2 raise the epoch in a commit; a coordinator raises it in aborts of both versions.
    if not any(each.is_commit for each in own):
        return None
    first = None if batches is None or not len(batches.first_batch) else batches.first_batch[0]
    if first is not None and first["base_sequence"] > 0:  # with version 2, a transaction begins with number 0
        return None
    epoch = txn.first_epoch if first is None else int(first["producer_epoch"])
    found = [each for each in own if each.data_epoch == epoch and each.tp != txn.tp]
    written_after = None if batches is None else batches.brokers_time_before
    is_late = written_after is not None and any(
        each.time is None or each.time + CLOCKS_DIFFER < written_after for each in found
    )
    if epoch != txn.epoch or is_late or len({each.is_commit for each in found}) != 1:
        return None
    marker = found[0]
    topic, partition = marker.tp
    what = "COMMIT" if marker.is_commit else "ABORT"
    return Outcome(
        name=COMMIT if marker.is_commit else ABORT,
        reason=f"the {what} marker of the same transaction (epoch {epoch}) is at offset {marker.offset} of "
        f"{topic}-{partition}, and the log has no marker of it here",
        evidence=(marker.entry,),
    )
