"""Raw rows into the store: what is new of some logs.

A part of a log is one unit in every table that has rows of it. Its batches are written first, and how far they go
decides how far its other rows go: a broker may be writing on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from toolkit.schema import BATCHES
from toolkit.spark.intake import Intake
from toolkit.spark.ledger import REPLACING, STORED, WRITING, Ledger, Part
from toolkit.spark.store import RUN, Store
from toolkit.spark.tables import KEPT, PART, chosen, stored
from toolkit.spark.types import struct_type
from toolkit.spark.units import LOG, SEGMENT, part_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["LOST", "Bronze"]

LOST = "OFFSETS_LOST"
"""How the error of a row begins that tells of offsets that were deleted before they were read."""

LOST_SENTENCE = LOST + ": Offsets {begin:,} to {end:,} were deleted from the log before they were read."
UNREADABLE = "UNREADABLE"
NEVER = 1 << 62
Reader = Callable[[str, bool], "DataFrame"]
PARTS = "_file string, _topic string, _partition int, log string, segment string, _from long, _position long, _end long"


class Bronze:
    """What is new of logs, on its way into the store.

    Parameters
    ----------
    store, ledger
        Where it goes, and what is there.
    intakes
        What is to be done about each log.

    Attributes
    ----------
    parts
        What is read, of all logs.
    beside
        Files to list with those that are read.
    is_first
        Whether nothing was stored before.
    bytes_read
        How large the batches are that were read.
    """

    def __init__(self, store: Store, ledger: Ledger, intakes: Iterable[Intake]) -> None:
        self.store, self.ledger = store, ledger
        self.is_first = not ledger.parts
        self.bytes_read = 0
        intakes = list(intakes)
        self.beside = [file for intake in intakes for file in intake.beside]
        self.parts = [part for intake in intakes for part in intake.read]
        self.lost = [_lost(intake) for intake in intakes if intake.lost and intake.read]
        self.drop = [part for intake in intakes for part in intake.drop]
        self.noted = [part for intake in intakes for part in intake.noted]
        self._again: set[tuple[str, str]] = set()
        self.false_from = {i.read[0].log: i.false_from for i in intakes if i.read and i.false_from is not None}

    @property
    def changes(self) -> bool:
        """Whether anything is to be done, what a crashed run has left included."""
        is_whole = all(part.state == STORED for part in self.ledger.parts.values())
        return bool(self.parts or self.drop or self.noted or not is_whole)

    def note(self) -> None:
        """Note in the ledger what is about to change."""
        ledger, reading = self.ledger, {part.key for part in (*self.parts, *self.lost)}
        left = [part for part in ledger.parts.values() if part.state == WRITING and part.key not in reading]
        for part in (*self.drop, *left):
            ledger.parts[part.key] = replace(part, state=WRITING)
        ledger.parts |= {part.key: part for part in self.noted}
        for part in [part for part in ledger.parts.values() if part.state == REPLACING and part.key not in reading]:
            ledger.parts[part.key] = replace(part, state=STORED, made_by=ledger.run)  # its segment is gone meanwhile
        ledger.begin([*self.parts, *self.lost])
        self._again = {key for key in reading if ledger.parts[key].state == REPLACING}
        self.drop += left

    def take_out(self) -> None:
        """Take out what is not true any more, and what a crashed run has left."""
        for table, kept in KEPT.items():
            if kept.units == PART:
                self.store.remove_units(table, kept.table, [part.units for part in self.drop])
        for part in self.drop:
            del self.ledger.parts[part.key]

    def store_batches(self, read: Reader) -> None:
        """Write the batches of the parts, and note how far they go.

        Parameters
        ----------
        read
            Gives rows of a table that hold all that is to be read of the parts; what else is in them is left out. Of
            parts that are segments, or of those that are not.
        """
        rows = self._rows(read, "batches", self.parts)
        self.store.replace_units("batches", rows.unionByName(self._lost_rows()) if self.lost else rows, PART)
        self._remove_stale("batches")
        found = {(row[LOG], row[SEGMENT]): row for row in self._measured().collect()}
        self.bytes_read = sum(row["bytes"] or 0 for row in found.values())
        run = self.ledger.run
        read_now = [_stored(part, found[part.key].asDict() if part.key in found else {}) for part in self.parts]
        lost = [replace(part, rows=1, errors=1) for part in self.lost]
        self.ledger.parts |= {part.key: replace(part, made_by=run) for part in (*read_now, *lost)}

    def store_records(self, table: str, read: Reader) -> None:
        """Write the records of the parts that are of a coordinators' topic, as far as their batches go."""
        parts = [self.ledger.parts[part.key] for part in self.parts if part.topic == KEPT[table].topic]
        if parts:
            self.store.replace_units(table, self._rows(read, table, parts), PART)
            self._remove_stale(table)

    def store_files(self, table: str, rows: DataFrame) -> None:
        """Write rows of files that stand beside segments, each as a whole.

        Parameters
        ----------
        rows
            With their units.
        """
        self.store.replace_units(table, rows.select(*KEPT[table].table.names, self._run(), *PART), PART)
        if self.false_from:
            before = chosen(stored(self.store, table), LOG, self.false_from).where(sf.col(RUN) < self.ledger.run)
            units = [row.asDict() for row in before.select(*PART).distinct().collect()]
            false = [unit for unit in units if unit[SEGMENT] >= part_id(self.false_from[unit[LOG]])]
            self.store.remove_units(table, KEPT[table].table, false)

    def _rows(self, read: Reader, table: str, parts: Sequence[Part]) -> DataFrame:
        found = []
        for are_segments in (True, False):
            mine = [part for part in parts if (part.file is not None) is are_segments]
            if mine:
                found.append(self._of_parts(read(table, are_segments), table, mine, are_segments))
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])

    def _of_parts(self, rows: DataFrame, table: str, parts: Sequence[Part], are_segments: bool) -> DataFrame:
        kept = KEPT[table]
        topic, number = kept.place
        same = topic.eqNullSafe(sf.col("_topic")) & number.eqNullSafe(sf.col("_partition"))
        if are_segments:
            same = sf.col("file") == sf.col("_file")
        if table == "batches":
            inside = sf.col("last_offset") >= sf.col("_from")  # a log may start within a batch, which comes whole
        else:
            inside = (sf.col(kept.offset) >= sf.col("_from")) & (sf.col(kept.offset) < sf.col("_end"))
        unread = sf.coalesce(sf.col("position") >= sf.col("_position"), sf.lit(True))
        wanted = self.store.spark.createDataFrame([_wanted(part) for part in parts], PARTS)
        joined = rows.join(sf.broadcast(wanted), same, "inner")
        mine = joined.where(sf.when(sf.col("error").isNull(), inside).otherwise(unread))
        return mine.select(*kept.table.names, self._run(), *PART)

    def _lost_rows(self) -> DataFrame:
        rows = [
            {
                **dict.fromkeys(BATCHES.names),
                "topic": part.topic,
                "partition": part.partition,
                "broker_id": part.broker_id,
                "error": LOST_SENTENCE.format(begin=part.from_offset, end=part.end_offset - 1),
            }
            for part in self.lost
        ]
        schema = struct_type(BATCHES).add(LOG, "string").add(SEGMENT, "string")
        given = [
            (*(row[name] for name in BATCHES.names), part.log, part.segment)
            for row, part in zip(rows, self.lost, strict=True)
        ]
        return self.store.spark.createDataFrame(given, schema).select(*BATCHES.names, self._run(), *PART)

    def _remove_stale(self, table: str) -> None:
        """A part that has no rows any more was not overwritten."""
        if not self._again:
            return
        before = chosen(stored(self.store, table), LOG, {log for log, _ in self._again})
        keys = before.where(sf.col(RUN) < self.ledger.run).select(*PART).distinct().collect()
        stale = sorted({(row[LOG], row[SEGMENT]) for row in keys} & self._again)
        self.store.remove_units(table, KEPT[table].table, [{LOG: log, SEGMENT: segment} for log, segment in stale])

    def _measured(self) -> DataFrame:
        logs = {part.log for part in self.parts}
        sound = sf.col("error").isNull()
        return (
            chosen(stored(self.store, "batches"), LOG, logs)
            .where(sf.col(RUN) == self.ledger.run)
            .groupBy(*PART)
            .agg(
                (sf.max("last_offset") + 1).alias("end_offset"),
                sf.max(sf.when(sound, sf.col("position") + sf.col("size"))).alias("end_position"),
                sf.max("leader_epoch").alias("leader_epoch"),
                sf.count(sf.lit(1)).alias("rows"),
                sf.count("error").alias("errors"),
                sf.max(sf.col("error").startswith(UNREADABLE)).alias("unread"),
                sf.sum("size").alias("bytes"),
            )
        )

    def _run(self) -> Column:
        return sf.lit(self.ledger.run).cast("long").alias(RUN)


