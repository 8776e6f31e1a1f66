"""The data source ``kafka_batches``: what the logs of a live cluster hold, read by all executors at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from toolkit.analysis.spans import EMPTY, begin
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError, UsageError
from toolkit.schema import BATCHES, Row
from toolkit.sources.failures import row_text
from toolkit.sources.live_log import Section, section_bounds
from toolkit.sources.live_ranges import Range, read_range, split
from toolkit.sources.live_tables import section_batches, section_parts
from toolkit.sources.log_tables import Where
from toolkit.sources.offsets import partition_rows
from toolkit.sources.topology import Place
from toolkit.sources.wire import Wire
from toolkit.spark.connection import CONNECTION, PREFIX, client_config
from toolkit.spark.log_rows import record_batches, selected, without_damage
from toolkit.spark.log_schema import schema_of
from toolkit.spark.modes import MODES
from toolkit.spark.offset_options import OFFSETS, SELECTION, Bounds, Selection, ending, selection, starting
from toolkit.spark.pieces import DAMAGE, OF_LOG, piece_batches, piece_rows
from toolkit.spark.plain_errors import plainly, plainly_each
from toolkit.spark.reader_options import Options, choice, flag, refuse_unknown, seconds, whole_number
from toolkit.spark.secret_options import Connecting

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["KafkaBatches"]

NAME = "kafka_batches"
OWN = ("crc", "maxRecordsPerPartition", "minPartitions", "mode", "producer_id", "table")
MOST_OFFSETS = 1_000_000  # of one task: from 70 MB, if every record is a batch, to some gigabytes


class KafkaBatches(Connecting, DataSource):
    """Headers of all batches of live partitions (``schema.BATCHES``), and a row for what could not be read.

    The rows are those of `Cluster.batches` for each partition. The log is read by Fetch, in ranges of offsets, a task
    for each; no connector is needed. Where the log starts and ends is found when Spark plans the query.

    Options are spelled as those of Spark's own Kafka source, where it has them.

    - How to connect: see `toolkit.spark.connection.client_config`. ``timeout`` is how long connecting, and each round
      of requests, may take (default 30 s).
    - Which partitions: one of ``subscribe`` (topics, separated by commas), ``subscribePattern`` (a regular expression
      that a whole name matches; it does not mean Kafka's internal topics), ``assign`` (JSON).
    - From where to before where: ``startingOffsets`` (default ``earliest``) and ``endingOffsets`` (default ``latest``):
      ``earliest``, ``latest``, ``log_start``, ``lso``, ``high_watermark``, ``log_end``, or JSON with an offset or one
      of these words for every partition; ``startingTimestamp`` and ``endingTimestamp`` (milliseconds, or ISO 8601
      with its zone), ``startingOffsetsByTimestamp`` and ``endingOffsetsByTimestamp`` (JSON). A batch that the start
      lies in comes whole; a time that no record has reached is the high watermark.
    - ``maxRecordsPerPartition``: offsets that one task may have (default 1,000,000); ``minPartitions``: divide further,
      into about so many tasks.
    - ``table``: ``batches`` (default), or ``pieces``, from which `toolkit.spark.spans.merged_spans` makes transactions.
    - ``producer_id``: only its batches. ``crc``: check every batch's checksum (default false).
    - ``mode``: PERMISSIVE (default) keeps rows with `error`, DROPMALFORMED leaves them out, FAILFAST fails.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    @plainly
    def schema(self) -> StructType:
        asked = _asked(self.options)  # here, so that load() tells of an option that is wrong
        client_config(self.options, self)
        return schema_of(asked.table)

    @plainly
    def reader(self, schema: StructType) -> _Reader:
        asked = _asked(self.options)
        return _Reader(asked, client_config(self.options, self), selected(schema, asked.table))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options."""

    selection: Selection
    start: Bounds
    stop: Bounds
    most: int
    tasks: int
    table: str
    producer_id: int | None
    crc: bool
    mode: str
    timeout: float


def _asked(options: Options) -> _Asked:
    refuse_unknown(options, {*OWN, *CONNECTION, *SELECTION, *OFFSETS}, source=NAME, prefix=PREFIX)
    table = choice(options, "table", ("batches", "pieces"), default="batches")
    if table == "pieces" and options.get("producer_id") is not None:
        raise UsageError("pieces are of all producers.", do="Leave producer_id out, and filter the transactions.")
    return _Asked(
        selection=selection(options),
        start=starting(options),
        stop=ending(options),
        table=table,
        most=whole_number(options, "maxRecordsPerPartition", lowest=1) or MOST_OFFSETS,
        tasks=whole_number(options, "minPartitions", lowest=1) or 1,
        producer_id=whole_number(options, "producer_id"),
        crc=flag(options, "crc"),
        mode=choice(options, "mode", MODES, default="PERMISSIVE"),
        timeout=seconds(options, "timeout", default=30.0, lowest=0.1),
    )


@dataclass(frozen=True, slots=True)
class _Unread:
    """A partition whose log cannot be found out about now, as the row that says so."""

    row: Row


class _Reader(DataSourceReader):
    """Finds the ranges where Spark plans; reads each in a task, over a connection of its own."""

    def __init__(self, asked: _Asked, config: ClientConfig, columns: pa.Schema) -> None:
        self._asked = asked
        self._config = config
        self._columns = columns

    @plainly
    def partitions(self) -> list[InputPartition]:
        asked = self._asked
        with Wire(self._config, timeout=asked.timeout) as wire:
            topology, places = asked.selection.read(wire)
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
        of_failures = _damage_table if self._asked.table == "pieces" else BATCHES.arrow
        if isinstance(part, _Unread):
            yield of_failures([part.row])
            return
        try:
            with Wire(self._config, timeout=self._asked.timeout) as wire:
                section = read_range(wire, part, crc=self._asked.crc)
                if self._asked.table == "pieces":
                    yield from _pieces(section)
                else:
                    yield from section_batches(section, producer_id=self._asked.producer_id)
        except ToolkitError as error:
            yield of_failures([_unread(part, error)])


def _section(wire: Wire, row: Row, asked: _Asked) -> tuple[Place, int, int, int] | _Unread:
    """Place, start, stop and log start of what is to be read of a partition."""
    place = (row["topic"], row["partition"])
    try:
        start, stop = section_bounds(wire, row, asked.start.of(place), asked.stop.of(place))
    except (BrokerError, ConnectionFailed) as error:
        found = {"topic": place[0], "partition": place[1], "broker_id": row["leader"]}
        return _Unread({**found, "error": row["error"] or row_text(error)})
    return place, start, stop, row["log_start_offset"] or 0


def _pieces(section: Section) -> Iterator[pa.Table]:
    failures: list[Row] = []
    parts = section_parts(section, failures)
    where = Where(topic=section.place[0], partition=section.place[1], broker_id=section.broker_id)
    before = begin() if section.start == 0 else EMPTY
    for rows in piece_batches(parts, where, log=None, before=before, log_end_offset=section.stop):
        yield pa.Table.from_batches([rows])
    if failures:
        yield _damage_table(failures)


def _damage_table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_batches([piece_rows({**row, "slot": OF_LOG, "kind": DAMAGE}, rows=1) for row in rows])


def _unread(part: Range, error: ToolkitError) -> Row:
    """The row of a range that nobody could be asked for."""
    text = f"{row_text(error).rstrip('.')}; offsets {part.start} to {part.stop - 1} were not read"
    return {"topic": part.place[0], "partition": part.place[1], "error": text}
