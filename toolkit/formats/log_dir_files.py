"""Files of a log directory: their names and paths, checkpoints and properties, index files, the manifest of a copy.

A path is of this machine, or the URI of an object store. ``kafka-txn copy`` writes the manifest: which files it copied,
when, and in which order. Each file of data is read to its end, then ``__transaction_state``, then what the files of
data have gained since. What is open in the first reading and in the last was open when the coordinators' log was read
in between: what a live diagnosis proves by its two requests to the leader.

Sources: ``AbortedTxn``, ``TransactionIndex``, ``OffsetIndex``, ``TimeIndex`` and ``LogSegment`` in Kafka, 2.8 to 4.3.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import stat
import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from toolkit.config.properties import parse_properties
from toolkit.errors import DecodeError, UsageError
from toolkit.formats.headers import DamagedRange
from toolkit.formats.object_store import (
    ANONYMOUS,
    AZURE_HOST,
    CREDENTIALS,
    FAMILY,
    URI,
    ObjectEntry,
    ObjectPath,
    ObjectStat,
)
from toolkit.schema.log import CheckpointEntry
from toolkit.version import __version__

LogPath: TypeAlias = Path | ObjectPath
"""A file or folder of this machine, or of an object store."""


def log_path(path: str | os.PathLike[str] | ObjectPath) -> LogPath:
    """The file or folder at a path of this machine, or at a URI of an object store.

    Such as ``s3://bucket/key``, ``gs://bucket/key``, ``abfss://container@account.dfs.core.windows.net/key``. Raises
    UsageError for a URI with credentials or options, or without a bucket.

    Examples
    --------
    >>> log_path("s3://backup/broker-1/") / "orders-0"
    ObjectPath(store='s3://backup', key='broker-1/orders-0')
    """
    if isinstance(path, ObjectPath):
        return path
    text = os.fspath(path)
    scheme = text.partition("://")[0]
    if scheme not in FAMILY or text == scheme:
        return Path(path)
    found = URI.fullmatch(text)
    if not found:
        raise UsageError(f"A URI of {scheme} has a bucket and a key.", do="Write s3://bucket/key, gs://bucket/key or "
                         "abfss://container@account.dfs.core.windows.net/key.")  # fmt: skip
    user, host, key = found["user"], found["host"], (found["key"] or "").strip("/")
    if FAMILY[scheme] == "abfss":
        if not user or ":" in user or not AZURE_HOST.fullmatch(host):
            raise UsageError(
                f"A URI of {scheme} names a container and an account, and no key of the account.",
                do=f"Write {scheme}://container@account.dfs.core.windows.net/key. {CREDENTIALS['abfss']}",
            )
    elif user not in (None, ANONYMOUS):
        raise UsageError(
            f"The URI of {host} has credentials, which tables and reports would repeat.",
            do=f"Write {scheme}://{host}/key. {CREDENTIALS[FAMILY[scheme]]}",
        )
    if "?" in key:
        raise UsageError(
            f"The URI of {host} has options, which are not read.",
            do="Use the environment of the store: AWS_ENDPOINT_URL, AWS_REGION, STORAGE_EMULATOR_HOST, "
            "AZURE_STORAGE_ENDPOINT.",
        )
    return ObjectPath(f"{scheme}://{f'{user}@' if user else ''}{host}", key)


def scandir(path: LogPath) -> Iterator[os.DirEntry[str] | ObjectEntry]:
    """The entries of a folder, in any order. Raises OSError if it cannot be listed."""
    return path.scandir() if isinstance(path, ObjectPath) else iter(os.scandir(path))


class FileStamp(NamedTuple):
    """Shows whether a file has been replaced or written to."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result | ObjectStat) -> FileStamp:
        """That of a file's status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def file_stamps(folder: LogPath, only: Collection[str] | None = None) -> dict[LogPath, FileStamp]:
    """The files of a folder, or those of some names. Raises OSError if it cannot be listed."""
    found = {}
    for entry in scandir(folder):
        with suppress(FileNotFoundError):  # a broker removes files at any time
            if only and entry.name not in only:
                continue
            if entry.is_file():
                found[folder / entry.name] = FileStamp.of(entry.stat())
            elif isinstance(entry, os.DirEntry) and entry.is_symlink() and not os.path.exists(entry.path):
                found[folder / entry.name] = FileStamp(0, 0, 0)  # a broken link: it cannot be read
    return found


def other_kind(path: LogPath) -> str | None:
    """What a path of this machine names, if that is no file; opening a pipe would wait for its writer."""
    if isinstance(path, ObjectPath):
        return None
    mode = path.stat().st_mode
    return None if stat.S_ISREG(mode) else "directory" if stat.S_ISDIR(mode) else "pipe or device"


def real_path(path: LogPath) -> str:
    """The path behind links, of which an object store has none."""
    return str(path) if isinstance(path, ObjectPath) else os.path.realpath(path)


Buffer = bytes | bytearray | memoryview

ABORTED_TXN = struct.Struct(">hqqqq")
OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])  # the offset relative to the segment's base offset
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])

OFFSETS = np.dtype([("offset", "i8"), ("position", "i8")])
"""An entry of an offset index: the byte of the segment at which a batch begins; all before it have lower offsets."""

TIMES = np.dtype([("timestamp", "i8"), ("offset", "i8")])
"""An entry of a time index: newest record time (ms) of the segment up to this offset."""


class AbortedTxn(NamedTuple):
    """An aborted transaction of a segment, as Fetch returns it to read_committed consumers."""

    position: int  # byte of the file where the entry starts
    version: int  # of the entry: 0
    producer_id: int
    first_offset: int  # of its first record, which may be in an earlier segment
    last_offset: int  # of its marker
    last_stable_offset: int  # right after that marker


def read_txn_index(buf: Buffer) -> tuple[list[AbortedTxn], list[DamagedRange]]:
    """The aborted transactions of a segment in the order of their markers, and damaged bytes.

    The entries have no checksum. An entry that is contradictory, out of order or of an unknown version is damage
    (``CORRUPT_ENTRY``); the next one is still read. A crash can leave an incomplete last entry, and zeros at the end
    (``TORN_TAIL``).
    """
    view = memoryview(buf).cast("B")
    end = _end_of_entries(view)
    found = [AbortedTxn(at, *ABORTED_TXN.unpack_from(view, at)) for at in range(0, end, ABORTED_TXN.size)]
    wrong = {txn.position: why for txn in found if (why := _contradiction(txn))}
    plausible = [txn for txn in found if txn.position not in wrong]
    fitting = {plausible[i].position for i in _longest_rise([txn.last_offset for txn in plausible])}
    for txn in plausible:
        if txn.position not in fitting:
            wrong[txn.position] = f"its marker at offset {txn.last_offset} is out of order"
    damage = [
        DamagedRange(at, ABORTED_TXN.size, f"CORRUPT_ENTRY: The entry at byte {at} is no aborted transaction: {why}.")
        for at, why in sorted(wrong.items())
    ]
    if left := len(view) - end:
        what = "zeros" if left >= ABORTED_TXN.size else "an incomplete entry"
        damage.append(DamagedRange(end, left, f"TORN_TAIL: The last {left} bytes are {what}, as a crash leaves them."))
    return [txn for txn in plausible if txn.position in fitting], damage


def read_offset_index(buf: Buffer, *, base_offset: int) -> npt.NDArray[Any]:
    """The entries of an offset index that rise in offset and in position, as an array of `OFFSETS`.

    To find an offset, read from the position of the last entry at or below it; from byte 0 below the first entry.
    There is no checksum, and brokers rebuild damaged indexes: entries that do not rise are left out silently, and the
    caller must check that a batch begins at a position.

    `buf`: the complete file; it ends in zeros while a broker has it open, and after a crash.
    """
    return _rising_entries(buf, OFFSET_ENTRY, OFFSETS, base_offset, least=1)  # the first batch has no entry


def read_time_index(buf: Buffer, *, base_offset: int) -> npt.NDArray[Any]:
    """The entries of a time index that rise in time and in offset, as an array of `TIMES`.

    No record with a newer time than an entry's has a lower offset, so the last entry below a time has the offset to
    search from. Entries that do not rise are left out, as in `read_offset_index`.

    `buf`: the complete file; it ends in zeros while a broker has it open, and after a crash.
    """
    return _rising_entries(buf, TIME_ENTRY, TIMES, base_offset, least=0)


def _rising_entries(
    buf: Buffer, written: np.dtype[Any], read: np.dtype[Any], base_offset: int, *, least: int
) -> npt.NDArray[Any]:
    """The entries that rise in both fields, the first of which is above 0 and the second at `least` so much."""
    entries = np.frombuffer(buf, written, count=len(memoryview(buf).cast("B")) // written.itemsize)
    first, second = written.names or ()
    entries = entries[(entries[first] > 0) & (entries[second] >= least)]
    index: npt.NDArray[Any] = entries[_rises(entries[first]) & _rises(entries[second])].astype(read)
    index["offset"] += base_offset
    return index


def _end_of_entries(view: memoryview) -> int:
    """End of the last complete entry that is not all zeros."""
    end = len(view) - len(view) % ABORTED_TXN.size
    while end and not any(view[end - ABORTED_TXN.size : end]):
        end -= ABORTED_TXN.size
    return end


def _contradiction(txn: AbortedTxn) -> str | None:
    if txn.version != 0:
        return f"it has version {txn.version}, and 0 is known here"
    if min(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset) < 0:
        return "an id or offset is negative"
    if txn.first_offset > txn.last_offset:
        return f"it starts at offset {txn.first_offset} and ends at {txn.last_offset}"
    if not any(txn[2:]):
        return "it is all zeros"
    return None


def _longest_rise(numbers: Sequence[int]) -> list[int]:
    """Indices of a longest strictly rising subsequence: one wrong number removes only itself."""
    if all(a < b for a, b in pairwise(numbers)):
        return list(range(len(numbers)))
    lowest: list[int] = []  # lowest[k]: the lowest number at the end of a rising run of k + 1 numbers
    where: list[int] = []  # its index
    before: list[int] = []  # by index: the one before it in such a run
    for i, number in enumerate(numbers):
        k = bisect_left(lowest, number)
        before.append(where[k - 1] if k else -1)
        lowest[k : k + 1], where[k : k + 1] = [number], [i]
    rise = [where[-1]]
    while before[rise[-1]] >= 0:
        rise.append(before[rise[-1]])
    return rise[::-1]


def _rises(numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each number is higher than all before it; true for the first."""
    rises = np.ones(len(numbers), bool)
    rises[1:] = numbers[1:] > np.maximum.accumulate(numbers)[:-1]
    return rises


