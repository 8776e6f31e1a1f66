"""Markers of the same transaction on other partitions prove its outcome where the coordinators' log does not.

With transaction version 2 each transaction has an epoch of its own, and its markers have the next one (KIP-890). So a
COMMIT marker with the next epoch, after data of the open records' epoch, is of the same transaction. With transaction
version 1 an epoch lasts for many transactions: a COMMIT marker has the data's own epoch, and proves nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt, producer_batches
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.analysis.diagnosis.outcome import ABORT, COMMIT, Outcome
from toolkit.formats.log.headers import COMMIT as COMMIT_MARKER
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.table import TopicPartition

__all__ = ["OtherMarker", "other_markers", "outcome_by_markers"]

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
    entry
        The marker as evidence.
    """

    tp: TopicPartition
    offset: int
    producer_id: int
    data_epoch: int
    is_commit: bool
    entry: EvidenceEntry


def other_markers(tp: TopicPartition, excerpt: Excerpt, producer_id: int) -> Iterator[OtherMarker]:
    """The markers in an excerpt of another partition that raise the epoch of the data before them.

    Parameters
    ----------
    tp
        The partition.
    excerpt
        A part of its log.
    producer_id
        The producer.
    """
    batches = producer_batches(excerpt, producer_id, END)
    data = excerpt.headers[(excerpt.headers["producer_id"] == producer_id) & (excerpt.headers["base_sequence"] >= 0)]
    for number in range(len(batches.markers_before)):
        marker = batches.markers_before[number : number + 1]
        offset, epoch = int(marker["base_offset"][0]), int(marker["producer_epoch"][0])
        before = data[data["base_offset"] < offset][-1:]
        if len(before) and int(before["producer_epoch"][0]) == epoch - 1:
            yield OtherMarker(
                tp=tp,
                offset=offset,
                producer_id=producer_id,
                data_epoch=epoch - 1,
                is_commit=bool(marker["marker"][0] == COMMIT_MARKER),
                entry=batches.entry("marker_elsewhere", marker),
            )


def outcome_by_markers(txn: OpenTransaction, epoch: int | None, markers: Sequence[OtherMarker]) -> Outcome | None:
    """The outcome that markers on other partitions prove; null if they do not.

    Parameters
    ----------
    txn
        The open transaction.
    epoch
        Epoch of the batch that opened it; null if that was not read.
    markers
        Markers of its producer on other partitions.
    """
    own = [each for each in markers if each.producer_id == txn.producer_id]
    # Only clients of version 2 raise the epoch in a commit; a coordinator raises it in aborts of both versions.
    if epoch is None or epoch != txn.epoch or not any(each.is_commit for each in own):
        return None
    found = next((each for each in own if each.data_epoch == epoch and each.tp != txn.tp), None)
    if found is None:
        return None
    topic, partition = found.tp
    what = "COMMIT" if found.is_commit else "ABORT"
    return Outcome(
        name=COMMIT if found.is_commit else ABORT,
        reason=f"the {what} marker of the same transaction (epoch {epoch}) is at offset {found.offset} of "
        f"{topic}-{partition}, and the log has no marker of it here",
        evidence=(found.entry,),
    )
