"""Options of readers, parsed and checked; those for partitions and offsets are named as in Spark's own Kafka source.

Errors of flags and numbers never contain a value: it could be a secret.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from toolkit.errors import UsageError
from toolkit.formats.log_paths import log_path
from toolkit.formats.object_store import ObjectPath
from toolkit.schema.durations import duration_s
from toolkit.schema.table import EPOCH, TopicPartition
from toolkit.sources.offset_queries.offset_spec import NAMED, OffsetSpec

D = TypeVar("D")
Options = Mapping[str, str]  # Spark's own mapping is case-insensitive

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""Spark's modes: keep rows with `error`, drop them, or fail the query."""
SELECTION = ("assign", "subscribe", "subscribePattern")
OFFSETS = (
    *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
)

WORDS = {**{name: name for name in NAMED}, "earliest": "log_start", "latest": "high_watermark"}
NUMBERS = {-2: "log_start", -1: "high_watermark"}  # as in Spark's JSON


SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(/.*)?")


def refuse_unknown(options: Options, known: Collection[str], *, source: str, prefix: str | None = None) -> None:
    """Refuse unknown options.

    Raises UsageError for the first unknown option; it lists the known ones.
    `options`: all options of the reader.
    `known`: names of the known options, as documented.
    `source`: name of the data source.
    `prefix`: prefix of client options, which are not checked here.
    """
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names and not (prefix and name.lower().startswith(prefix)):
            clients = f", and {prefix}* for the client" if prefix else ""
            raise UsageError(f"{source} has no option {name!r}.", do=f"It has {', '.join(sorted(known))}{clients}.")


def choice(options: Options, name: str, choices: Collection[str], *, default: str) -> str:
    """One of some words, in any case. Raises UsageError if it is another word."""
    by_key = {word.lower(): word for word in choices}
    value = options.get(name, default).strip().lower()
    if value not in by_key:
        raise UsageError(f"The option {name} has an invalid value.", do=f"Use one of {', '.join(choices)}.")
    return by_key[value]


def flag(options: Options, name: str, *, default: bool = False) -> bool:
    """``true`` or ``false``."""
    return choice(options, name, ("true", "false"), default=str(default)) == "true"


def whole_number(options: Options, name: str, *, lowest: int = 0) -> int | None:
    """A whole number; null if not set. Raises UsageError if it is not a whole number, or less than `lowest`."""
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = lowest - 1
    if number < lowest:
        raise UsageError(f"The option {name} is not a whole number of at least {lowest}.", do="Correct it.")
    return number


def seconds(options: Options, name: str, *, default: float, lowest: float = 0.0) -> float:
    """A duration in seconds: ``30``, ``10s``, ``15m``, or as Spark writes intervals, ``1 hour 30 minutes``.

    Raises UsageError if it is not a duration, or shorter than `lowest`.
    """
    value = options.get(name)
    if value is None:
        return default
    try:
        total = duration_s(value)
    except ValueError:
        raise UsageError(f"The option {name} is not a duration.", do="Use 30s, 15m or 2h.") from None
    if total < lowest:
        raise UsageError(f"The option {name} is too short.", do=f"Use {lowest:g}s or longer.")
    return total


def milliseconds(options: Options, name: str, default: D) -> int | D:
    """A duration as in `seconds`, but in milliseconds."""
    return default if options.get(name) is None else round(seconds(options, name, default=0) * 1000)