def _lost(intake: Intake) -> Part:
    assert intake.lost
    begin, end = intake.lost
    part = intake.read[0]
    return replace(
        part,
        segment=f"{part_id(begin)}-lost",
        base_offset=None,
        from_offset=begin,
        end_offset=end,
        file=None,
        size=None,
    )


def _wanted(part: Part) -> tuple[Any, ...]:
    """Of a segment that is read as a whole all, whatever it is named after."""
    begin = -1 if part.from_offset == part.base_offset else part.from_offset
    end = NEVER if part.file is None and (part.errors or part.given) else part.end_offset
    return part.file, part.topic, part.partition, part.log, part.segment, begin, part.from_position, end


def _stored(part: Part, found: Mapping[str, Any]) -> Part:
    """A part with what was found in it; one that a broker did not send all of ends where it begins."""
    errors = found.get("errors") or 0
    end = max(found.get("end_offset") or 0, part.from_offset, 0)
    if part.file is None and part.given is None:
        end = part.from_offset if errors else max(end, part.end_offset)
    return replace(
        part,
        end_offset=end,
        end_position=max(found.get("end_position") or 0, part.from_position),
        leader_epoch=found.get("leader_epoch"),
        rows=found.get("rows") or 0,
        errors=errors,
        unread=bool(found.get("unread")),
        state=STORED,
    )
