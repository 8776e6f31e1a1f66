"""An open transaction on one partition: its state, what a marker changes, its copy, and who received its records."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import ActionRefused, BrokerError, DecodeError, NotFound, ToolkitError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, read_group_key, read_offset_commit
from toolkit.schema import SAVED_RECORDS, utc
from toolkit.schema.live import Finding, Partition, Producer
from toolkit.schema.recorded import SavedHeader, SavedRecord
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.coordinator_logs import LastBatch, OpenBatch, open_batches
from toolkit.sources.live.group_offsets import committed_offsets, group_ids
from toolkit.sources.live.transactions import read_committed
from toolkit.sources.offset_queries import CommittedOffset
from toolkit.sources.recording.recorder import flush

if TYPE_CHECKING:
    from toolkit.formats.batch_records import Record
    from toolkit.formats.headers import Headers
    from toolkit.sources.live.cluster import Cluster

MAX_IMPACT_BYTES, IMPACT_TIMEOUT_S = 64 << 20, 10.0  # of the log, for what a marker changes
MAX_SAVE_BYTES = 256_000_000
"""Bytes of a transaction in the log that are saved without a question."""
ROW_GROUP_BYTES = 8 << 20  # of keys, values and headers; bounds the memory
MAX_ROWS = 100_000
MAX_RECORDS = 10_000
"""Records of a transaction that a read_committed consumer looks for."""
POLL_S = 0.05
NOT_SENT = "Nothing was written: the marker would have discarded them."


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """An offset that a group committed within the transaction; a null offset removes the group's."""

    group_id: str
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerImpact:
    """What a marker changes for read_committed consumers of its partition."""

    # data records of the transaction; null if the log was not read so far. After a commit they become visible; after an
    # abort nobody receives them.
    records: int | None
    size: int | None  # bytes of its batches in the log; also known if the read ended behind its last batch
    # first_offset, last_offset: of its batches that are left in the log; null if there is none, or it is not known
    first_offset: int | None
    last_offset: int | None
    # data records of others behind the LSO that can be read then; null if the log was not read so far
    records_released: int | None
    groups: Sequence[str] | None  # groups that continue; null if unknown
    # last_stable_offset, next_stable_offset: the LSO now, and where it would go, before the marker's own offset
    last_stable_offset: int
    next_stable_offset: int
    # next_start_offset, next_producer_id: the transaction that holds the LSO then; null if none does
    next_start_offset: int | None
    next_producer_id: int | None
    # on ``__consumer_offsets``, the offsets that become their groups' by a commit, the newest of each; empty elsewhere.
    # A group that has committed a newer offset since keeps that one.
    offset_commits: Sequence[OffsetCommitted] = ()
    unread: str = ""  # why a count is null; empty if none is

    @property
    def planned_lso(self) -> int:
        """The LSO after the marker, which takes an offset of its own where nothing else is open."""
        return self.next_stable_offset + (self.next_start_offset is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransaction:
    """An open transaction on one partition, as its leader had it when it was planned."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    # coordinator_epoch, last_sequence, last_timestamp: what the leader knew of its producer; null where it knew none
    coordinator_epoch: int | None
    last_sequence: int | None
    last_timestamp: dt.datetime | None = field(repr=False)
    # leader, leader_epoch: who led the partition before it was observed
    leader: int | None = field(default=None, repr=False, compare=False)
    leader_epoch: int | None = field(default=None, repr=False, compare=False)
    basis: Finding = field(repr=False, compare=False)  # the finding that justifies the action, with its evidence
    # what its marker would change; null where it is not asked
    impact: MarkerImpact | None = field(default=None, repr=False, compare=False)

    @property
    def tp(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def target(self) -> str:
        """What a person types to confirm its marker: ``orders-0@913095344``."""
        return f"{self.tp}@{self.start_offset}"

    @property
    def last(self) -> LastBatch:
        """Its last batch by the producer's state; group coordinators give each of theirs sequence number 0."""
        return LastBatch(self.producer_epoch, None if self.topic == OFFSETS_TOPIC else self.last_sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What an action changed on a partition."""

    topic: str
    partition: int
    # last_stable_offset_before, last_stable_offset_after, high_watermark: the LSO before and after, and the high
    # watermark
    last_stable_offset_before: int | None
    last_stable_offset_after: int | None
    high_watermark: int | None
    next_start_offset: int | None  # first offset of the transaction that holds the LSO next; null if none does
    observed_at: dt.datetime
    # records_checked, records_delivered: records of the transaction that were looked for by a read_committed consumer,
    # and those that it received. Null if nobody looked, or the LSO is held before them, so that no such consumer gets
    # that far.
    records_checked: int | None = None
    records_delivered: int | None = None


def transaction_at(
    cluster: Cluster, tp: TopicPartition, *, start_offset: int, recheck_after: float | None = None
) -> Finding:
    """The finding of the transaction that starts at an offset of a partition.

    `recheck_after`: as for `Cluster.findings`.
    Raises NotFound if there is none. Raises BrokerError if it cannot be known whether there is one.
    """
    found = cluster.records(Finding, partitions=[tp], recheck_after=recheck_after)
    for each in found:
        if each.tp == tp and each.start_offset == start_offset:
            return each
    check_was_read(found, tp, what=f"a transaction is open at offset {start_offset}")
    raise NotFound(
        f"{tp} has no open transaction that starts at offset {start_offset}.",
        means="There never was one, or it has ended.",
        do="Diagnose it again.",
        command=("kafka-txn", "diagnose", *tp.options),
    )


def check_was_read(found: Iterable[Finding], tp: TopicPartition, *, what: str) -> None:
    """Raise BrokerError if the partition of a row that is missing was not read: then the row proves nothing.

    `found`: the findings of the partition. `what`: what is not known then, as a clause.
    """
    for each in found:
        if each.tp == tp and each.is_not_read:
            why = each.error or "; ".join(each.missing)
            raise BrokerError(
                f"{tp} could not be read: {why.rstrip('.')}.",
                code=Error.of(each.error).code,
                means=f"Whether {what} is not known.",
                do="Get what is missing, and diagnose it again.",
                command=("kafka-txn", "diagnose", *tp.options),
            )


def partition_view(cluster: Cluster, tp: TopicPartition) -> Partition:
    """The partition as its leader has it. Raises BrokerError if it cannot be read."""
    return readable(cluster.records(Partition, partitions=[tp]), tp)


def readable(partitions: Iterable[Partition], tp: TopicPartition) -> Partition:
    """One of some partitions. Raises BrokerError if it could not be read."""
    found = next((each for each in partitions if each.tp == tp), None)
    error = f"NOT_READ: no answer has {tp}" if found is None else found.error
    if error or found is None:
        raise BrokerError(f"{tp} cannot be read: {error}.", code=Error.of(error).code)
    return found


def producers_on(producers: Iterable[Producer], tp: TopicPartition) -> list[Producer]:
    """The producers of a partition. Raises BrokerError if its leader does not show them."""
    found = [each for each in producers if each.tp == tp]
    for each in found:
        if each.error:
            raise BrokerError(
                f"Broker {each.broker_id} does not show the producers of {tp}: {each.error}.",
                code=Error.of(each.error).code,
            )
    return found


def planned_transaction(
    found: Finding, partition: Partition, producers: Sequence[Producer]
) -> PlannedTransaction | None:
    """A finding's transaction with its producer's state; null if it is not open any more.

    `partition`, `producers`: of its partition, without an error.
    """
    mine = (found.producer_id, found.start_offset)
    state = next((each for each in producers if (each.producer_id, each.current_txn_start_offset) == mine), None)
    if state is None or found.producer_id is None or found.producer_epoch is None or found.start_offset is None:
        return None
    return PlannedTransaction(
        topic=partition.topic,
        partition=partition.partition,
        start_offset=found.start_offset,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=state.coordinator_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        basis=found,
    )


def open_state(cluster: Cluster, txn: PlannedTransaction, *, broker_id: int | None = None) -> Producer | None:
    """The leader's producer state of this very transaction; null once it has ended."""
    mine = (txn.producer_id, txn.producer_epoch, txn.start_offset)
    for each in producers_on(cluster.records(Producer, partitions=[txn.tp], broker_id=broker_id), txn.tp):
        if (each.producer_id, each.producer_epoch, each.current_txn_start_offset) == mine:
            return each
    return None


def check_ended(
    cluster: Cluster, txn: PlannedTransaction, check: Callable[[], None] = lambda: None, *, patience: float = 0.0
) -> None:
    """Raise BrokerError if no marker has ended the transaction, which may be on its way for some seconds.

    `check`: called while it waits; what it raises ends the wait.
    """
    deadline = time.monotonic() + patience
    while open_state(cluster, txn) is not None:
        if time.monotonic() >= deadline:
            raise BrokerError(
                f"{txn.target} is still open: no marker has ended it.",
                code="NONE",
                do="Diagnose it again before you send another marker.",
                command=("kafka-txn", "diagnose", *txn.tp.options),
            )
        check()
        threading.Event().wait(POLL_S)


def lso_moved(cluster: Cluster, txn: PlannedTransaction, check: Callable[[], None]) -> PartitionResult:
    """The LSO once it has moved as far as it can: a marker counts once the high watermark has passed it.

    `txn`: the transaction before its marker. `check`: called while it waits; what it raises ends the wait.
    """
    before, deadline = txn.basis.last_stable_offset, time.monotonic() + cluster.timeout
    while True:
        now = partition_view(cluster, txn.tp)
        lso = now.last_stable_offset
        moved = lso is not None and (before is None or lso > before or txn.basis.queue_position != 1)
        if moved or time.monotonic() > deadline:
            producers = producers_on(cluster.records(Producer, partitions=[txn.tp]), txn.tp)
            starts = [each.current_txn_start_offset for each in producers]
            return PartitionResult(
                topic=txn.topic,
                partition=txn.partition,
                last_stable_offset_before=before,
                last_stable_offset_after=lso,
                high_watermark=now.high_watermark,
                next_start_offset=min((each for each in starts if each is not None), default=None),
                observed_at=now.observed_at,
            )
        check()
        threading.Event().wait(POLL_S)


# What a marker changes


def marker_impact(
    cluster: Cluster, txn: PlannedTransaction, *, partition: Partition, producers: Sequence[Producer]
) -> MarkerImpact:
    """What ending a transaction changes; reads the log from it to the high watermark, at most some megabytes.

    `partition`, `producers`: of its partition, as its leader has them, without an error.
    """
    lso, high_watermark = partition.last_stable_offset or 0, partition.high_watermark or 0
    others = [
        (each.current_txn_start_offset, each.producer_id)
        for each in producers
        if each.current_txn_start_offset is not None and each.producer_id != txn.producer_id
    ]
    next_start, next_producer = min(others, default=(None, None))
    next_lso = max(lso, min(high_watermark, high_watermark if next_start is None else next_start))
    first = max(min(txn.start_offset, lso), partition.log_start_offset or 0)
    headers, unread = _headers(cluster, partition, first, high_watermark)
    records = released = None
    if not unread:
        from toolkit.analysis.diagnosis.causes import abort_effects  # imports numpy

        records, released = abort_effects(
            headers,
            producer_id=txn.producer_id,
            start_offset=txn.start_offset,
            last_stable_offset=lso,
            next_stable_offset=next_lso,
        )
    own = _own_batches(headers, txn, producers, is_whole=not unread)
    commits: Sequence[OffsetCommitted] = ()
    if txn.topic == OFFSETS_TOPIC and not unread:  # else they are read to the high watermark, however far that is
        try:
            commits = offset_commits(cluster, txn, partition)
        except ToolkitError as error:
            unread = error.what
    return MarkerImpact(
        records=records,
        records_released=released,
        groups=txn.basis.groups_held if next_lso > lso else (),
        size=None if own is None else int(own["size"].sum()),
        first_offset=int(own["base_offset"][0]) if own is not None and len(own) else None,
        last_offset=int(own["last_offset"][-1]) if own is not None and len(own) else None,
        last_stable_offset=lso,
        next_stable_offset=next_lso,
        next_start_offset=next_start,
        next_producer_id=next_producer,
        offset_commits=commits,
        unread=unread,
    )


def batches_of(cluster: Cluster, txn: PlannedTransaction, partition: Partition) -> Generator[OpenBatch, None, None]:
    """The open batches of a transaction, in offset order."""
    batches = open_batches(
        cluster.client, partition, producer_id=txn.producer_id, start_offset=txn.start_offset, last=txn.last
    )
    with closing(batches):
        yield from batches


def first_epoch(cluster: Cluster, txn: PlannedTransaction) -> int | None:
    """The epoch of the first open batch that is left in the log; null if none is."""
    batches = batches_of(cluster, txn, partition_view(cluster, txn.tp))
    first = next(batches, None)
    batches.close()
    return None if first is None else first.producer_epoch


def offset_commits(cluster: Cluster, txn: PlannedTransaction, partition: Partition) -> tuple[OffsetCommitted, ...]:
    """The newest offset of each group and partition that the transaction commits.

    Raises DecodeError if a newer Kafka wrote it: a plan without it would leave out a group.
    """
    found: dict[tuple[str, str, int], OffsetCommitted] = {}
    for batch in batches_of(cluster, txn, partition):
        for record in batch.records():
            key = read_group_key(record.key or b"")
            if key is None or key.topic is None or key.partition is None:
                continue  # no committed offset
            offset = None if record.value is None else read_offset_commit(record.value).offset
            found[key.group_id, key.topic, key.partition] = OffsetCommitted(
                group_id=key.group_id, topic=key.topic, partition=key.partition, offset=offset
            )
    return tuple(found[key] for key in sorted(found))


def _own_batches(
    headers: Headers, txn: PlannedTransaction, producers: Sequence[Producer], *, is_whole: bool
) -> Headers | None:
    """The transaction's batches; null if its last one, by the leader's state, was not read."""
    from toolkit.formats.batches import CONTROL, TRANSACTIONAL

    is_data = (headers["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    is_own = (headers["producer_id"] == txn.producer_id) & (headers["last_offset"] >= txn.start_offset)
    own: Headers = headers[is_data & is_own]
    if is_whole:
        return own
    state = next((each for each in producers if each.producer_id == txn.producer_id), None)
    if state is None or not len(own) or txn.topic == OFFSETS_TOPIC:
        return None
    last = own[-1]
    sequence = (int(last["base_sequence"]) + int(last["last_offset"]) - int(last["base_offset"])) % (1 << 31)
    return own if (int(last["producer_epoch"]), sequence) == (state.producer_epoch, state.last_sequence) else None


def _headers(cluster: Cluster, partition: Partition, first: int, stop: int) -> tuple[Headers, str]:
    """Batches of a range, and why they are incomplete; empty if they are complete."""
    import numpy as np

    from toolkit.formats.headers import HEADER
    from toolkit.sources.live.partition_log import read_offsets
    from toolkit.sources.offset_reader import wrong_checksums

    parts: list[Headers] = [np.empty(0, HEADER)]
    size, deadline, unread = 0, time.monotonic() + IMPACT_TIMEOUT_S, ""
    with closing(read_offsets(cluster.client, partition, first, stop, crc=True).chunks) as chunks:
        for chunk in chunks:
            if damage := [*(each.reason for each in chunk.damage), *wrong_checksums(chunk.headers)]:
                unread = f"The log could not be read: {damage[0]}"
                break
            parts.append(chunk.headers)
            size += len(chunk.records)
            reached = int(parts[-1]["last_offset"][-1]) + 1 if len(parts[-1]) else stop
            if reached < stop and (size >= MAX_IMPACT_BYTES or time.monotonic() > deadline):
                unread = f"The log was read from offset {first} to {reached} ({size} bytes) and not to {stop}."
                break
    return np.concatenate(parts), unread


# The copy of what an abort discards


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecords:
    """A file of saved records: its path, how many there are, and their size in the log."""

    path: Path
    records: int
    size: int

    def discard(self) -> None:
        """Delete the file, and its folder if that is empty: nothing was aborted."""
        _remove(self.path)


def save_records(
    cluster: Cluster,
    txn: PlannedTransaction,
    path: Path,
    *,
    max_bytes: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> SavedRecords:
    """Write every record of an open transaction on a partition to a new file, and flush it to disk.

    `path`: as of `Audit.records_path`. The file gets mode 0600, and its folder 0700.
    `max_bytes`: limit of its size in the log; `MAX_SAVE_BYTES` if null.
    `check`: called for each batch; what it raises ends the work.
    Raises ActionRefused if the records could not be read or written, or are more than the limit. No file is left then.
    """
    partition = partition_view(cluster, txn.tp)
    batches = _limited(batches_of(cluster, txn, partition), MAX_SAVE_BYTES if max_bytes is None else max_bytes, check)
    hidden = final = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        records, size = _write(hidden, batches, partition)
        final = _reserved(path)
        hidden.replace(final)
        flush(path.parent)
        flush(path.parent.parent)  # the name of a new folder is on disk once its parent is synced
    except BaseException as error:
        for left in {hidden, final}:
            _remove(left)
        if isinstance(error, OSError):
            raise ActionRefused(
                f"The records could not be saved to {path}: {error.strerror or error}.",
                means=NOT_SENT,
                do="Name another audit file by --audit-file: the records are saved beside it.",
            ) from error
        if isinstance(error, ToolkitError) and not isinstance(error, ActionRefused):
            what = f"The records could not be saved: {error.what}"
            raise ActionRefused(what, means=NOT_SENT, do=error.do) from error
        raise
    return SavedRecords(path=final, records=records, size=size)


def _remove(path: Path) -> None:
    """Delete a file, and its folder if that is empty."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _limited(batches: Iterable[OpenBatch], max_bytes: int, check: Callable[[], None]) -> Iterator[OpenBatch]:
    size = 0
    for batch in batches:
        check()
        size += batch.size
        if size > max_bytes:
            raise ActionRefused(
                f"The transaction's records take more than {max_bytes} bytes, the limit for saving them.",
                means=NOT_SENT,
                do="Raise --max-save-bytes. Where the outcome is proven, --no-save-records goes on without a copy.",
            )
        yield batch


def _write(path: Path, batches: Iterable[OpenBatch], partition: Partition) -> tuple[int, int]:
    """Number of records, and their size in the log."""
    import pyarrow.parquet as pq

    count = size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with pq.ParquetWriter(file, SAVED_RECORDS.arrow_schema, compression="zstd") as writer:
            for rows, in_log in _row_groups(batches, partition):
                writer.write_table(SAVED_RECORDS.arrow(rows))
                count, size = count + len(rows), size + in_log
        file.flush()
        os.fsync(file.fileno())
    return count, size


def _reserved(path: Path) -> Path:
    """An empty file of that name, or with a number where there is one: no copy replaces another."""
    number, final = 1, path
    while True:
        try:
            os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            number += 1
            final = path.with_name(f"{path.stem}.{number}{path.suffix}")
        else:
            return final


def _row_groups(batches: Iterable[OpenBatch], partition: Partition) -> Iterator[tuple[list[SavedRecord], int]]:
    rows: list[SavedRecord] = []
    waiting = in_log = 0
    for batch in batches:
        in_log += batch.size
        for record in batch.records():
            rows.append(_row(record, batch, partition))
            waiting += _size(record)
            if waiting > ROW_GROUP_BYTES or len(rows) == MAX_ROWS:
                yield rows, in_log
                rows, waiting, in_log = [], 0, 0
    yield rows, in_log


def _size(record: Record) -> int:
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _row(record: Record, batch: OpenBatch, partition: Partition) -> SavedRecord:
    row = SavedRecord(
        topic=partition.topic,
        partition=partition.partition,
        offset=record.offset,
        timestamp=utc(record.timestamp_ms),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        key=record.key,
        value=record.value,
        headers=tuple(SavedHeader(key=key.decode(errors="replace"), value=value) for key, value in record.headers),
    )
    return _with_offset_commit(row) if partition.topic == OFFSETS_TOPIC else row


def _with_offset_commit(row: SavedRecord) -> SavedRecord:
    """The columns of a committed offset decoded; null for what is none, or of a newer Kafka: its bytes are saved."""
    try:
        key = read_group_key(row.key or b"")
        if key is None or key.kind != "offset_commit":
            return row
        commit = None if row.value is None else read_offset_commit(row.value)
    except DecodeError:
        return row
    return replace(
        row,
        group_id=key.group_id,
        committed_topic=key.topic,
        committed_partition=key.partition,
        committed_offset=None if commit is None else commit.offset,
        committed_leader_epoch=None if commit is None else commit.leader_epoch,
    )


# What consumers receive after a marker


def delivered(
    cluster: Cluster, txn: PlannedTransaction, done: PartitionResult, check: Callable[[], None]
) -> PartitionResult:
    """Read the transaction's records as a read_committed consumer does, at most `MAX_RECORDS` of them.

    Returns: the result with their numbers; without, if another transaction holds the LSO before the first of them.
    `check`: called while it waits; what it raises ends the read.
    Raises BrokerError if the consumer comes to none of them in time.
    """
    expected: set[int] = set()
    lso = done.last_stable_offset_after
    for batch in batches_of(cluster, txn, partition_view(cluster, txn.tp)):
        check()
        if lso is None or batch.base_offset >= lso or len(expected) >= MAX_RECORDS:
            break
        expected.update(record.offset for record in batch.records())
    if not expected:
        return done
    found = read_committed(
        cluster.config, txn.topic, txn.partition, min(expected), max(expected) + 1, timeout=cluster.timeout, check=check
    )
    checked = {offset for offset in expected if offset < found.reached}
    if not checked:  # it is no "0 of 0": nobody has looked
        raise BrokerError(
            f"A read_committed consumer did not come to the records of {txn.target} within {cluster.timeout:g} s.",
            code="REQUEST_TIMED_OUT",
            do="Read the partition with a consumer of your own.",
        )
    return replace(done, records_checked=len(checked), records_delivered=len(checked & {*found.offsets}))


def check_delivered(done: PartitionResult, txn: PlannedTransaction, *, is_commit: bool) -> None:
    """Raise BrokerError if a read_committed consumer has not received a commit, or has received an abort."""
    checked, received = done.records_checked or 0, done.records_delivered or 0
    if is_commit and received < checked:
        raise BrokerError(
            f"A read_committed consumer received {received} of {checked} records of {txn.target}.",
            code="NONE",
            do="Read the partition with a consumer of your own, and keep this output.",
        )
    if received and not is_commit:
        raise BrokerError(
            f"A read_committed consumer received {received} records of {txn.target} after its abort.", code="NONE"
        )


def group_offsets(
    cluster: Cluster, commits: Sequence[OffsetCommitted]
) -> tuple[tuple[OffsetCommitted, ...], tuple[str, ...]]:
    """The offsets that the groups of these commits have now, and the groups whose this principal may not read.

    Raises BrokerError if a group still has a pending commit of an open transaction there, or its offsets cannot be
    read.
    """
    coordinators = group_ids(cluster.client, sorted(cluster.client.brokers))
    found: list[OffsetCommitted] = []
    groups = {each.group_id for each in commits}
    hidden = groups - coordinators.keys()
    deadline = time.monotonic() + cluster.timeout
    for group in sorted(groups & coordinators.keys()):
        wanted = [each for each in commits if each.group_id == group]
        named = [TopicPartition(each.topic, each.partition) for each in wanted]  # else a pending one would be "none"
        offsets = committed_offsets(cluster.client, group, coordinators[group], named)
        while any(_of(each, offsets).is_pending for each in wanted) and time.monotonic() < deadline:
            threading.Event().wait(POLL_S)  # coordinators up to 3.9 learn of the marker a moment after the leader
            offsets = committed_offsets(cluster.client, group, coordinators[group], named)
        for each in wanted:
            offset, error = _of(each, offsets)
            if Error.of(error).code == "TOPIC_AUTHORIZATION_FAILED":
                hidden.add(group)
                continue
            if error:
                raise BrokerError(
                    f"Group {group!r} cannot read its offset of {each.topic}-{each.partition}: {error}.",
                    code=Error.of(error).code,
                )
            found.append(replace(each, offset=offset))
    return tuple(found), tuple(sorted(hidden))


def _of(commit: OffsetCommitted, offsets: Mapping[TopicPartition, CommittedOffset]) -> CommittedOffset:
    return offsets.get(TopicPartition(commit.topic, commit.partition), CommittedOffset(None, None))