SNAPSHOT_VERSION = 1
SNAPSHOT_HEADER = struct.Struct(">hIi")  # version, CRC32C of the bytes after it, number of entries
SNAPSHOT_COVERED = 6  # start of those bytes
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
DAMAGED = "The bytes are damaged, or this is no producer snapshot; a broker would delete it and read the log instead."


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """The state of a producer on a partition, in the file's order; missing fields are ``None``, never -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None  # of its last data batch, as the next two; None if it has only markers
    last_offset: int | None
    offset_delta: int  # records of that batch less one; 0 without one
    last_timestamp: int | None  # ms; newest record time of that batch (the producer's clock), or its marker's
    coordinator_epoch: int | None  # of its last marker
    current_txn_start_offset: int | None  # first offset of its open transaction


def read_snapshot(buf: bytes | bytearray | memoryview) -> tuple[SnapshotEntry, ...]:
    """The producers in a snapshot, in the order of the file.

    A file with any error is rejected completely, as by a broker.

    Raises DecodeError if the file is empty, too short or too long, of another version, or does not match its CRC.
    """
    from google_crc32c import value as crc32c

    crc = _read_header(memoryview(buf))
    data = bytes(buf)
    computed: int = crc32c(data[SNAPSHOT_COVERED:])
    if crc != computed:
        raise DecodeError(
            f"The producer snapshot does not match its CRC: {crc:#010x} is written, {computed:#010x} is right.",
            position=SNAPSHOT_COVERED,
            means=DAMAGED,
        )
    entries = SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEADER.size :])
    return tuple(
        SnapshotEntry(producer_id, epoch, _known(sequence), _known(offset), delta, *map(_known, others))
        for producer_id, epoch, sequence, offset, delta, *others in entries
    )


def _read_header(view: memoryview) -> int:
    """The CRC; checks version, size and number of entries."""
    size = len(view)
    if not size:
        raise DecodeError(
            "The producer snapshot is empty.",
            position=0,
            means="A broker that crashed right after creating it leaves it empty; it is rebuilt from the log.",
        )
    version = int.from_bytes(view[:2], "big", signed=True)
    if size >= 2 and version != SNAPSHOT_VERSION:
        raise DecodeError(
            f"The producer snapshot has version {version}; {SNAPSHOT_VERSION} is known here.", position=0, means=DAMAGED
        )
    if size < SNAPSHOT_HEADER.size:
        raise DecodeError(
            f"The producer snapshot ends early: {size} of the {SNAPSHOT_HEADER.size} bytes before its entries are "
            "there.",
            position=size,
            means=DAMAGED,
        )
    _, crc, count = SNAPSHOT_HEADER.unpack_from(view)
    right = SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size
    if count < 0 or size != right:
        raise DecodeError(
            f"The producer snapshot has {size} bytes; {count} producers take {right}.",
            position=min(size, right) if count >= 0 else SNAPSHOT_COVERED,
            means=DAMAGED,
        )
    return int(crc)


def _known(number: int) -> int | None:
    return None if number < 0 else number


UUID_FORM = r"[A-Za-z0-9_-]{22}"
FOLDER = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})(?:\.[^.\s]+-(?P<suffix>delete|future|stray))?"
)
REMOTE_FOLDER = re.compile(
    rf"(?P<topic>[A-Za-z0-9._-]{{1,249}})-(?P<partition>0|[1-9][0-9]{{0,9}})-(?P<topic_id>{UUID_FORM})"
)
FILE = re.compile(
    rf"(?P<offset>[0-9]{{20}})(?P<remote>-{UUID_FORM})?\.(?P<kind>log|index|timeindex|txnindex|snapshot)"
    r"(?:\.(?P<suffix>deleted|cleaned|swap))?"
)
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


class FolderName(NamedTuple):
    """The name of a partition's folder."""

    # topic, partition: the partition. If the name has exactly 255 characters and a suffix, the end of the topic may be
    # cut off
    topic: str
    partition: int
    # ``delete``: the partition was deleted or moved away, and the folder is removed after ``file.delete.delay.ms``.
    # ``future``: a copy that is being moved to this log directory. ``stray`` (3.7 and newer): the metadata no longer
    # places the partition on this broker. Null for the partition's log
    suffix: str | None = None
    # the topic id at the end of the name of a folder of remote storage (KIP-405), as ``LocalTieredStorage`` of Kafka's
    # tests gives it; null for a broker's folder
    topic_id: str | None = None


