"""Options for partitions and offsets, named as in Spark's own Kafka source."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import UsageError
from toolkit.schema.table import EPOCH, TopicPartition
from toolkit.sources.offset_queries.offset_spec import NAMED, OffsetSpec
from toolkit.spark.datasources.reader_options import Options

SELECTION = ("assign", "subscribe", "subscribePattern")
OFFSETS = (
    *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
)

WORDS = {**{name: name for name in NAMED}, "earliest": "log_start", "latest": "high_watermark"}
NUMBERS = {-2: "log_start", -1: "high_watermark"}  # as in Spark's JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSelection:
    """The selected partitions: those of some topics, those of topics that match a pattern, or a list."""

    topics: Sequence[str] | None = None
    pattern: str | None = None
    topic_partitions: Sequence[TopicPartition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """The first offset to read, or the offset after the last: one for all partitions, or one for each.

    Parameters
    ----------
    everywhere
        That of all partitions that `by_partition` does not name.
    by_partition
        Those of single partitions.
    name
        The option that set it.
    """

    name: str
    everywhere: OffsetSpec | None = None
    by_partition: Mapping[TopicPartition, OffsetSpec] | None = None

    def check(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Check that the option names exactly the partitions to read.

        Raises
        ------
        UsageError
            If a partition is missing, or is not read.
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

    Raises
    ------
    UsageError
        If not exactly one of them is set, or it is invalid.
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
    return PartitionSelection(topic_partitions=_assigned(text))


def starting(options: Options) -> OffsetBounds:
    """The start: the first that is set of ``startingTimestamp``, ``startingOffsetsByTimestamp``, ``startingOffsets``.

    Raises
    ------
    UsageError
        If its value is invalid.
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


def _assigned(text: str) -> list[TopicPartition]:
    try:
        return [TopicPartition(topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers]
    except (ValueError, TypeError, AttributeError):
        raise UsageError("assign is invalid.", do='Use {"topic": [0, 1]}.') from None
