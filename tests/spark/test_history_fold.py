"""Histories of transactional ids from records that come in any runs: those of the library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.test_coordinator import record
from tests.tiers import fuzzed
from toolkit.analysis.coordinator import histories
from toolkit.schema import COORDINATOR_EVENTS, HISTORIES, Row
from toolkit.spark.history_fold import (
    NEW,
    RECORDS_SCHEMA,
    _current,
    _folded,
    _unpacked,
)
from toolkit.spark.stage import LOG, STAGE_SCHEMA, STATE
from toolkit.spark.types import spark_table

if TYPE_CHECKING:
    pass

PARTITION = {"txn_state_partition": 3, "broker_id": 1}
NOTHING: Row = dict.fromkeys(COORDINATOR_EVENTS.names)
STATES = ["Ongoing"] * 3 + ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", None]


@dataclass(slots=True)
class Stored:
    """What runs have made of records."""

    random: Random
    final: list[Row] = field(default_factory=list)
    states: dict[int, Row] = field(default_factory=dict)

    def run(self, events: Iterable[Row]) -> None:
        """Read on as tasks of Spark do: each id in order, behind what is remembered of it."""
        rows = [{**event, "role": NEW, LOG: str(event["txn_state_partition"])} for event in events]
        known = pa.table({"remembered": [state["remembered"] for state in self.states.values()]})
        rows += [row for batch in _unpacked(known.to_batches()) for row in batch.to_pylist()]
        self.random.shuffle(rows)
        rows.sort(key=_order)
        cut = pa.Table.from_pylist(rows, schema=RECORDS_SCHEMA).to_batches(max_chunksize=self.random.randint(1, 20))
        for row in pa.Table.from_batches(_folded(cut), STAGE_SCHEMA).to_pylist():
            if row["table"] == STATE.name:
                self.states[row["state"]["partition"]] = row["state"]
            else:
                assert row["is_final"]
                self.final.append(row["histories"])

    def rows(self) -> list[str]:
        latest = max((state["latest"] for state in self.states.values() if state["latest"]), default=None)
        states = pa.table({name: [state[name] for state in self.states.values()] for name in ("log", "remembered")})
        found = [row for batch in _current(states.to_batches(), latest=latest) for row in batch.to_pylist()]
        return sorted(repr({name: row[name] for name in HISTORIES.names}) for row in (*self.final, *found))

    def end(self, partition: int) -> int:
        return self.states.get(partition, {}).get("log_end_offset") or 0


def _order(row: Row) -> tuple[object, ...]:
    """As `fold_histories` sorts."""
    place = ((row[name] is None, row[name] or 0) for name in ("position", "offset"))
    name = row["transactional_id"]
    return (row["txn_state_partition"], name or "", row["role"] == NEW, row["file"] is None, row["file"] or "", *place)


def listed(rows: Sequence[Row]) -> list[str]:
    return sorted(map(repr, spark_table(HISTORIES.arrow(rows)).to_pylist()))


@st.composite
def logs(draw: st.DrawFn, in_files: bool) -> list[Row]:
    """Records of one partition, and what could not be read of it: in files, or sent by brokers."""
    found: list[Row] = []
    ms = 0
    for offset, (name, state, producer_id, epoch, wait, kind) in enumerate(
        draw(
            st.lists(
                st.tuples(
                    st.sampled_from("abc"),
                    st.sampled_from(STATES),
                    st.integers(7, 8),
                    st.integers(0, 2),
                    st.sampled_from([1, 5, 3000, -2000]),
                    st.sampled_from(["record"] * 8 + ["damage", "nobody's"]),
                ),
                max_size=25,
            )
        )
    ):
        ms += wait
        place = {"file": f"{offset // 10 * 10:020d}.log", "position": offset // 2 * 100} if in_files else {}
        if kind == "damage" and in_files:
            place["position"] = offset * 50 + 50
            found.append({**NOTHING, **place, **PARTITION, "error": "CORRUPT_BATCH: no."})
            continue
        start = draw(st.sampled_from([None, 0, ms]))
        row: dict[str, Any] = dict(
            record(offset, ms, state, epoch, start=start, transactional_id=name, leader_epoch=offset // 9, **place)
        )
        if state is not None:
            row["producer_id"] = producer_id
        if kind == "nobody's":
            row |= {"transactional_id": None, "error": "CORRUPT_RECORD: no."}
        found.append(row)
    if not in_files and draw(st.booleans()):
        found.append({**NOTHING, **PARTITION, "error": "LOST: it is."})
    return found


@fuzzed(200)
@given(st.booleans().flatmap(lambda in_files: st.tuples(st.just(in_files), logs(in_files))), st.randoms())
def test_records_in_any_runs_give_the_histories_of_all(log: tuple[bool, list[Row]], random: Random) -> None:
    in_files, events = log
    stored, start = Stored(random), 0
    while start < len(events) and random.random() < 0.6:
        end = random.randint(start, len(events) - 1)
        torn = {name: events[end][name] for name in ("txn_state_partition", "broker_id", "file", "position")}
        more = [{**NOTHING, **torn, "error": "TORN_TAIL: half."}]
        stored.run([*events[start:end], *random.sample(more, random.randint(0, 1))])
        known = range(stored.end(3))
        start = max((number + 1 for number, event in enumerate(events) if event["offset"] in known), default=0)
    again = [] if in_files else random.sample(events[start:], random.randint(0, len(events) - start))
    stored.run([*events[start:], *again])
    assert stored.rows() == listed(histories(events))
