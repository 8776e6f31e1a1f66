"""Small log directories for tests, written by hand where a real broker would take too long or cannot be made to."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from google_crc32c import value as crc32c

from toolkit import LogDir
from toolkit.formats.coordinator_records import STATES, coordinator_partition
from toolkit.formats.scan import scan_file
from toolkit.sources.live.broker_client import write_batch

META = "meta.properties"
CLUSTER = "xRkncQT9TEa2WI1kTHANEQ"
NOON = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
STATE_TOPIC = "__transaction_state"
SEGMENT = "00000000000000000000.log"
HIGH_WATERMARK, CLEANED = "replication-offset-checkpoint", "cleaner-offset-checkpoint"


def after(**log_transaction: float) -> dt.datetime:
    """So long after noon."""
    return NOON + dt.timedelta(**log_transaction)


def write_root(path: Path, *, broker_id: int = 1, cluster_id: str = CLUSTER) -> Path:
    """An empty log directory."""
    path.mkdir(parents=True, exist_ok=True)
    (path / META).write_text(f"#\nnode.id={broker_id}\nversion=1\ncluster.id={cluster_id}\n")
    return path


def partition_folder(root: Path, name: str, *more: str) -> Path:
    """A partition's folder with a segment of three records, and empty files."""
    folder = write_log(root, name, [write_batch([(None, b"1"), (None, b"2"), (None, b"3")], timestamp=NOON)])
    for each in more:
        (folder / each).touch()
    return folder


def write_log(root: Path, name: str, batches: Iterable[bytes], *, base_offset: int = 0) -> Path:
    """A segment with these batches in a partition's folder."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base_offset:020}.log").write_bytes(b"".join(batches))
    return folder


def write_checkpoint(root: Path, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """A checkpoint of offsets by topic and partition."""
    lines = ["0", str(len(offsets)), *(f"{topic} {number} {offset}" for (topic, number), offset in offsets.items())]
    (root / name).write_text("\n".join(lines) + "\n")


def write_snapshot(folder: Path, offset: int, open_at: Mapping[int, int | None]) -> None:
    """A producer snapshot: producer id to the start of its open transaction."""
    entries = b"".join(
        struct.pack(">qhiqiqiq", producer_id, 0, 0, 0, 0, 0, -1, -1 if start is None else start)
        for producer_id, start in open_at.items()
    )
    covered = struct.pack(">i", len(open_at)) + entries
    (folder / f"{offset:020}.snapshot").write_bytes(struct.pack(">hI", 1, crc32c(covered)) + covered)


def data(
    offset: int, producer_id: int, at: dt.datetime, *, epoch: int = 0, sequence: int = 0, records: int = 1
) -> bytes:
    """A transactional batch."""
    return write_batch(
        [(b"key", b"value")] * records,
        timestamp=at,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        base_offset=offset,
    )


def marker(offset: int, producer_id: int, at: dt.datetime, *, epoch: int = 0, commit: bool = True) -> bytes:
    """A control batch."""
    batch = bytearray(
        write_batch(
            [(struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 3))],
            timestamp=at,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            base_offset=offset,
        )
    )
    batch[21:23] = struct.pack(">h", 0x30)
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    return bytes(batch)


def in_epoch(batch: bytes, leader_epoch: int = 0) -> bytes:
    """The batch as a leader of this epoch has written it; no checksum covers that."""
    return batch[:12] + struct.pack(">i", leader_epoch) + batch[16:]


def state_record(
    offset: int,
    transactional_id: str,
    producer_id: int,
    state: str,
    at: dt.datetime,
    *,
    epoch: int = 0,
    on: Sequence[tuple[str, int]] = (),
    updated: dt.datetime | None = None,
    next_producer_id: int | None = None,
    version: int | None = None,
) -> bytes:
    """A record of ``__transaction_state``: value version 1 if it has the next producer id, else 0."""
    changed = int((updated or at).timestamp() * 1000)
    flexible = next_producer_id is not None
    head = struct.pack(
        ">hqhib", int(flexible) if version is None else version, producer_id, epoch, 60_000, STATES.index(state)
    )
    times = struct.pack(">qq", changed, changed)
    if next_producer_id is not None:
        value = head + b"\0" + times + b"\1\1\x08" + struct.pack(">q", next_producer_id)  # no partitions, one tag
    else:
        topics = (struct.pack(">h", len(t)) + t.encode() + struct.pack(">ii", 1, number) for t, number in on)
        value = head + struct.pack(">i", len(on) or -1) + b"".join(topics) + times
    return write_batch([(_key(transactional_id), value)], timestamp=at, base_offset=offset)


def tombstone(offset: int, transactional_id: str, at: dt.datetime) -> bytes:
    """The record that an id has expired."""
    return write_batch([(_key(transactional_id), None)], timestamp=at, base_offset=offset)


def ids_of(partition: int, count: int, *, partitions: int = 50) -> list[str]:
    """Transactional ids that hash to a partition."""
    found = (f"id-{number}" for number in range(100_000))
    return [each for each, _ in zip((i for i in found if coordinator_partition(i, partitions) == partition),
                                    range(count), strict=False)]  # fmt: skip


def write_state_topic(root: Path, batches: Mapping[int, Sequence[bytes]] = {}, *, partitions: int = 50) -> None:
    """All partitions of ``__transaction_state``, most of them empty."""
    for number in range(partitions):
        write_log(root, f"{STATE_TOPIC}-{number}", batches.get(number, ()))


def compact_state_topic(root: Path) -> None:
    """Leave only the last record of each transactional id, as the cleaner does."""
    rows = [row for row in LogDir(root).transaction_log().to_dict("records") if row["transactional_id"]]
    last = {(row["txn_state_partition"], row["transactional_id"]): row["offset"] for row in rows}
    kept = {(number, offset) for (number, _), offset in last.items()}
    ends = {}
    for number in {row["txn_state_partition"] for row in rows}:
        folder = root / f"{STATE_TOPIC}-{number}"
        (segment,) = folder.glob("*.log")
        (scanned,) = scan_file(segment)
        content, headers = segment.read_bytes(), scanned.headers
        batches = [
            content[header["position"] : header["position"] + header["size"]]
            for header in headers
            if (number, header["base_offset"]) in kept
        ]
        for file in folder.glob("0*"):
            file.unlink()
        segment.write_bytes(b"".join(batches))
        ends[STATE_TOPIC, number] = int(headers["last_offset"][-1]) + 1
    write_checkpoint(root, CLEANED, ends)


def _key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name