def local_path(path: str) -> str:
    """A path without its scheme: ``file:/data``, ``file:///data``, ``dbfs:/Volumes/...``; or the URI of an object.

    Raises UsageError for a scheme that is not read (``hdfs://``), or a URI with credentials.
    """
    if isinstance(stored := log_path(path), ObjectPath):
        return str(stored)
    found = SCHEME.fullmatch(path)
    if not found or not (found[2] or found[3]):
        return path
    scheme, host, rest = found[1].lower(), (found[2] or "//")[2:], found[3] or "/"
    if scheme == "file" and host in {"", "localhost"}:
        return rest
    if scheme == "dbfs" and not host:
        return rest if rest.startswith("/Volumes/") else f"/dbfs{rest}"
    raise UsageError(
        f"{path} is not a path that can be read.",
        means="Executors read local files, and objects of s3://, gs:// and abfss://.",
        do="Use the path of a mounted volume, such as /Volumes/catalog/schema/volume/logs, or copy the files there.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSelection:
    """The selected partitions: those of some topics, those of topics that match a pattern, or a list."""

    topics: Sequence[str] | None = None
    pattern: str | None = None
    topic_partitions: Sequence[TopicPartition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """The first offset to read, or the offset after the last: one for all partitions, or one for each."""

    name: str  # the option that set it
    # everywhere, by_partition: the bound of all partitions, or that of each
    everywhere: OffsetSpec | None = None
    by_partition: Mapping[TopicPartition, OffsetSpec] | None = None

    def check(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Check that the option names exactly the partitions to read.

        Raises UsageError if a partition is missing, or is not read.
        """
        if self.by_partition is None:
            return
        for which, problem in (
            (set(topic_partitions) - self.by_partition.keys(), "lacks partitions"),
            (self.by_partition.keys() - set(topic_partitions), "has unselected partitions"),
        ):
            if which:
                topic, number = min(which)
                raise UsageError(
                    f"{self.name} {problem}: {len(which)}, such as {topic}-{number}.",
                    do="Name exactly the selected partitions; -2 is earliest, -1 is latest.",
                )

    def of(self, tp: TopicPartition) -> OffsetSpec:
        bound = self.everywhere if self.by_partition is None else self.by_partition[tp]
        assert bound is not None
        return bound


def selection(options: Options) -> PartitionSelection:
    """The partitions that ``subscribe``, ``subscribePattern`` or ``assign`` selects.

    Raises UsageError if not exactly one of them is set, or it is invalid.
    """
    set_options = [name for name in SELECTION if options.get(name) is not None]
    if len(set_options) != 1:
        raise UsageError(
            f"{len(set_options)} of the options {', '.join(SELECTION)} are set.", do="Set exactly one of them."
        )
    text = options[set_options[0]]
    if set_options == ["subscribe"]:
        topics = sorted({name.strip() for name in text.split(",")} - {""})
        if not topics:
            raise UsageError("subscribe names no topic.", do="Name topics, separated by commas.")
        return PartitionSelection(topics=topics)
    if set_options == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(f"subscribePattern is not a regular expression: {error}.", do="Correct it.") from None
        return PartitionSelection(pattern=text)
    try:
        assigned = [(topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers]
    except (ValueError, TypeError, AttributeError):
        raise UsageError("assign is invalid.", do='Use {"topic": [0, 1]}.') from None
    return PartitionSelection(topic_partitions=[TopicPartition(*each) for each in assigned])


def starting(options: Options) -> OffsetBounds:
    """The start: the first that is set of ``startingTimestamp``, ``startingOffsetsByTimestamp``, ``startingOffsets``.

    Raises UsageError if its value is invalid.
    """
    return _bounds(options, "starting", default="earliest")


def ending(options: Options) -> OffsetBounds:
    """The end, exclusive: ``endingTimestamp``, ``endingOffsetsByTimestamp`` or ``endingOffsets``, as for `starting`."""
    return _bounds(options, "ending", default="latest")


def _bounds(options: Options, which: str, *, default: str) -> OffsetBounds:
    names = (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets")
    name = next((each for each in names if options.get(each) is not None), names[-1])
    text = options.get(name, default).strip()
    if name == names[0]:
        return OffsetBounds(name=name, everywhere=_time(name, text))
    if name == names[-1] and text.lower() in WORDS:
        return OffsetBounds(name=name, everywhere=WORDS[text.lower()])
    read = _offset if name == names[-1] else _time
    return OffsetBounds(
        name=name, by_partition={tp: read(name, value) for tp, value in _by_partition(name, text).items()}
    )


def _by_partition(name: str, text: str) -> dict[TopicPartition, Any]:
    try:
        found = {
            TopicPartition(topic, int(number)): value
            for topic, numbers in json.loads(text).items()
            for number, value in numbers.items()
        }
    except (ValueError, AttributeError):
        words = f" or {', '.join(sorted(WORDS))}" if name.endswith("Offsets") else ""
        raise UsageError(f"{name} is invalid.", do=f'Use {{"topic": {{"0": 23, "1": -1}}}}{words}.') from None
    return found


def _offset(name: str, value: object) -> OffsetSpec:
    if isinstance(value, str) and value.lower() in WORDS:
        return WORDS[value.lower()]
    if isinstance(value, int) and not isinstance(value, bool) and value >= -2:
        return NUMBERS.get(value, value)
    raise UsageError(
        f"{name} has the invalid offset {value!r}.", do=f"Use a number of at least -2, or {', '.join(sorted(WORDS))}."
    )


def _time(name: str, value: object) -> dt.datetime:
    """The time from milliseconds since 1970, as in Spark, or from ISO 8601 with a zone."""
    text = str(value)
    try:
        time = EPOCH + dt.timedelta(milliseconds=int(text)) if text.isdecimal() else dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        time = dt.datetime.min
    if time.tzinfo is None:
        raise UsageError(
            f"{name} is not a time with a zone.", do="Use milliseconds since 1970, or 2026-11-21T12:00:00+00:00."
        )
    return time
