"""The state of each log between runs: open transactions, LSO holds, and the last offset read.

A run writes the states of the logs, and last its row in the table ``runs``. Until that is there, the states of the run
before are, too: a run continues from the newest run of which both are complete.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.log_plan import LOST, REMEMBERED, LogPlan
from toolkit.spark.pipeline.tables.staging_table import RUNS, STATE, StoredRun, StoredState
from toolkit.spark.pipeline.tables.stored_tables import RUN_ID
from toolkit.spark.pipeline.tables.table_store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT_RUNS = 5  # of a state that was restored, its run must be there


@dataclass(slots=True, kw_only=True)
class FoldStates:
    """States by log."""

    store: TableStore  # the store of the states
    runs: list[StoredRun]  # the last complete runs, the newest last
    run_id: int  # number of this run
    before: dict[str, StoredState]  # states of earlier runs
    new: dict[str, StoredState] = field(default_factory=dict)  # states of this run

    @staticmethod
    def load(store: TableStore) -> FoldStates:
        """Load the states of earlier runs."""
        states: defaultdict[int, dict[str, StoredState]] = defaultdict(dict)
        for row in store.internal.rows(STATE.name, STATE, *STATE.names, RUN_ID):
            states[row[RUN_ID]][row["log"]] = StoredState.of(row)
        runs = sorted(map(StoredRun.of, store.internal.rows(RUNS.name, RUNS)), key=lambda each: each.run_id)
        while runs and len(states[runs[-1].state_run]) != runs[-1].logs:  # one of both was restored
            runs.pop()
        found = FoldStates(store=store, runs=runs, run_id=0, before={})
        found.run_id, found.before = found.last.run_id + 1, states[found.last.state_run]
        return found

    @property
    def last(self) -> StoredRun:
        """The last complete run."""
        return self.runs[-1] if self.runs else StoredRun()

    def rename(self, names: Mapping[str, str]) -> None:
        """Give logs other names, in the stored tables, too.

        `names`: new names by old names.
        """
        if not names:
            return
        self.store.rename_logs({old: LogIdentity.of(new) for old, new in names.items()})
        for old, new in names.items():
            self.before[new] = _renamed(self.before.pop(old), new)
        self.store.internal.overwrite(STATE.name, STATE, self._rows(self.before.values()), run_id=self.last.state_run)

    @property
    def all(self) -> dict[str, StoredState]:
        """The newest state of each log."""
        return {**self.before, **self.new}

    def add(
        self, states: Iterable[StoredState], listed: Mapping[str, LogListing], plans: Mapping[str, LogPlan]
    ) -> None:
        """Add the states of the logs that this run has read.

        `states`: the new states.
        `listed`, `plans`: the listing of each log, and how it was read.
        """
        for state in states:
            listing, plan = listed[state.log], plans[state.log]
            damaged = state.damaged_bases
            if plan.remembered in (REMEMBERED, LOST):  # what was damaged before, and was not read again, still is
                damaged += self.before[state.log].damaged_bases
            self.new[state.log] = replace(
                state,
                listing=listing.listing,
                topic_id=listing.topic_id,
                replica=listing.log,
                segment_sizes=listing.segment_sizes,
                first_batch=listing.first_batch,
                damaged_segments=json.dumps(sorted(set(damaged))),
            )

    def save(self, run: StoredRun) -> None:
        """Store the states and then the run, which completes it."""
        store, last = self.store.internal, self.last
        if self.new:
            replaced = f"{RUN_ID} <> {last.state_run}"
            store.replace(STATE.name, STATE, self._rows(self.all.values()), run_id=self.run_id, replaced=replaced)
        state_run = self.run_id if self.new else last.state_run
        run = replace(run, run_id=self.run_id, state_run=state_run, logs=len(self.all))
        kept = [*self.runs[1 - KEPT_RUNS :], run]
        rows = from_arrow(store.spark, spark_table(RUNS.arrow(each.row() for each in kept)))
        store.overwrite(RUNS.name, RUNS, rows, run_id=self.run_id)

    def _rows(self, states: Iterable[StoredState]) -> DataFrame:
        return from_arrow(self.store.spark, spark_table(STATE.arrow(states)))


def _renamed(state: StoredState, name: str) -> StoredState:
    """A state with another name of its log, which has a broker if it is known now."""
    broker = LogIdentity.of(name).broker_id
    return replace(state, log=name, broker_id=state.broker_id if broker is None else broker)
