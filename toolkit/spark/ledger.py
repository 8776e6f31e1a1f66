"""What is stored, and what a run that never came to its end was about to store.

The ledger is written as a whole before and after everything else, in turns to one of two places, each with its number:
the one with the higher number counts. So a crash while it is written leaves the one before.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import functions as sf

from toolkit.schema import Column, Table
from toolkit.schema.table import BOOL, INT32, INT64, STRING, TIME
from toolkit.spark.store import RUN, Store
from toolkit.spark.types import spark_table

__all__ = ["LEDGER", "REPLACING", "STORED", "WRITING", "Ledger", "Made", "Part", "digest"]

STORED, WRITING, REPLACING = "stored", "writing", "replacing"
PLACES = 2
PLACE = "place"

LEDGER = Table(
    "ledger",
    "a part of a log, or a table of something, that is stored or was about to be; number is that of the ledger",
    (
        Column("number", INT64, "Number of the ledger: the rows with the highest one count.", nullable=False),
        Column("state", STRING, "stored; or writing, replacing: a run was about to, and may not have.", nullable=False),
        Column("table", STRING, "Table that was made; null for a part of a log."),
        Column("unit", STRING, "What of that table; null for all of it."),
        Column("given", STRING, "What it was made from, if that is not told otherwise."),
        Column("log", STRING, "The log that a part is of."),
        Column("segment", STRING, "Name of the part."),
        Column("topic", STRING, "Topic."),
        Column("partition", INT32, "Partition."),
        Column("broker_id", INT32, "Broker; null if not known, or where several may have sent it."),
        Column("base_offset", INT64, "Offset that its segment is named after."),
        Column("from_offset", INT64, "First offset that may be in it."),
        Column("end_offset", INT64, "Offset after its last batch."),
        Column("from_position", INT64, "Byte of its segment that it begins at.", unit="bytes"),
        Column("end_position", INT64, "Byte after its last batch.", unit="bytes"),
        Column("leader_epoch", INT32, "Highest leader epoch of its batches."),
        Column("file", STRING, "Segment that it was read from; null where a broker sent it."),
        Column("size", INT64, "Size of that segment when it was listed.", unit="bytes"),
        Column("modified", TIME, "When that segment had last been written."),
        Column("topic_id", STRING, "Id of the topic."),
        Column("stretch", INT32, "Grows by one where offsets before the part were lost before they were read."),
        Column("rows", INT64, "Rows of batches.", unit="rows"),
        Column("errors", INT64, "Those with error.", unit="rows"),
        Column("unread", BOOL, "Whether its segment could not be opened."),
        Column("made_by", INT64, "Run that stored it last."),
    ),
    key=("number", "log", "segment", "table", "unit"),
    sort=("log", "from_offset", "table", "unit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a log: a segment, or what of it was read at a time; or what a broker sent. Columns of `LEDGER`."""

    log: str
    segment: str
    topic: str | None
    partition: int | None
    from_offset: int
    broker_id: int | None = None
    base_offset: int | None = None
    end_offset: int = 0
    from_position: int = 0
    end_position: int = 0
    leader_epoch: int | None = None
    file: str | None = None
    size: int | None = None
    modified: dt.datetime | None = None
    topic_id: str | None = None
    stretch: int = 0
    rows: int = 0
    errors: int = 0
    unread: bool = False
    given: str | None = None
    made_by: int = 0
    state: str = STORED

    @property
    def key(self) -> tuple[str, str]:
        return self.log, self.segment

    @property
    def units(self) -> dict[str, str]:
        return {"log": self.log, "segment": self.segment}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A table, or what of it belongs to a unit: the run that made it, and from what."""

    table: str
    unit: str | None = None
    given: str = ""
    made_by: int = 0
    state: str = STORED


@dataclass(slots=True)
class Ledger:
    """What is stored in one place.

    Parameters
    ----------
    parts
        By log and name.
    made
        By table and unit.
    run
        Number of the run that goes on.
    """

    parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    made: dict[tuple[str, str | None], Made] = field(default_factory=dict)
    run: int = 1
    number: int = 0

    @classmethod
    def load(cls, store: Store) -> Ledger:
        """The ledger of a store, and the number of the next run; an empty one where nothing is stored."""
        stored = store.load(LEDGER.name, LEDGER, units=[PLACE])
        rows: list[dict[str, Any]] = stored.toArrow().to_pylist()
        number = max((row["number"] for row in rows), default=0)
        rows = [row for row in rows if row["number"] == number]
        parts = [_part(row) for row in rows if row["log"] is not None]
        made = [_made(row) for row in rows if row["table"] not in (None, LEDGER.name)]
        return cls(
            parts={part.key: part for part in parts},
            made={(each.table, each.unit): each for each in made},
            run=1 + max((row[RUN] for row in rows), default=0),
            number=number,
        )

    def save(self, store: Store) -> None:
        """Write it beside the one before."""
        self.number += 1
        entries = [asdict(part) for part in self.parts.values()]
        entries += [asdict(made) for made in (*self.made.values(), Made(table=LEDGER.name, made_by=self.run))]
        rows = LEDGER.arrow({"number": self.number, **entry} for entry in entries)
        frame = store.spark.createDataFrame(spark_table(rows)).coalesce(1)
        place = sf.lit(str(self.number % PLACES)).alias(PLACE)
        store.replace_units(LEDGER.name, frame.select("*", sf.lit(self.run).cast("long").alias(RUN), place), [PLACE])

    def logs(self) -> dict[str, list[Part]]:
        """The stored parts of each log, in its order."""
        found: dict[str, list[Part]] = {}
        for part in sorted(self.parts.values(), key=lambda part: (part.log, part.from_offset, part.segment)):
            if part.state != WRITING:
                found.setdefault(part.log, []).append(part)
        return found

    def begin(self, parts: Iterable[Part]) -> None:
        """Note parts that are about to be written."""
        for part in parts:
            before = self.parts.get(part.key)
            if before is None or before.state == WRITING:
                self.parts[part.key] = replace(part, state=WRITING)
            else:
                self.parts[part.key] = replace(before, state=REPLACING)

    def is_made(self, table: str, unit: str | None, *, given: str) -> bool:
        """Whether a table, or a unit of it, was made from just this."""
        made = self.made.get((table, unit))
        return made is not None and made.state == STORED and made.given == given

    def begin_made(self, table: str, units: Iterable[str | None]) -> None:
        """Note what is about to be made."""
        for unit in units:
            self.made[table, unit] = Made(table=table, unit=unit, made_by=self.run, state=WRITING)

    def end_made(self, table: str, given: Mapping[str | None, str]) -> None:
        """Note what was made, and from what."""
        for unit, from_ in given.items():
            self.made[table, unit] = Made(table=table, unit=unit, given=from_, made_by=self.run)


def digest(told: object) -> str:
    """Another one where anything of it is different."""
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _part(row: Mapping[str, Any]) -> Part:
    return Part(**{name: row[name] for name in Part.__dataclass_fields__})


def _made(row: Mapping[str, Any]) -> Made:
    return Made(**{name: row[name] for name in Made.__dataclass_fields__})