class FileName(NamedTuple):
    """The name of a file in a partition's folder."""

    offset: int  # base offset of the segment; of a ``snapshot``, the offset after the last batch in its producer state
    kind: str  # ``log``, ``index``, ``timeindex``, ``txnindex`` or ``snapshot`` (producer state)
    # ``deleted`` (no longer part of the log, removed after ``file.delete.delay.ms``), ``cleaned`` (being written by the
    # cleaner, not yet part of the log), ``swap`` (finished by the cleaner, replaces the files whose offsets it covers),
    # or null for a regular file of the log
    suffix: str | None = None
    is_remote: bool = False  # a file of remote storage: with the id of the segment's copy after the offset


def parse_folder_name(name: str) -> FolderName | None:
    """Parse the name of a partition's folder; null for a name that no broker gives.

    Examples
    --------
    >>> parse_folder_name("my-orders-3")
    FolderName(topic='my-orders', partition=3, suffix=None, topic_id=None)
    >>> parse_folder_name("my-orders-3.0f81b0f6c1a8497fb47e1c9c9e2a6d1b-delete")
    FolderName(topic='my-orders', partition=3, suffix='delete', topic_id=None)
    """
    found = FOLDER.fullmatch(name)
    remote = None if found else REMOTE_FOLDER.fullmatch(name)
    either = found or remote
    if not either or either["topic"] in {".", ".."} or int(either["partition"]) > MAX_INT32:
        return None
    suffix, topic_id = found["suffix"] if found else None, remote["topic_id"] if remote else None
    return FolderName(either["topic"], int(either["partition"]), suffix, topic_id)


