"""The state of each log between runs: open transactions, LSO holds, and the last offset read."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.dataframe import DataFrame

from toolkit.spark.arrow_types import from_arrow, spark_table, struct_type
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.datasources.partial_transactions import REMEMBERED_COLUMNS
from toolkit.spark.pipeline.tables.staging_table import STATE, StoredState, rows_of, staged_rows
from toolkit.spark.pipeline.tables.stored_tables import RUN_ID
from toolkit.spark.pipeline.tables.table_store import TableStore

SMALL = [name for name in STATE.names if name != "remembered"]


@dataclass(slots=True, kw_only=True)
class FoldStates:
    """States by log."""

    store: TableStore  # the store of the states
    run_id: int  # number of this run
    before: dict[str, StoredState]  # states of earlier runs, without ``remembered``, which may be large
    # states of this run, with ``remembered`` if this process made it
    new: dict[str, StoredState] = field(default_factory=dict)
    obsolete_logs: Collection[str] = ()  # logs that no longer exist or are no longer read
    # rows of `staging_table.STAGE` with ``remembered`` of `new`, if Spark's tasks made them
    staged: DataFrame | None = None

    @staticmethod
    def load(store: TableStore) -> FoldStates:
        """Load the states of earlier runs."""
        rows = store.internal.rows(STATE.name, STATE, *SMALL, RUN_ID)
        run_id = max((row[RUN_ID] for row in rows), default=0) + 1
        return FoldStates(store=store, run_id=run_id, before={each.log: each for each in map(StoredState.of, rows)})

    def rename(self, names: Mapping[str, str]) -> None:
        """Give logs other names, in the stored tables, too.

        `names`: new names by old names.
        """
        if not names:
            return
        self.store.rename_logs(names, {new: LogIdentity.of(new).origin for new in names.values()})
        for old, new in names.items():
            self.before[new] = replace(self.before.pop(old), log=new)
        stored = self.store.internal.load(STATE.name, STATE).select(*STATE.names)
        frame = stored.sparkSession.createDataFrame(list(names.items()), "log string, new_name string")
        rows = stored.join(sf.broadcast(frame), "log", "left").withColumn("log", sf.coalesce("new_name", "log"))
        self.store.internal.overwrite(STATE.name, STATE, rows.select(*STATE.names), run_id=self.run_id - 1)

    @property
    def all(self) -> dict[str, StoredState]:
        """The newest state of each log, without `obsolete_logs`."""
        return {**{log: state for log, state in self.before.items() if log not in self.obsolete_logs}, **self.new}

    def add(
        self, staged: DataFrame | pa.Table, listed: Mapping[str, LogListing], *, continued: Collection[str] = ()
    ) -> None:
        """Add the states of the logs that this run has read.

        `staged`: rows of `toolkit.spark.pipeline.tables.staging_table.STAGE`.
        `listed`: the listing of each log.
        `continued`: logs of which only new data was read: segments that were damaged before still are.
        """
        if isinstance(staged, DataFrame):
            self.staged = staged
            rows = rows_of(staged, STATE.name).drop("remembered").toArrow()
        else:
            rows = staged_rows(staged, STATE.name)
        for state in StoredState.of_table(rows):
            listing = listed[state.log]
            damaged = state.damaged_bases
            if state.log in continued:
                damaged += self.before[state.log].damaged_bases
            self.put(
                replace(
                    state,
                    listing=listing.listing,
                    topic_id=listing.topic_id,
                    segment_sizes=listing.segment_sizes,
                    first_batch=listing.first_batch,
                    damaged_segments=json.dumps(sorted(set(damaged))),
                )
            )

    def put(self, state: StoredState) -> None:
        """Add a state."""
        self.new[state.log] = state

    def remembered(self, logs: Collection[str]) -> DataFrame:
        """`REMEMBERED_COLUMNS` of the newest states of some logs."""
        spark = self.store.spark
        new = [log for log in logs if log in self.new]
        old = [log for log in logs if log in self.before and log not in self.new]
        frames = [_select(self.store.internal.load(STATE.name, STATE), old)] if old else []
        if new and self.staged is not None:
            frames.append(_select(rows_of(self.staged, STATE.name), new))
        if not frames:
            return spark.createDataFrame([], struct_type(STATE)).select(*REMEMBERED_COLUMNS)
        return reduce(DataFrame.unionByName, [frame.select(*REMEMBERED_COLUMNS) for frame in frames])

    def remembered_table(self, logs: Collection[str]) -> pa.Table:
        """`remembered`, as an Arrow table in this process."""
        remembered = [log for log in logs if log in self.new and self.new[log].remembered is not None]
        schema = pa.schema([STATE.arrow_schema.field(name) for name in REMEMBERED_COLUMNS])
        rows = pa.Table.from_pylist([self.new[log].row() for log in remembered], schema=schema)
        others = set(logs).difference(remembered)
        return pa.concat_tables([rows, self.remembered(others).toArrow().cast(schema)]) if others else rows

    def save(self) -> None:
        """Store the states, which completes the run."""
        rows = from_arrow(self.store.spark, spark_table(STATE.arrow(self.new.values())))
        if self.staged is not None:
            of_tasks = rows_of(self.staged, STATE.name).select("log", sf.col("remembered").alias("of_tasks"))
            joined = rows.join(of_tasks, "log", "left")
            rows = joined.withColumn("remembered", sf.coalesce("remembered", "of_tasks")).select(*STATE.names)
        if self.before:
            before = self.store.internal.load(STATE.name, STATE).select(*STATE.names)
            rows = rows.unionByName(_select(before, [*self.new, *self.obsolete_logs], how="left_anti"))
        self.store.internal.overwrite(STATE.name, STATE, rows, run_id=self.run_id)


def _select(states: DataFrame, logs: Iterable[str], *, how: str = "left_semi") -> DataFrame:
    names = states.sparkSession.createDataFrame([(log,) for log in logs], "log string")
    return states.join(sf.broadcast(names), "log", how)
