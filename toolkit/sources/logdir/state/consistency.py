"""What speaks against calling a transaction hanging that was seen open in files.

A coordinator's log that does not own a transaction proves nothing by itself: it may be older than the transaction, or
the partition's log older than its end. Files are rarely of one moment: they are copied one after the other while
brokers write on, a follower may lag, the cleaner swaps segments under the copier's hands. So it takes one of two
things, besides logs without damage:

The caller's word (``consistent_copy``) that brokers stood still and that these replicas were in sync.

Or the content, where an id owns the producer id. Kafka writes the record of AddPartitionsToTxn before the first batch
of a transaction on a partition, and the record of its completion after all its markers (and stamps the latter when
it is appended; the state's own last update time is that of the decision, long before where a marker was late).
So the transaction is nobody's if
(1) the coordinator's log goes on behind the transaction's first batch in time: had the partition been added, it
would say so; and
(2) the partition's log goes on behind the coordinator's last record of the id in time: had that record, or one
before it, ended the transaction here, its marker would stand in between.
Times are the brokers' own (markers, records of the coordinator) and count below the high watermark only, where no
deposed leader's leftovers stand. Nothing may be missing in either log from these places on: the cleaner removes
records that are superseded by newer ones, which an older copy of another segment may lack.

That a broker ended in good order (``.kafka_cleanshutdown``) is no proof. Nothing in a log directory tells how many
brokers there are, others may have gone on, and a copy may mix what was written before and after.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.diagnosis.evidence_text import at, duration
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row, utc
from toolkit.sources.logdir.contents import ReplicaWithCheckpoints
from toolkit.sources.logdir.coordinator.coordinator_state import CLOCKS_APART, CoordinatorState, TransactionLogPartition
from toolkit.sources.logdir.files.broker_lock import is_locked
from toolkit.sources.logdir.files.replica_log import ReplicaLog

__all__ = ["ConsistencyCheck", "check_consistency"]

WORD = "your word that brokers stood still (consistent_copy)"


@dataclass(slots=True)
class ConsistencyCheck:
    """What speaks against a transaction's hanging, and what was found instead.

    Parameters
    ----------
    doubts
        What is missing, a sentence each.
    notes
        What was proven, a sentence each.
    """

    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_consistency(
    txn: OpenTransaction,
    read: ReplicaWithCheckpoints,
    side: CoordinatorState,
    *,
    lowest: int,
    changes: Callable[[ReplicaLog], list[str]] | None,
) -> ConsistencyCheck:
    """What speaks against the hanging of a transaction that no coordinator owns.

    Parameters
    ----------
    case
        The transaction, by a rule of ``hanging``.
    read
        The replica of its partition, read with checksums from `lowest` on.
    side
        ``__transaction_state``.
    lowest
        Start offset of the lowest transaction of the partition that is in question.
    changes
        What has changed in a log since it was listed, where the caller says that brokers stood still; else null.
    """
    start = txn.start or 0
    found = ConsistencyCheck(doubts=[*_of_the_bytes(txn, read, start, lowest), *_of_the_id(txn, side)])
    name = _name(read)
    if changes is not None:
        found.doubts += _not_at_rest(read, side, changes)
        found.notes.append("the caller says that the brokers stood still when these files were taken (consistent_copy)")
    elif not txn.owner:
        found.doubts.append(
            f"{WORD}: no id has producer {txn.producer['producer_id']}, and in files that may be of different moments "
            "that is no proof"
        )
    elif doubt := _not_of_one_moment(txn.owner, read, side.partitions[txn.owner["txn_state_partition"]], start):
        found.doubts.append(f"proof that {name} and {STATE_TOPIC} are of one moment: {doubt}; or {WORD}")
    else:
        found.notes.append(
            f"{name} goes on behind the coordinator's last word, and the coordinator's log behind the start of "
            "the transaction: they are of one moment for it"
        )
    return found


def _name(read: ReplicaWithCheckpoints) -> str:
    where = read.state.log.where
    return f"{where.topic}-{where.partition}"


def _of_the_bytes(txn: OpenTransaction, read: ReplicaWithCheckpoints, start: int, lowest: int) -> Iterable[str]:
    """Whether the segments themselves show the transaction open, from its first batch to the end of the log."""
    state, window, name = read.state, read.state.window, _name(read)
    producer_id = txn.producer["producer_id"]
    if state.log.is_text:
        yield f"the segments of {name}: a printed text shows neither damage nor what was cut"
    damage = [each for each in window.damage if not each.is_torn] + window.wrong_checksums
    if reason := next((each.reason for each in damage if each.reaches(lowest)), None):
        yield f"an undamaged log from offset {start} on: {reason}"
    if hole := window.contiguity.after(start):
        yield f"the log from offset {start} on without a hole: after {hole[0] - 1} comes {hole[1]}"
    offsets, producers, _ = window.control_batches(start)
    for ended in offsets[producers == producer_id][:1]:
        yield f"files that agree: the producer state has it open, and its marker is at {ended}"
    first = window.first_batches.get(start)
    if first is None:
        if not state.log.base_offsets or start >= (state.log_start_offset or 0):
            yield f"the batch at offset {start}, where it begins"
    elif int(first["producer_id"][0]) != producer_id:
        yield f"files that agree: the batch at offset {start} is of producer {int(first['producer_id'][0])}"
    if window.snapshot is None and len(state.log.base_offsets) > 1:
        yield f"a sound producer snapshot of {name}, as a broker writes one with every segment"


def _of_the_id(txn: OpenTransaction, side: CoordinatorState) -> Iterable[str]:
    """An id may have been given this producer id for its next transaction, which no row says that it owns."""
    for partition in side.partitions.values():
        for event in partition.newest.values():
            if event["next_producer_id"] == txn.producer["producer_id"] and not event["tombstone"]:
                yield f'what id "{event["transactional_id"]}" does with this producer id, which is its next one'


def _not_at_rest(
    read: ReplicaWithCheckpoints, side: CoordinatorState, changes: Callable[[ReplicaLog], list[str]]
) -> Iterable[str]:
    """What contradicts the caller: what stood still was not written to, and has lost nothing at its end."""
    reads = {_name(read): read}
    reads |= {f"{STATE_TOPIC}-{number}": partition.read for number, partition in side.partitions.items()}
    for root in {each.state.log.root for each in reads.values()} - {None}:
        if root is not None and is_locked(root):
            yield f"brokers that stand still: one runs on {root.path} and holds its lock"
    for name, each in reads.items():
        if each.state.window.is_torn:
            yield f"the end of {name}: its last batch is torn, so what a crash took with it is not known"
        for change in changes(each.state.log):
            yield f"files that stand still: {name}: {change}"
    for partition in side.partitions.values():
        where = partition.read.state.log.where
        cleaned = partition.read.marks.cleaned.get((where.topic or "", where.partition or 0), -1)
        if hole := partition.read.state.window.contiguity.after(cleaned):
            yield f"{STATE_TOPIC}-{partition.number} without a hole: after {hole[0] - 1} comes {hole[1]}"


def _not_of_one_moment(
    owner: Row, read: ReplicaWithCheckpoints, coordinator: TransactionLogPartition, start: int
) -> str | None:
    """Which step of the proof fails; null where it holds (see the module's text)."""
    event: Mapping[str, object] = coordinator.newest[owner["transactional_id"]]
    spoke, offset = event["timestamp"], event["offset"]
    state, name = read.state, f"{STATE_TOPIC}-{coordinator.number}"
    if not isinstance(spoke, dt.datetime) or not isinstance(offset, int):
        return f"the last record of the id in {name} has no time"
    if state.high_watermark is None:
        return f"the high watermark of {_name(read)} is not known"
    if coordinator.read.state.high_watermark is None or offset >= coordinator.read.state.high_watermark:
        return f"the coordinator's last record of the id, at offset {offset} of {name}, may not be replicated"
    offsets, _, times = state.window.control_batches(start)
    times = times[offsets < state.high_watermark]
    first, last = (utc(int(times[i])) if len(times) else None for i in (0, -1))
    if first is None or last is None or last <= spoke + CLOCKS_APART:
        return (
            f"no marker behind offset {start} is more than {duration(CLOCKS_APART)} newer than the coordinator's last "
            f"word of {at(spoke)}, so this may be an older copy"
        )
    if coordinator.as_of is None or coordinator.as_of <= first + CLOCKS_APART:
        return (
            f"no record of {name} is more than {duration(CLOCKS_APART)} newer than the marker of {at(first)}, before "
            "which the transaction began, so that log may be an older copy"
        )
    if (hole := coordinator.read.state.window.contiguity.after(offset)) is not None:
        return f"{name} has a hole after {hole[0] - 1}, where a newer record of the id may be missing"
    if coordinator.clock_set_back > offset:
        return f"the clock of the coordinator went back at offset {coordinator.clock_set_back} of {name}"
    if np.any(np.diff(times) < -CLOCKS_APART / dt.timedelta(milliseconds=1)):
        return f"the clock of the leader of {_name(read)} went back among its markers"
    changed = [*state.log.changes(appending=True), *coordinator.read.state.log.changes(appending=True)]
    return changed[0] if changed else None
