"""Checkpoint and properties files of a log directory, line by line.

Sources: ``CheckpointFile``, ``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``, ``PartitionMetadataFile``,
``MetaProperties`` and ``CleanShutdownFileHandler`` in Kafka, 2.8 to 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from toolkit.config.properties import parse_properties
from toolkit.errors import UsageError
from toolkit.schema import CHECKPOINTS, Row

__all__ = ["CHECKPOINT_NAMES", "checkpoint_rows"]

Fields = dict[str, Any]

NUMBER = re.compile(r"[0-9]{1,20}")
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
UUID = re.compile(r"[A-Za-z0-9_-]{22}")
VALUES = {"version": NUMBER, "broker.id": NUMBER, "node.id": NUMBER, "directory.id": UUID, "topic_id": UUID}
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
QUOTED = 80  # characters of a line that an error repeats


class CheckpointLine(NamedTuple):
    number: int  # from 1
    text: str | None  # null where it is no UTF-8
    ended: bool  # a line that is not may be cut


def checkpoint_rows(
    name: str,
    text: bytes | str,
    *,
    broker_id: int | None = None,
    file: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
) -> list[Row]:
    """The entries of a checkpoint or properties file as rows of ``schema.CHECKPOINTS``.

    What is malformed is a row with `error` and the number of its line, and the other lines are still read. An empty
    offset or epoch checkpoint has no entries: a broker creates it so. ``.kafka_cleanshutdown`` gives a row even where
    it is empty (older brokers), for its presence is what it says.

    Parameters
    ----------
    name
        One of `CHECKPOINT_NAMES`.
    text
        The whole file; bytes that are no UTF-8 cost their line only.
    broker_id, file
        For the rows.
    topic, partition
        Whose folder the file is in, for those of a single partition.

    Raises
    ------
    UsageError
        For a name that is not known here.
    """
    if name not in READERS:
        raise UsageError(f"{name!r} is no checkpoint file known here.", do=f"Known are {', '.join(CHECKPOINT_NAMES)}.")
    base = dict.fromkeys(CHECKPOINTS.names) | {
        "name": name,
        "topic": topic,
        "partition": partition,
        "broker_id": broker_id,
        "file": file,
    }
    return [base | fields for fields in READERS[name](_lines(text))]


def _read_offsets(lines: list[CheckpointLine]) -> Iterator[Fields]:
    return _read_checkpoint(lines, _offset_entry)


def _read_epochs(lines: list[CheckpointLine]) -> Iterator[Fields]:
    return _read_checkpoint(lines, _epoch_entry)


def _read_checkpoint(lines: list[CheckpointLine], entry: Callable[[list[str]], Fields | None]) -> Iterator[Fields]:
    """A line with the version, one with the number of entries, one for each entry; each one ended."""
    if not lines:
        return
    if error := _wrong_number(lines[0], "the version", 0):
        yield error
    if len(lines) == 1:
        yield {"position": 2, "error": "MALFORMED: line 2 is missing: it should tell the number of entries."}
    elif error := _wrong_number(lines[1], "the number of entries", len(lines) - 2):
        yield error
    for number, text, ended in lines[2:]:
        fields = entry(re.split(r"[ \t]+", text)) if text is not None else None
        if fields is None:
            yield _malformed(number, "is no entry", text)
        elif not ended:
            yield _malformed(number, "is not ended, so its last number may be cut", text)
        else:
            yield fields | {"position": number}


def _offset_entry(parts: list[str]) -> Fields | None:
    if len(parts) != 3 or not TOPIC.fullmatch(parts[0]):
        return None
    partition, offset = _number(parts[1], MAX_INT32), _number(parts[2], MAX_INT64)
    if partition is None or offset is None:
        return None
    return {"topic": parts[0], "partition": partition, "offset": offset}


def _epoch_entry(parts: list[str]) -> Fields | None:
    if len(parts) != 2:
        return None
    epoch, offset = _number(parts[0], MAX_INT32), _number(parts[1], MAX_INT64)
    return None if epoch is None or offset is None else {"leader_epoch": epoch, "offset": offset}


def _read_partition_metadata(lines: list[CheckpointLine]) -> Iterator[Fields]:
    """``key: value``; the last line is not ended."""
    found = set()
    for number, text, _ in lines:
        key, colon, value = (text or "").partition(":")
        key, value = key.strip(), value.strip()
        if not colon or not key:
            yield _malformed(number, "has no key and value", text)
        elif error := _wrong_value(number, key, value, versions={0}):
            yield error
        else:
            yield {"key": key, "value": value, "position": number}
        found.add(key if colon else "")
    yield from _missing({"version", "topic_id"} - found)


def _read_meta_properties(lines: list[CheckpointLine]) -> Iterator[Fields]:
    """Java properties; version 0 has ``broker.id``, version 1 ``node.id``, newer brokers ``directory.id`` too."""
    found: dict[str, str] = {}
    for number, text, ended in lines:
        if text is not None and text.lstrip(" \t\f")[:1] in {"", "#", "!"}:
            continue
        key, value = _property(text)
        if key is None:
            yield _malformed(number, "has no key and value", text)
        elif not ended:
            yield _malformed(number, "is not ended, so its value may be cut", text)
        elif error := _wrong_value(number, key, value, versions={0, 1}):
            yield error
        else:
            yield {"key": key, "value": value, "position": number}
        found[key or ""] = value
    own_id = "broker.id" if found.get("version", "0") == "0" and "node.id" not in found else "node.id"
    yield from _missing({"version", "cluster.id", own_id} - found.keys())


def _property(text: str | None) -> tuple[str | None, str]:
    if text is None or text.endswith("\\"):  # no broker continues a line
        return None, ""
    try:
        [(key, value)] = parse_properties(text).items()
    except UsageError:
        return None, ""
    return key or None, value


def _read_clean_shutdown(lines: list[CheckpointLine]) -> Iterator[Fields]:
    """JSON, or nothing at all where an older broker wrote it."""
    text = None if any(text is None for _, text, _ in lines) else "\n".join(text or "" for _, text, _ in lines)
    if text == "":
        yield {"key": "brokerEpoch", "position": 1}
        return
    try:
        content = {key: json.dumps(value) for key, value in json.loads(text or "").items()}
    except (ValueError, RecursionError, AttributeError):
        yield _malformed(1, "is no JSON object", text)
        return
    for key, value in content.items():
        ascii_key = key.encode("ascii", "backslashreplace").decode()  # JSON can spell what no text may contain
        yield {"key": ascii_key, "value": None if value == "null" else value, "position": 1}
    if content.get("version") != "0":
        yield _malformed(1, "has a version that is not known here", text)


READERS: dict[str, Callable[[list[CheckpointLine]], Iterator[Fields]]] = {
    ".kafka_cleanshutdown": _read_clean_shutdown,
    "cleaner-offset-checkpoint": _read_offsets,
    "leader-epoch-checkpoint": _read_epochs,
    "log-start-offset-checkpoint": _read_offsets,
    "meta.properties": _read_meta_properties,
    "partition.metadata": _read_partition_metadata,
    "recovery-point-offset-checkpoint": _read_offsets,
    "replication-offset-checkpoint": _read_offsets,
}
CHECKPOINT_NAMES = tuple(READERS)
"""File names that `checkpoint_rows` knows."""


def _lines(text: bytes | str) -> list[CheckpointLine]:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    lines = data.splitlines(keepends=True)
    return [
        CheckpointLine(number, _decoded(line.rstrip(b"\r\n")), line.endswith((b"\r", b"\n")))
        for number, line in enumerate(lines, 1)
    ]


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _number(text: str, highest: int) -> int | None:
    """What no broker writes is none: a sign, another alphabet, a number out of bounds."""
    return int(text) if NUMBER.fullmatch(text) and int(text) <= highest else None


def _wrong_number(line: CheckpointLine, what: str, right: int) -> Fields | None:
    number, text, ended = line
    if not ended:
        return _malformed(number, f"is not ended, so {what} may be cut", text)
    if text is None or _number(text, MAX_INT32) != right:
        return _malformed(number, f"should tell {what}, {right}", text)
    return None


def _wrong_value(number: int, key: str, value: str, *, versions: set[int]) -> Fields | None:
    if key in VALUES and not VALUES[key].fullmatch(value):
        return _malformed(number, f"has no proper {key}", value)
    if key == "version" and int(value) not in versions:
        return _malformed(number, "has a version that is not known here", value)
    return None


def _missing(keys: set[str]) -> Iterator[Fields]:
    for key in sorted(keys):
        yield {"key": key, "error": f"MALFORMED: {key} is missing."}


def _malformed(number: int, why: str, text: str | None) -> Fields:
    quoted = "not UTF-8" if text is None else repr(text[:QUOTED]) + ("..." if len(text) > QUOTED else "")
    return {"position": number, "error": f"MALFORMED: line {number} {why}: {quoted}."}
