"""The state of each log between runs: open transactions, LSO holds, and the last offset read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.log_plan import LOST, REMEMBERED, LogPlan
from toolkit.spark.pipeline.tables.staging_table import STATE, StoredState
from toolkit.spark.pipeline.tables.stored_tables import RUN_ID
from toolkit.spark.pipeline.tables.table_store import TableStore


@dataclass(slots=True, kw_only=True)
class FoldStates:
    """States by log."""

    store: TableStore  # the store of the states
    last_run: int  # number of the last run that was complete
    run_id: int  # number of this run
    before: dict[str, StoredState]  # states of earlier runs
    new: dict[str, StoredState] = field(default_factory=dict)  # states of this run

    @staticmethod
    def load(store: TableStore) -> FoldStates:
        """Load the states of earlier runs."""
        rows = store.internal.rows(STATE.name, STATE, *STATE.names, RUN_ID)
        last_run = max((row[RUN_ID] for row in rows), default=0)
        before = {each.log: each for each in map(StoredState.of, rows)}
        return FoldStates(store=store, last_run=last_run, run_id=last_run + 1, before=before)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give logs other names, in the stored tables, too.

        `names`: new names by old names.
        """
        if not names:
            return
        self.store.rename_logs({old: LogIdentity.of(new) for old, new in names.items()})
        for old, new in names.items():
            self.before[new] = _renamed(self.before.pop(old), new)
        self._write(self.before.values(), run_id=self.last_run)

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
            self.put(
                replace(
                    state,
                    listing=listing.listing,
                    topic_id=listing.topic_id,
                    replica=listing.log,
                    segment_sizes=listing.segment_sizes,
                    first_batch=listing.first_batch,
                    damaged_segments=json.dumps(sorted(set(damaged))),
                )
            )

    def put(self, state: StoredState) -> None:
        """Add a state."""
        self.new[state.log] = state

    def save(self) -> None:
        """Store the states, which completes the run."""
        self._write(self.all.values(), run_id=self.run_id)

    def _write(self, states: Iterable[StoredState], *, run_id: int) -> None:
        rows = from_arrow(self.store.spark, spark_table(STATE.arrow(states)))
        self.store.internal.overwrite(STATE.name, STATE, rows, run_id=run_id)


def _renamed(state: StoredState, name: str) -> StoredState:
    """A state with another name of its log, which has a broker if it is known now."""
    broker = LogIdentity.of(name).broker_id
    return replace(state, log=name, broker_id=state.broker_id if broker is None else broker)
