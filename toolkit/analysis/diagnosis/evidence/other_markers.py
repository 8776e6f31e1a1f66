"""Markers of the same transaction on other partitions prove its outcome where the coordinators' log does not.

With transaction version 2 each transaction has an epoch of its own, and its markers have the next one (KIP-890). So a
COMMIT marker with the next epoch, right after data of the open records' epoch, is of the same transaction. With
transaction version 1 an epoch lasts for many transactions: a COMMIT marker has the data's own epoch, and proves nothing
here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, Excerpt, ProducerBatches, producer_batches
from toolkit.analysis.diagnosis.observation import OpenTransaction
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, Outcome
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import COMMIT as COMMIT_MARKER
from toolkit.formats.log.headers import Headers
from toolkit.schema import utc
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.table import TopicPartition

END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMarker:
    """A marker of a producer on another partition, after data of the epoch before it."""

    # tp, offset: where it is
    tp: TopicPartition
    offset: int
    # producer_id, data_epoch: the producer, and the epoch of its data; the marker has the next one
    producer_id: int
    data_epoch: int
    is_commit: bool  # COMMIT, or ABORT
    time: dt.datetime | None  # when it was written, by its leader's clock; null if it has no time
    entry: EvidenceEntry  # the marker as evidence


def other_markers(tp: TopicPartition, excerpt: Excerpt, producer_id: int) -> Iterator[OtherMarker]:
    """The markers in an excerpt of another partition that raise the epoch of the data right before them."""
    batches, headers = producer_batches(excerpt, producer_id, END), excerpt.headers
    own = headers[headers["producer_id"] == producer_id]
    for number in range(len(batches.markers_before)):
        marker = batches.markers_before[number : number + 1]
        offset, epoch = int(marker["base_offset"][0]), int(marker["producer_epoch"][0])
        before: Headers = own[own["base_offset"] < offset][-1:]
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

    `batches`: its producer's batches around its start; null if the partition's log was not read.
    `markers`: markers of its producer on other partitions.
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
