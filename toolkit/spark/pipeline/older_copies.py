"""Logs that version 0.1 stored once for each path of a copy: the rows of the older copies are dropped.

Cluster, broker, topic id and partition prove that two stored logs are one. The copy that reaches furthest stays; of the
others only what is before its beginning, which retention has deleted since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import functions as sf

from toolkit.analysis.history.resume_state import LogState
from toolkit.schema.table import EPOCH
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.fold_states import FoldStates
from toolkit.spark.pipeline.pipeline_source import FROM_OFFSET
from toolkit.spark.pipeline.tables.staging_table import IDS, IS_FINAL, LOG, StoredState
from toolkit.spark.pipeline.tables.stored_tables import CLUSTER_ID, TOPIC_ID
from toolkit.spark.pipeline.tables.table_store import TableStore

BEGIN = {
    "log_transactions": "min(least(first_offset, marker_offset))",
    "lso_timeline": "min(log_end_offset) - 1",
    "transaction_history": "min(first_offset)",
    "batches": "min(base_offset)",
}
"""SQL of the offset from which on a table has rows of a log, comparable as in `FROM_OFFSET`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderCopies:
    """Stored logs that are copies of another stored log."""

    # the newest copy of each older one, by the names of their states
    newest: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, str] = field(default_factory=dict)  # the present name of each older copy
    unproven: Sequence[str] = ()  # stored logs that may be copies of another one, but nothing proves it

    @property
    def sentences(self) -> Sequence[str]:
        """What was done with them, and what was not proven."""
        dropped, unproven = (sum(not each.endswith(IDS) for each in logs) for logs in (self.newest, self.unproven))
        found = []
        if dropped:
            found.append(
                f"{dropped:,} logs were stored again by version 0.1 from older copies at other paths: the rows of the "
                "older copies are dropped, except those from before the newest copy."
            )
        if unproven:
            found.append(
                f"{unproven:,} logs that version 0.1 stored may be copies of other stored logs, so their rows may be "
                "there twice: read the newest copy with its meta.properties and partition.metadata to prove it "
                f"(for example {min(self.unproven)})."
            )
        return found


def find_older_copies(listings: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> OlderCopies:
    """The older copies among the stored logs.

    `listings`: the listing of each log, by name.
    `states`: the stored states, by log.
    """
    old: defaultdict[tuple[object, ...], list[StoredState]] = defaultdict(list)
    for log, state in states.items():
        if _is_of_0_1(log) and state.topic_id is not None and state.broker_id is not None:
            old[state.topic_id, str(state.broker_id), state.topic, state.partition, log.endswith(IDS)].append(state)
    newest: dict[str, str] = {}
    listed: dict[str, str] = {}
    for name, row in listings.items():
        identity = LogIdentity.of(name)
        copies = old.get((identity.topic_id, identity.broker, row.topic, row.partition, name.endswith(IDS)))
        if copies is None or identity.is_by_path:
            continue
        if name in states:
            copies = [*copies, states[name]]
        best = max(copies, key=_reach)
        if best.is_damaged or best.is_unread or (name in states and best.log != name):
            continue
        for each in copies:
            if each is not best:
                newest[each.log], listed[each.log] = best.log, name
    return OlderCopies(newest=newest, listed=listed, unproven=_unproven(states, without=newest))


def _is_of_0_1(name: str) -> bool:
    return ":" in name.split("/", 1)[0]


def _reach(state: StoredState) -> tuple[object, ...]:
    epoch, end = (-1 if each is None else each for each in (state.leader_epoch, state.log_end_offset))
    return epoch, end, not state.is_damaged, state.latest or EPOCH, state.log


def _unproven(states: Mapping[str, StoredState], *, without: Iterable[str]) -> list[str]:
    """Logs of version 0.1 that have the partition and broker of another stored log, and no other topic id."""
    by_place: defaultdict[tuple[object, ...], list[StoredState]] = defaultdict(list)
    for log in states.keys() - set(without):
        state = states[log]
        if state.topic is not None and not log.startswith("live:"):
            by_place[state.topic, state.partition, state.broker_id, log.endswith(IDS)].append(state)
    return [
        each.log
        for of_place in by_place.values()
        for each in of_place
        if _is_of_0_1(each.log)
        and any(other is not each and _may_be_one_topic(each.topic_id, other.topic_id) for other in of_place)
    ]


def _may_be_one_topic(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def drop_older_copies(store: TableStore, states: FoldStates, copies: OlderCopies) -> None:
    """Drop the rows of older copies; a repeated call changes nothing.

    Their states are dropped at the end of the run, so that a run that is killed meanwhile is repeated.
    """
    if not copies.newest:
        return
    states.remember(_with_earlier_holds(store, states, copies))
    for name in BEGIN:
        _drop_rows(store, name, copies)
    states.obsolete_logs = [*states.obsolete_logs, *copies.newest]


def _drop_rows(store: TableStore, name: str, copies: OlderCopies) -> None:
    stored = store.find(name)
    if stored is None:
        return
    # The coordinators' log is compacted: what an id did earlier may be in the older copy only.
    of_id = ["transactional_id"] if name == "transaction_history" else []
    pairs = store.spark.createDataFrame(
        [
            (old, newest, copies.listed[old], *LogIdentity.of(copies.listed[old]).origin)
            for old, newest in copies.newest.items()
        ],
        f"old string, newest string, listed string, {CLUSTER_ID} string, {TOPIC_ID} string",
    )
    begins = stored.groupBy(sf.col(LOG).alias("newest"), *of_id).agg(sf.expr(BEGIN[name]).alias("begin"))
    groups = stored.select(sf.col(LOG).alias("old"), *of_id).distinct().join(sf.broadcast(pairs), "old")
    view = store.view(groups.join(begins, ["newest", *of_id], "left"))
    same_id = " AND stored.transactional_id <=> new.transactional_id" if of_id else ""
    is_in_newest = FROM_OFFSET[name].format(offset="new.begin")
    store.spark.sql(
        f"MERGE INTO {store.identifier(name)} AS stored USING {view} AS new ON stored.{LOG} = new.old{same_id} "
        f"WHEN MATCHED AND (NOT stored.{IS_FINAL} OR (new.begin IS NOT NULL AND {is_in_newest})) THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {LOG} = new.listed, {CLUSTER_ID} = new.{CLUSTER_ID}, {TOPIC_ID} = new.{TOPIC_ID}"
    ).collect()


def _with_earlier_holds(store: TableStore, states: FoldStates, copies: OlderCopies) -> dict[str, bytes]:
    """The states of the newest copies, with the LSO holds that ended before them."""
    pairs = {old: newest for old, newest in copies.newest.items() if states.before[old].is_held}
    stored = store.find("log_transactions")
    if not pairs or stored is None:
        return {}
    grouped = stored.groupBy(LOG).agg(sf.expr(BEGIN["log_transactions"]).alias("begin"))
    begins: dict[str, int | None] = {row[LOG]: row["begin"] for row in grouped.collect()}
    rows = {row.log: row for row in StoredState.of_table(states.remembered_table([*pairs, *pairs.values()]))}
    found: dict[str, LogState] = {}
    for old, newest in pairs.items():
        state = found.setdefault(newest, _log_state(rows[newest]))
        state.add_earlier_holds(_log_state(rows[old]), before=begins.get(newest))
    return {log: state.to_bytes() for log, state in found.items()}


def _log_state(row: StoredState) -> LogState:
    return LogState.from_bytes(
        row.remembered or b"", topic=row.topic, partition=row.partition, broker_id=row.broker_id, min_held_ms=0
    )