def parse_file_name(name: str) -> FileName | None:
    """Parse the name of a file in a partition's folder; null for checkpoints and unknown files.

    Examples
    --------
    >>> parse_file_name("00000000000000004711.txnindex")
    FileName(offset=4711, kind='txnindex', suffix=None, is_remote=False)
    >>> parse_file_name("00000000000000000000.log.swap")
    FileName(offset=0, kind='log', suffix='swap', is_remote=False)
    """
    found = FILE.fullmatch(name)
    if not found or int(found["offset"]) > MAX_INT64:
        return None
    return FileName(int(found["offset"]), found["kind"], found["suffix"], found["remote"] is not None)


def is_remote_file(name: str) -> bool:
    """Whether a file of a segment is named as in remote storage."""
    known = parse_file_name(name)
    return known is not None and known.is_remote


def segment_base_offset(path: str | None) -> int | None:
    """Base offset in the name of a segment's file; null for any other file."""
    name = parse_file_name((path or "").replace("\\", "/").rpartition("/")[2])
    return name.offset if name is not None and name.kind == "log" else None


NUMBER = re.compile(r"[0-9]{1,20}")
UUID = re.compile(UUID_FORM)
VALUES = {"version": NUMBER, "broker.id": NUMBER, "node.id": NUMBER, "directory.id": UUID, "topic_id": UUID}
OFFSET_LINE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})[ \t]+(?P<partition>[0-9]{1,20})[ \t]+(?P<offset>[0-9]{1,20})"
)
EPOCH_ENTRY = re.compile(r"(?P<leader_epoch>[0-9]{1,20})[ \t]+(?P<offset>[0-9]{1,20})")
QUOTED = 80  # characters of a line that an error repeats


