"""Invariants of every intact log, batch by batch and record by record: what the logs of real brokers must satisfy.

What Kafka does itself is no violation: a marker without data (an empty transaction), the next transaction with the same
epoch (before transaction version 2), offsets and sequence numbers that compaction removed.

Sources: ``ProducerAppendInfo``, ``LogValidator``, ``UnifiedLog``, ``TransactionState`` and ``TransactionMetadata`` in
Kafka, 2.8 to 4.3, with every transition of states observed in the logs of 3.5.2, 3.9.2, 4.0.1 and 4.3.1; KIP-98,
KIP-360, KIP-890.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from toolkit.analysis.transaction_owners import IdReplica, replica_of, state_of
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources.logdir.contents import COMPACTED
from toolkit.sources.logdir.log_dir import LogDir

INVARIANTS = {
    "position": "A batch starts where the one before it in the file ends.",
    "offset_order": "A batch begins after the last offset of the one before it.",
    "offset_gap": "Offsets have no gaps, except after compaction.",
    "offset_range": "The last offset of a batch is not before its first.",
    "record_count": "A batch has one record for each of its offsets; after compaction it may have fewer.",
    "crc": "The bytes of a batch match its checksum.",
    "leader_epoch": "The leader epoch never decreases.",
    "producer_epoch": "The epoch of a producer never decreases.",
    "sequence": "A producer's sequence numbers increase by one, and start at 0 in each epoch.",
    "late_batch": "No transactional batch is written in an epoch that a marker has ended for good.",
    "coordinator_epoch": "The coordinator epoch in a producer's markers never decreases.",
    "coordinator_state": "A transactional id changes its state only as its coordinator allows.",
    "coordinator_producer_epoch": "The epoch that a coordinator writes for a producer id never decreases.",
    "coordinator_producer_id": "A transactional id changes its producer id only at InitProducerId or at a "
    "transaction's end.",
}
SEQUENCES = 2**31  # they wrap around

STATES_BEFORE = {
    # InitProducerId, also repeated after a client error (KIP-360)
    "Empty": "Empty CompleteCommit CompleteAbort Dead",
    # a first or a further partition is added
    "Ongoing": "Empty CompleteCommit CompleteAbort Ongoing",
    # the outcome is decided; the same state again if the append was not acknowledged and is retried
    "PrepareCommit": "Ongoing PrepareCommit",
    "PrepareAbort": "Ongoing PrepareAbort PrepareEpochFence",
    "CompleteCommit": "PrepareCommit CompleteCommit",
    "CompleteAbort": "PrepareAbort CompleteAbort",
    # between Ongoing and a PrepareAbort with a raised epoch; no Kafka release so far writes it to the log
    "PrepareEpochFence": "Ongoing",
    # a tombstone: idle for transactional.id.expiration.ms
    "Dead": "Empty CompleteCommit CompleteAbort Dead",
}
# A client of transaction version 2 may abort without a partition, to raise its epoch.
STATES_BEFORE_IN_VERSION_2 = {"PrepareAbort": "Empty CompleteCommit CompleteAbort"}


class Violation(NamedTuple):
    """A break of an invariant."""

    invariant: str
    offset: int | None  # of the batch or record
    detail: str


def log_dir_violations(files: LogDir) -> list[str]:
    """What is violated in the logs of a log directory."""
    contents, found = files.contents(), []
    for log in contents.logs:
        checkpoints = contents.checkpoints(log.root) if log.root is not None else None
        is_compacted = log.where.topic in COMPACTED or checkpoints is None
        is_compacted |= checkpoints is not None and (not checkpoints.has_cleaned or log.where.tp in checkpoints.cleaned)
        rows = batch_violations(((part.headers, part.file) for part in log.parts(crc=True)), is_compacted)
        if log.where.topic == STATE_TOPIC:
            rows += record_violations(log.transaction_log())
        found += [f"{log.where.topic}-{log.where.partition} at {row.offset}: {row.detail}" for row in rows]
    return found


def batch_violations(parts: Iterable[tuple[Headers, str | None]], is_compacted: bool = False) -> list[Violation]:
    """Violations in the batches of a partition: parts of its log, each with its file if positions count."""
    found: list[Violation] = []
    producers: defaultdict[int, _Producer] = defaultdict(_Producer)
    before, file_before, leader_epoch = None, None, -1
    for headers, file in parts:
        for row in headers.tolist():
            batch = dict(zip(headers.dtype.names or (), row, strict=True))
            details = [*_alone(batch, is_compacted)]
            if before is not None:
                details += _after(batch, before, is_compacted, has_position=file is not None and file == file_before)
            if 0 <= batch["leader_epoch"] < leader_epoch:
                details.append(("leader_epoch", f"Leader epoch {batch['leader_epoch']} follows {leader_epoch}."))
            ends = batch["marker"] in {COMMIT, ABORT, UNREAD_MARKER}
            if batch["producer_id"] >= 0 and batch["magic"] >= 2 and (ends or not batch["attributes"] & CONTROL):
                details += producers[batch["producer_id"]].add(batch, is_compacted)
            found += [Violation(name, batch["base_offset"], detail) for name, detail in details]
            before, file_before, leader_epoch = batch, file, max(leader_epoch, batch["leader_epoch"])
    return found


def _alone(batch: dict[str, Any], is_compacted: bool) -> Iterator[tuple[str, str]]:
    """Invariants of a single batch."""
    first, last, count = batch["base_offset"], batch["last_offset"], batch["record_count"]
    offsets = last - first + 1
    if offsets <= 0:
        yield "offset_range", f"Its offsets are {first} to {last}."
    elif batch["magic"] >= 2 and count >= 0 and (count > offsets or (count < offsets and not is_compacted)):
        yield "record_count", f"{count} records have {offsets} offsets."
    if batch["crc_ok"] == 0:
        yield "crc", f"The bytes do not match the checksum {batch['crc']:#010x}."


def _after(
    batch: dict[str, Any], before: dict[str, Any], is_compacted: bool, *, has_position: bool
) -> Iterator[tuple[str, str]]:
    """Invariants of a batch and the one before it."""
    first, last = batch["base_offset"], before["last_offset"]
    if first <= last:
        yield "offset_order", f"It follows offset {last}."
    elif first > last + 1 and not is_compacted:
        yield "offset_gap", f"{first - last - 1} offsets are missing after {last}."
    end = before["position"] + before["size"]
    if has_position and batch["position"] != end:
        yield "position", f"It starts at byte {batch['position']}; the one before it ends at {end}."


class _Producer:
    """What the leader remembers of a producer, and whether its markers raise the epoch (transaction version 2)."""

    def __init__(self) -> None:
        self.epoch: int | None = None  # the highest
        self.marker: dict[str, Any] | None = None  # the last one
        self.coordinator_epoch = -1
        self.sequence: tuple[int, int] | None = None  # epoch and next sequence number of the last data that has one
        self.before: dict[str, Any] | None = None  # the last batch
        self.is_raised = False  # whether a marker that raised the epoch of open data began the run of this epoch
        self.wrote = False  # whether the run has transactional data

    def add(self, batch: dict[str, Any], is_compacted: bool) -> Iterator[tuple[str, str]]:
        epoch, sequence, who = batch["producer_epoch"], batch["base_sequence"], f"Producer {batch['producer_id']}"
        is_marker = bool(batch["attributes"] & CONTROL)
        is_in_transaction = not is_marker and bool(batch["attributes"] & TRANSACTIONAL)
        before, marker, newest = self.before, self.marker, self.epoch
        begins_run = before is None or before["producer_epoch"] != epoch
        if is_in_transaction and marker is not None and epoch < marker["producer_epoch"]:
            yield (
                "late_batch",
                f"{who} writes with epoch {epoch} after its marker with epoch {marker['producer_epoch']}.",
            )
        elif newest is not None and epoch < newest:
            yield "producer_epoch", f"{who} writes with epoch {epoch} after {newest}."
        elif (
            self.is_raised
            and self.wrote
            and is_in_transaction
            and before is marker
            and not (begins_run or is_compacted)
        ):
            yield "late_batch", f"{who} writes with epoch {epoch} again, though its markers raise the epoch."
        if not is_marker and sequence >= 0:
            if self.sequence is not None:
                last_epoch, following = self.sequence
                expected = following if last_epoch == epoch else 0
            else:
                expected = 0 if newest is not None and epoch > newest else sequence
            if sequence != expected and (newest is None or epoch >= newest) and not is_compacted:
                yield "sequence", f"{who}, epoch {epoch}, has sequence {sequence}, not {expected}."
            self.sequence = epoch, (sequence + batch["last_offset"] - batch["base_offset"] + 1) % SEQUENCES
        if is_marker and batch["coordinator_epoch"] >= 0:
            if batch["coordinator_epoch"] < self.coordinator_epoch:
                text = f"has coordinator epoch {batch['coordinator_epoch']} after {self.coordinator_epoch}."
                yield "coordinator_epoch", f"A marker of {who} {text}"
            self.coordinator_epoch = batch["coordinator_epoch"]
        if begins_run:
            opened = before is not None and not before["attributes"] & CONTROL and before["attributes"] & TRANSACTIONAL
            self.is_raised = is_marker and bool(opened) and before is not None and before["producer_epoch"] < epoch
            self.wrote = False
        self.wrote |= is_in_transaction
        self.epoch = epoch if newest is None else max(newest, epoch)
        self.marker, self.before = batch if is_marker else marker, batch


def record_violations(records: Iterable[TransactionLogRecord]) -> list[Violation]:
    """Violations in the records of coordinators.

    `records`: in offset order within a partition; compacted or not. An unreadable record is no violation, and the next
    record is not compared with earlier ones.
    """
    last: dict[IdReplica, TransactionLogRecord] = {}
    found: list[Violation] = []
    for record in records:
        replica = replica_of(record)
        if record.transactional_id is None:
            if record.error:
                last = {each: known for each, known in last.items() if each[1:] != replica[1:]}
            continue
        before = last.pop(replica, None)
        if record.error:
            continue
        last[replica] = record
        if before is not None:
            found += [Violation(name, record.offset, detail) for name, detail in _steps(before, record)]
    return found


def _steps(before: TransactionLogRecord, record: TransactionLogRecord) -> Iterator[tuple[str, str]]:
    """Violations of a record, compared with the one before it."""
    state, last_state = state_of(record) or "", state_of(before) or ""
    allowed = STATES_BEFORE.get(state, "").split()
    if (record.client_transaction_version or 0) >= 2:
        allowed += STATES_BEFORE_IN_VERSION_2.get(state, "").split()
    if last_state not in allowed:
        yield "coordinator_state", f"{state} follows {last_state} at offset {before.offset}."
    if before.tombstone or record.tombstone:
        return
    last_id, producer_id = before.producer_id, record.producer_id
    last_epoch, epoch = before.producer_epoch, record.producer_epoch
    if producer_id != last_id and state not in {"Empty", "CompleteCommit", "CompleteAbort"}:
        yield "coordinator_producer_id", f"{state} has producer id {producer_id}; the record before it has {last_id}."
    if producer_id == last_id and epoch is not None and last_epoch is not None and epoch < last_epoch:
        yield "coordinator_producer_epoch", f"Epoch {epoch} of producer {producer_id} follows {last_epoch}."
