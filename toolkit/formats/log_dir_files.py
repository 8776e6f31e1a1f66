"""Names in a log directory, and the texts of its checkpoint and properties files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from toolkit.config.properties import parse_properties
from toolkit.errors import UsageError
from toolkit.schema.log import CheckpointEntry

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
OFFSET_ENTRY = re.compile(
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


def _offset_entry(base: CheckpointEntry, number: int, text: str) -> CheckpointEntry | None:
    found = OFFSET_ENTRY.fullmatch(text)
    partition, offset = (int(found["partition"]), int(found["offset"])) if found else (0, 0)
    if not found or partition > MAX_INT32 or offset > MAX_INT64:
        return None
    return replace(base, topic=found["topic"], partition=partition, offset=offset, position=number)


def _epoch_entry(base: CheckpointEntry, number: int, text: str) -> CheckpointEntry | None:
    found = EPOCH_ENTRY.fullmatch(text)
    if not found or int(found["leader_epoch"]) > MAX_INT32 or int(found["offset"]) > MAX_INT64:
        return None
    return replace(base, leader_epoch=int(found["leader_epoch"]), offset=int(found["offset"]), position=number)


def _read_entries(
    lines: list[CheckpointLine],
    base: CheckpointEntry,
    read: Callable[[CheckpointEntry, int, str], CheckpointEntry | None],
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
        entry = read(base, number, text or "")
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


_read_offsets = partial(_read_entries, read=_offset_entry)
READERS: dict[str, Callable[[list[CheckpointLine], CheckpointEntry], Iterator[CheckpointEntry]]] = {
    ".kafka_cleanshutdown": _read_clean_shutdown,
    "cleaner-offset-checkpoint": _read_offsets,
    "leader-epoch-checkpoint": partial(_read_entries, read=_epoch_entry),
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
