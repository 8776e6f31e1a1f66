"""How ``kafka_batches`` finds the ranges of offsets that are to be read, and reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.analysis.spans import EMPTY, begin
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import BATCHES, Row
from toolkit.sources.failures import row_text
from toolkit.sources.live_log import Section, section_bounds
from toolkit.sources.live_ranges import Range, read_range, split
from toolkit.sources.live_tables import section_batches, section_parts
from toolkit.sources.log_tables import Where
from toolkit.sources.offsets import partition_rows
from toolkit.sources.topology import Place, Topology, as_places, read_topology
from toolkit.sources.wire import Wire
from toolkit.spark.batches_options import PIECES, BatchesOptions
from toolkit.spark.log_rows import record_batches, selected, without_damage
from toolkit.spark.offset_options import Selection
from toolkit.spark.pieces import STOP, piece_batches, piece_rows
from toolkit.spark.plain_errors import plainly, plainly_each

__all__ = ["BatchesReader", "live_log"]

INTERNAL = {STATE_TOPIC, OFFSETS_TOPIC, "__share_group_state"}  # a pattern does not mean them, as in Spark


@dataclass(frozen=True, slots=True)
class _Unread:
    """A partition whose log cannot be found out about now, as the row that says so."""

    row: Row


class BatchesReader(DataSourceReader):
    """Finds the ranges where Spark plans; reads each in a task, over a connection of its own."""

    def __init__(self, asked: BatchesOptions, config: ClientConfig, schema: StructType) -> None:
        self._asked = asked
        self._config = config
        self._columns = selected(schema, asked.table)

    @plainly
    def partitions(self) -> list[InputPartition]:
        asked = self._asked
        with Wire(self._config, timeout=asked.timeout) as wire:
            topology, places = _selected(wire, asked.selection)
            asked.start.check(places)
            asked.stop.check(places)
            rows = sorted(partition_rows(wire, topology.at(places)), key=lambda row: (row["topic"], row["partition"]))
            found = [_section(wire, row, asked) for row in rows]
        sections = [each for each in found if not isinstance(each, _Unread)]
        total = sum(max(0, stop - start) for _, start, stop, _ in sections)
        most = max(1, min(asked.most, total // asked.tasks))
        ranges = [
            part
            for place, start, stop, log_start in sections
            for part in split(place, start, stop, log_start=log_start, most=most)
        ]
        return [InputPartition(part) for part in (*ranges, *(each for each in found if isinstance(each, _Unread)))]

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # Spark's own, where there is nothing to read
            return
        tables = without_damage(self._tables(partition.value), self._asked.mode)
        yield from record_batches(tables, self._columns)

    def _tables(self, part: Range | _Unread) -> Iterator[pa.Table]:
        of_failures: Any = _stop_table if self._asked.table == PIECES else BATCHES.arrow
        if isinstance(part, _Unread):
            yield of_failures([part.row])
            return
        try:
            with Wire(self._config, timeout=self._asked.timeout) as wire:
                section = read_range(wire, part, crc=self._asked.crc)
                if self._asked.table == PIECES:
                    yield from _pieces(section, part)
                else:
                    yield from section_batches(section, producer_id=self._asked.producer_id)
        except ToolkitError as error:
            beside = {"section": part.start} if self._asked.table == PIECES else {}
            yield of_failures([{**_unread(part, error), **beside}])


def _selected(wire: Wire, selection: Selection) -> tuple[Topology, list[Place]]:
    """The partitions that are meant, and the metadata of their topics.

    Raises
    ------
    NotFound, BrokerError, ConnectionFailed
        If the cluster does not have, or does not show, one that is named; or does not answer.
    """
    if selection.pattern is not None:
        topology = read_topology(wire)
        topics = {topic for topic, _ in topology.partitions if topic not in INTERNAL}
        matched = {topic for topic in topics if re.fullmatch(selection.pattern, topic)}
        return topology, sorted(place for place in topology.partitions if place[0] in matched)
    if selection.places is not None:
        topology = read_topology(wire, {topic for topic, _ in selection.places})
        return topology, as_places(topology, None, selection.places)
    topology = read_topology(wire, selection.topics)
    return topology, as_places(topology, selection.topics, None)


def _section(wire: Wire, row: Row, asked: BatchesOptions) -> tuple[Place, int, int, int] | _Unread:
    """Place, start, stop and log start of what is to be read of a partition."""
    place = (row["topic"], row["partition"])
    try:
        start, stop = section_bounds(wire, row, asked.start.of(place), asked.stop.of(place))
    except (BrokerError, ConnectionFailed) as error:
        found = {"topic": place[0], "partition": place[1], "broker_id": row["leader"]}
        return _Unread({**found, "error": row["error"] or row_text(error)})
    return place, start, stop, row["log_start_offset"] or 0


def live_log(topic: str | None, partition: int | None) -> str:
    """The name of what brokers send of a partition, whichever leads it."""
    return f"live:{topic}-{partition}"


def _pieces(section: Section, part: Range) -> Iterator[pa.Table]:
    failures: list[Row] = []
    parts = section_parts(section, failures)
    topic, partition = section.place
    where = Where(topic=topic, partition=partition, broker_id=section.broker_id)
    before = begin() if section.start == 0 else EMPTY
    name = live_log(topic, partition)
    for rows in piece_batches(
        parts, where, log=name, section=part.start, before=before, log_end_offset=max(part.start, part.stop)
    ):
        yield pa.Table.from_batches([rows])
    if failures:
        yield _stop_table([{**row, "section": part.start} for row in failures])


def _stop_table(rows: Sequence[Row]) -> pa.Table:
    """What was not read, and what comes behind it, is read by the next run."""
    named = [{"section": 0, **row, "log": live_log(row["topic"], row["partition"]), "kind": STOP} for row in rows]
    return pa.Table.from_batches([piece_rows(row, rows=1) for row in named])


def _unread(part: Range, error: ToolkitError) -> Row:
    """The row of a range that nobody could be asked for."""
    text = f"{row_text(error).rstrip('.')}; offsets {part.start} to {part.stop - 1} were not read"
    return {"topic": part.place[0], "partition": part.place[1], "error": text}
