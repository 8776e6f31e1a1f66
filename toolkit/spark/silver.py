"""What follows from the raw rows, partition by partition: only of partitions whose raw rows have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from toolkit.formats.records import STATE_TOPIC
from toolkit.spark.bronze import LOST
from toolkit.spark.histories import histories
from toolkit.spark.ledger import Ledger, Part, digest
from toolkit.spark.lso import lso_timeline
from toolkit.spark.spans import spans
from toolkit.spark.store import RUN, Store
from toolkit.spark.tables import KEPT, PART, by_partition, chosen, stored
from toolkit.spark.units import LOG, TOPIC_PARTITION, partition_column, partition_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SILVER", "Silver"]

Units = Mapping[str, list[Part]]

SILVER = ("spans", "lso_timeline", "histories")
"""The derived tables, in the order in which they are made."""

ENDED_UNREAD = f"{LOST}: Its end was deleted from the log before it was read."


@dataclass(frozen=True, slots=True, kw_only=True)
class Silver:
    """The derived tables of a store.

    Parameters
    ----------
    store, ledger
        Where they are, and what they were made from.
    changed
        Of each table the partitions to make, and the parts of their logs.
    """

    store: Store
    ledger: Ledger
    changed: Mapping[str, Units]

    @classmethod
    def begin(cls, store: Store, ledger: Ledger) -> Silver:
        """Find out what is to be made, and note it."""
        everything = _units(ledger.parts.values())
        of_coordinators = _units(part for part in ledger.parts.values() if part.topic == STATE_TOPIC)
        changed = {}
        for table in SILVER:
            units = of_coordinators if table == "histories" else everything
            new = {
                unit: parts for unit, parts in units.items() if not ledger.is_made(table, unit, given=_signature(parts))
            }
            # How long a transaction has been open is told by the newest record of all.
            changed[table] = units if new and table == "histories" else new
            ledger.begin_made(table, changed[table])
        return cls(store=store, ledger=ledger, changed=changed)

    def make(self, table: str) -> None:
        """Make a table of the partitions that have changed."""
        units = self.changed[table]
        rows = MAKE[table](self, units)
        numbered = rows.select(*KEPT[table].table.names, sf.lit(self.ledger.run).cast("long").alias(RUN))
        self.store.replace_units(table, by_partition(numbered, table), [TOPIC_PARTITION])
        self._remove_stale(table, units)

    def end(self, table: str) -> None:
        """Note what was made."""
        self.ledger.end_made(table, {unit: _signature(parts) for unit, parts in self.changed[table].items()})
        self.ledger.save(self.store)

    def _remove_stale(self, table: str, units: Units) -> None:
        """A partition that has no rows any more was not overwritten."""
        rows = chosen(stored(self.store, table), TOPIC_PARTITION, units).where(sf.col(RUN) < self.ledger.run)
        stale = sorted(row[TOPIC_PARTITION] for row in rows.select(TOPIC_PARTITION).distinct().collect())
        self.store.remove_units(table, KEPT[table].table, [{TOPIC_PARTITION: unit} for unit in stale])

    def _spans(self, units: Units) -> DataFrame:
        *before, last = self._stretches(units)
        found = [self._spans_of(stretch, units) for stretch in before]
        is_open = sf.col("outcome") == "open"
        lost = [
            each.withColumns(
                {
                    "error": sf.when(is_open, ENDED_UNREAD).otherwise(sf.col("error")),
                    "outcome": sf.when(~is_open, sf.col("outcome")),
                }
            )
            for each in found
        ]
        return _union([*lost, self._spans_of(last, units)])

    def _spans_of(self, stretch: Units, units: Units) -> DataFrame:
        snapshots = self._raw("snapshots", units)
        if len(self._stretches(units)) > 1:
            bounds: dict[str, tuple[int, int]] = {}
            for parts in stretch.values():
                for part in parts:
                    begin, end = bounds.get(part.log, (part.from_offset, part.end_offset))
                    bounds[part.log] = min(begin, part.from_offset), max(end, part.end_offset)
            known = self.store.spark.createDataFrame(
                [(log, *both) for log, both in bounds.items()], "log string, begin long, end long"
            )
            inside = snapshots.join(sf.broadcast(known), LOG)
            snapshots = inside.where("snapshot_offset between begin and end")
        return spans(self._batches(stretch, units), snapshots=snapshots.select(*KEPT["snapshots"].table.names))

    def _lso_timeline(self, units: Units) -> DataFrame:
        partitions = self._partitions(units)
        stretches = self._stretches(units)
        if len(stretches) == 1:
            return lso_timeline(self._made("spans", units), self._batches(units, units), partitions=partitions)
        *before, last = stretches
        found = [lso_timeline(self._spans_of(each, units), self._batches(each, units)) for each in before]
        of_last = lso_timeline(self._spans_of(last, units), self._batches(last, units), partitions=partitions)
        return _union([*found, of_last])

    def _histories(self, units: Units) -> DataFrame:
        return histories(self._raw("coordinator_events", units).select(*KEPT["coordinator_events"].table.names))

    def _stretches(self, units: Units) -> list[Units]:
        """The parts by how often offsets were lost before them."""
        numbers = sorted({part.stretch for parts in units.values() for part in parts})
        return [
            {unit: mine for unit, parts in units.items() if (mine := [p for p in parts if p.stretch == number])}
            for number in numbers
        ]

    def _batches(self, stretch: Units, units: Units) -> DataFrame:
        rows = self._raw("batches", stretch)
        if stretch != units:
            keys = [part.key for parts in stretch.values() for part in parts]
            wanted = self.store.spark.createDataFrame(keys, "log string, segment string")
            rows = rows.join(sf.broadcast(wanted), list(PART), "left_semi")
        return rows.select(*KEPT["batches"].table.names)

    def _partitions(self, units: Units) -> DataFrame:
        names = KEPT["partitions"].table.names
        named = stored(self.store, "partitions").withColumn(
            TOPIC_PARTITION, partition_column(*KEPT["partitions"].place)
        )
        return chosen(named, TOPIC_PARTITION, units).select(*names)

    def _raw(self, table: str, units: Units) -> DataFrame:
        return chosen(stored(self.store, table), LOG, {part.log for parts in units.values() for part in parts})

    def _made(self, table: str, units: Units) -> DataFrame:
        return chosen(stored(self.store, table), TOPIC_PARTITION, units).select(*KEPT[table].table.names)


MAKE: Mapping[str, Callable[[Silver, Units], DataFrame]] = {
    "spans": Silver._spans,
    "lso_timeline": Silver._lso_timeline,
    "histories": Silver._histories,
}


def _units(parts: Iterable[Part]) -> Units:
    found: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        found[partition_id(part.topic, part.partition)].append(part)
    return found


def _signature(parts: Iterable[Part]) -> str:
    told = sorted([part.log, part.segment, part.made_by, part.stretch] for part in parts)
    return digest(told)


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)