class CheckpointLine(NamedTuple):
    number: int  # from 1
    text: str | None  # null if it is not UTF-8
    ended: bool  # by a line break; otherwise it may be cut


def checkpoint_rows(
    name: str,
    text: bytes | str,
    *,
    broker_id: int | None = None,
    file: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> list[CheckpointEntry]:
    """The entries of a checkpoint or properties file.

    A malformed line is an entry with `error` and its number; the other lines are still read. An empty offset or epoch
    checkpoint has no entries: a broker creates it so. ``.kafka_cleanshutdown`` yields an entry even if it is empty
    (older brokers), since its presence is the information.

    `name`: one of `CHECKPOINT_NAMES`.
    `text`: the complete file; only lines that are not UTF-8 are lost.
    `topic`, `partition`: for a file in a partition's folder.
    Raises UsageError for an unknown name.
    """
    if name not in READERS:
        raise UsageError(f"{name!r} is no checkpoint file known here.", do=f"Known are {', '.join(CHECKPOINT_NAMES)}.")
    lines = []
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            decoded = line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError:
            decoded = None
        lines.append(CheckpointLine(number, decoded, line.endswith((b"\r", b"\n"))))
    base = CheckpointEntry(name=name, topic=topic, partition=partition, broker_id=broker_id, file=file)
    return list(READERS[name](lines, base))


def _entry(base: CheckpointEntry, number: int, text: str, form: re.Pattern[str]) -> CheckpointEntry | None:
    found = form.fullmatch(text)
    values: dict[str, Any] = found.groupdict() if found else {}
    values |= {name: int(digits) for name, digits in values.items() if name != "topic"}
    number_or_epoch = values.get("partition", values.get("leader_epoch", 0))
    if not found or number_or_epoch > MAX_INT32 or values["offset"] > MAX_INT64:
        return None
    return replace(base, position=number, **values)


def _read_entries(
    lines: list[CheckpointLine], base: CheckpointEntry, form: re.Pattern[str]
) -> Iterator[CheckpointEntry]:
    """A line with the version, one with the number of entries, one for each entry; each one ended."""
    if not lines:
        return
    for line, what, right in zip(
        lines[:2], ("the version", "the number of entries"), (0, len(lines) - 2), strict=False
    ):
        if not line.ended:
            yield _malformed(base, line.number, f"is not ended, so {what} may be cut", line.text)
        elif line.text is None or not NUMBER.fullmatch(line.text) or int(line.text) != right:
            yield _malformed(base, line.number, f"should be {what}, {right}", line.text)
    if len(lines) == 1:
        error = "MALFORMED: line 2 is missing: it should be the number of entries."
        yield replace(base, position=2, error=error)
    for number, text, ended in lines[2:]:
        entry = _entry(base, number, text or "", form)
        if entry is None:
            yield _malformed(base, number, "is no entry", text)
        elif not ended:
            yield _malformed(base, number, "is not ended, so its last number may be cut", text)
        else:
            yield entry


def _read_partition_metadata(lines: list[CheckpointLine], base: CheckpointEntry) -> Iterator[CheckpointEntry]:
    """``key: value``; the last line is not ended."""
    found = set()
    for number, text, _ in lines:
        key, colon, value = (text or "").partition(":")
        key, value = key.strip(), value.strip()
        if not colon or not key:
            yield _malformed(base, number, "has no key and value", text)
        else:
            yield _property_entry(base, number, key, value, versions={0})
        found.add(key if colon else "")
    yield from _missing(base, {"version", "topic_id"} - found)


def _read_meta_properties(lines: list[CheckpointLine], base: CheckpointEntry) -> Iterator[CheckpointEntry]:
    """Java properties; version 0 has ``broker.id``, version 1 ``node.id``, newer brokers ``directory.id`` too."""
    found: dict[str, str] = {}
    for number, text, ended in lines:
        if text is not None and text.lstrip(" \t\f")[:1] in {"", "#", "!"}:
            continue
        key, value = _property(text)
        if key is None:
            yield _malformed(base, number, "has no key and value", text)
        elif not ended:
            yield _malformed(base, number, "is not ended, so its value may be cut", text)
        else:
            yield _property_entry(base, number, key, value, versions={0, 1})
        found[key or ""] = value
    own_id = "broker.id" if found.get("version", "0") == "0" and "node.id" not in found else "node.id"
    yield from _missing(base, {"version", "cluster.id", own_id} - found.keys())


def _property(text: str | None) -> tuple[str | None, str]:
    if text is None or text.endswith("\\"):  # no broker continues a line
        return None, ""
    try:
        [(key, value)] = parse_properties(text).items()
    except UsageError:
        return None, ""
    return key or None, value


def _read_clean_shutdown(lines: list[CheckpointLine], base: CheckpointEntry) -> Iterator[CheckpointEntry]:
    """JSON; empty if an older broker wrote it."""
    text = None if any(text is None for _, text, _ in lines) else "\n".join(text or "" for _, text, _ in lines)
    if text == "":
        yield replace(base, key="brokerEpoch", position=1)
        return
    try:
        content = {key: json.dumps(value) for key, value in json.loads(text or "").items()}
    except (ValueError, RecursionError, AttributeError):
        yield _malformed(base, 1, "is no JSON object", text)
        return
    for key, value in content.items():
        ascii_key = key.encode("ascii", "backslashreplace").decode()  # JSON can escape lone surrogates
        yield replace(base, key=ascii_key, value=None if value == "null" else value, position=1)
    if content.get("version") != "0":
        yield _malformed(base, 1, "has an unknown version", text)


_read_offsets = partial(_read_entries, form=OFFSET_LINE)
READERS: dict[str, Callable[[list[CheckpointLine], CheckpointEntry], Iterator[CheckpointEntry]]] = {
    ".kafka_cleanshutdown": _read_clean_shutdown,
    "cleaner-offset-checkpoint": _read_offsets,
    "leader-epoch-checkpoint": partial(_read_entries, form=EPOCH_ENTRY),
    "log-start-offset-checkpoint": _read_offsets,
    "meta.properties": _read_meta_properties,
    "partition.metadata": _read_partition_metadata,
    "recovery-point-offset-checkpoint": _read_offsets,
    "replication-offset-checkpoint": _read_offsets,
}
CHECKPOINT_NAMES = tuple(READERS)
"""File names that `checkpoint_rows` knows."""


def _property_entry(base: CheckpointEntry, number: int, key: str, value: str, *, versions: set[int]) -> CheckpointEntry:
    if key in VALUES and not VALUES[key].fullmatch(value):
        return _malformed(base, number, f"has no proper {key}", value)
    if key == "version" and int(value) not in versions:
        return _malformed(base, number, "has an unknown version", value)
    return replace(base, key=key, value=value, position=number)


def _missing(base: CheckpointEntry, keys: set[str]) -> Iterator[CheckpointEntry]:
    for key in sorted(keys):
        yield replace(base, key=key, error=f"MALFORMED: {key} is missing.")


def _malformed(base: CheckpointEntry, number: int, why: str, text: str | None) -> CheckpointEntry:
    quoted = "not UTF-8" if text is None else repr(text[:QUOTED]) + ("..." if len(text) > QUOTED else "")
    return replace(base, position=number, error=f"MALFORMED: line {number} {why}: {quoted}.")


MANIFEST = "kafka-txn-copy.json"
"""Its name, in the copied log directory."""
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """A file of the copy."""

    # size, sha256: of the copy
    size: int
    sha256: str
    first_size: int  # its size when the copying of ``__transaction_state`` began; what comes after was added since
    # inode, size and modification time of the source when it was opened: to copy it again if that has changed
    source: FileStamp


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyManifest:
    """A copy of one log directory."""

    source: str  # the log directory that was copied
    # the copied topics besides ``__transaction_state`` and ``__cluster_metadata``; null for all
    topics: Sequence[str] | None
    # begin, end: when the copying began and ended, by the clock of the machine that copied; no end if it was
    # interrupted
    begin: dt.datetime
    end: dt.datetime | None = None
    # coordinators_begin, coordinators_end: when that of ``__transaction_state`` did
    coordinators_begin: dt.datetime | None = None
    coordinators_end: dt.datetime | None = None
    files: Mapping[str, CopiedFile] = field(default_factory=dict)  # by path below the log directory, with slashes
    # folders that a broker wrote to between begin and end; none in a copy of a stopped broker
    changed: Sequence[str] = ()
    incomplete: Sequence[str] = ()  # folders that changed so fast that their files may not fit together
    # whether a broker of the same machine ran on the source all the while: it held the lock. Files without a broker may
    # be of any time, and of several
    is_running: bool = False
    version: str = __version__  # of the tool

    @property
    def moment(self) -> dt.datetime | None:
        """When the coordinators' log was read, between both readings of the data; null if it was interrupted."""
        return None if self.end is None else self.coordinators_begin

    def by_folder(self) -> dict[str, dict[str, CopiedFile]]:
        """The files of each partition's folder by name; those beside the folders under an empty name."""
        found: dict[str, dict[str, CopiedFile]] = {}
        for path, file in self.files.items():
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, {})[name] = file
        return found

    def to_json(self) -> str:
        """The text of the manifest."""
        values = {"format": FORMAT, **asdict(self)}
        return json.dumps(values, indent=1, default=dt.datetime.isoformat) + "\n"


def parse_manifest(text: bytes | str) -> CopyManifest:
    """Read the text of a manifest. Raises DecodeError if it is none, or of a newer version of the tool."""
    try:
        values: dict[str, Any] = json.loads(text)
        if values.pop("format") != FORMAT:
            raise DecodeError("it is of another version of kafka-txn", position=0)
        for name in ("begin", "end", "coordinators_begin", "coordinators_end"):
            values[name] = None if values[name] is None else dt.datetime.fromisoformat(values[name])
        values["files"] = {
            path: CopiedFile(**{**file, "source": FileStamp(*file["source"])}) for path, file in values["files"].items()
        }
        return CopyManifest(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DecodeError(f"it is no manifest: {error}", position=0) from None


def read_manifest(folder: LogPath) -> CopyManifest | None:
    """The manifest of a log directory; null if it has none.

    Raises DecodeError if it is none, or of a newer version of the tool. Raises OSError if it cannot be read.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    return parse_manifest(text)
