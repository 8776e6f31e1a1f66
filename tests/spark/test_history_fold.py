"""Transaction history folded from records that are split over runs matches that of the library."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.test_transaction_history import record, transaction
from tests.sources.log_files import (
    HIGH_WATERMARK,
    after,
    ids_of,
    state_record,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
)
from tests.spark.frames import damaged_copy
from tests.spark.test_incomplete_copies import Tables
from tests.tiers import fuzzed, seed
from toolkit import LogDir
from toolkit.analysis.transaction_history import transaction_history, unread_partitions
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTION_LOG, Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import LogId
from toolkit.sources.logdir.log_dir_layout import CLEAN_SHUTDOWN
from toolkit.spark.arrow_types import spark_table
from toolkit.spark.datasources.log_reader import LogIdentity
from toolkit.spark.pipeline.history_fold import current_transaction_history, fold_records
from toolkit.spark.pipeline.log_states import TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import STATE, StoredState

PARTITION = {"txn_state_partition": 3, "broker_id": 1}
FROM_BEGINNING = LogPlan()
EMPTY_ROW: Row = dict.fromkeys(TRANSACTION_LOG.names)
STATES = ["Ongoing"] * 3 + ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", None]


@dataclass(slots=True)
class Stored:
    """Results of several runs."""

    random: Random
    final: list[Row] = field(default_factory=list)
    states: dict[int, Row] = field(default_factory=dict)

    def run(self, events: Iterable[Row], plan: LogPlan = FROM_BEGINNING) -> None:
        """Fold new records, by partition, onto its stored state."""
        by_partition: dict[int, list[TransactionLogRecord]] = {}
        for event in events:
            by_partition.setdefault(event["txn_state_partition"], []).append(TransactionLogRecord.of(event))
        for partition, records in by_partition.items():
            state = self.states.get(partition)
            where = LogId(topic=STATE_TOPIC, partition=partition, broker_id=records[0].broker_id)
            known = None if state is None else StoredState.of(state)
            for table, rows, is_final in fold_records(str(partition), where, records, plan, known):
                (*others, row) = spark_table(rows).to_pylist()
                if table == STATE.name:
                    self.states[partition] = row
                else:
                    assert is_final
                    self.final += [*others, row]

    def rows(self) -> list[str]:
        latest = max((state["latest"] for state in self.states.values() if state["latest"]), default=None)
        states = STATE.arrow(self.states.values())
        by_origin = {LogIdentity.of(state["log"]).origin: latest for state in self.states.values()}
        current = current_transaction_history(states, latest=by_origin).to_pylist()
        rows = [{name: row[name] for name in TRANSACTION_HISTORY.names} for row in (*self.final, *current)]
        known = {(row["txn_state_partition"], row["error"]) for row in rows if row["transactional_id"]}

        def is_new(row: Row) -> bool:
            """A later run does not know the errors of final rows."""
            return bool(row["transactional_id"]) or (row["txn_state_partition"], row["error"]) not in known

        return sorted(map(repr, filter(is_new, rows)))

    def log_end_offset(self, partition: int) -> int:
        return self.states.get(partition, {}).get("log_end_offset") or 0


def sorted_rows(rows: Sequence[Row]) -> list[str]:
    return sorted(map(repr, spark_table(TRANSACTION_HISTORY.arrow(rows)).to_pylist()))


def complete_history(events: Iterable[Row]) -> list[str]:
    """That of a single read."""
    records = [TransactionLogRecord.of(each) for each in events]
    past = transaction_history(records)
    return sorted_rows([each.row() for each in (*past, *unread_partitions(past, records))])


def random_log(random: Random, *, in_files: bool) -> list[Row]:
    """Records of one partition, some of them unreadable, from files or from brokers."""
    events: list[Row] = []
    ms = 0
    for offset in range(random.randint(1, 30)):
        ms += random.choice([1, 5, 3000, -2000])
        kind = random.choice(["record"] * 8 + ["damage", "without id"])
        location = {"file": f"{offset // 10 * 10:020d}.log", "position": offset // 2 * 100} if in_files else {}
        if kind == "damage" and in_files:
            location["position"] = offset * 50 + 50
            events.append({**EMPTY_ROW, **location, **PARTITION, "error": "CORRUPT_BATCH: no."})
            continue
        start, name = random.choice([None, 0, ms]), random.choice("abc")
        epoch = random.randint(0, 2)
        row: Row = record(
            offset, ms, random.choice(STATES), epoch, start=start, transactional_id=name, **location
        ).row()
        known: Row = {"producer_id": row["producer_id"] and random.randint(7, 8), "leader_epoch": offset // 9}
        without_id = {"transactional_id": None, "error": "CORRUPT_RECORD: no."} if kind == "without id" else {}
        events.append({**row, **known, **without_id})
    if not in_files and random.random() < 0.5:
        events.append({**EMPTY_ROW, **PARTITION, "error": "LOST: it is."})
    return events


@fuzzed(60)
@given(st.booleans(), st.randoms(use_true_random=True))
def test_records_split_over_runs_give_the_complete_history(in_files: bool, random: Random) -> None:
    events = random_log(random, in_files=in_files)
    stored, start = Stored(random), 0
    while start < len(events) - 1 and random.random() < 0.7:
        end = random.randint(start + 1, len(events) - 1)
        location = {name: events[end][name] for name in ("txn_state_partition", "broker_id", "file", "position")}
        unread_row = {**EMPTY_ROW, **location, "error": "TORN_TAIL: half." if in_files else "DOWN: it is."}
        unread_rows = [unread_row] if random.random() < 0.5 else []
        stored.run([*events[start:end], *unread_rows])
        known_offsets = range(stored.log_end_offset(3))
        start = max((number + 1 for number, event in enumerate(events) if event["offset"] in known_offsets), default=0)
    repeated = [] if in_files else random.choices(events, k=3)[: len(events) - start]
    stored.run([*events[start:], *(event for event in repeated if event in events[start:])])
    assert stored.rows() == complete_history(events)


def test_an_unopened_file_is_marked_unread_until_it_is_read() -> None:
    unread_row = {**EMPTY_ROW, **PARTITION, "file": "0.log", "position": 0, "error": "UNREADABLE: no permission."}
    stored = Stored(Random(1))
    stored.run([unread_row, *(each.row() for each in transaction("Commit", decide=100))])
    assert stored.states[3]["is_unread"]
    stored.run([record(9, 300, "Empty").row()])
    assert not stored.states[3]["is_unread"]


def test_an_id_without_new_records_keeps_what_compaction_has_deleted() -> None:
    """The log is read again from offset 10 on, and before it only the last record of each id is left."""
    one = [each.row() for each in transaction("Commit", decide=100)]
    two = [{**row, "transactional_id": "other", "offset": row["offset"] + 10} for row in one]
    stored = Stored(Random(1))
    stored.run([*one, *two])
    before = stored.rows()
    stored.run([one[-1], *two], LogPlan(mode=TRUNCATED, offset=10))
    assert stored.rows() == before


@pytest.mark.parametrize("lost", ["end", "segment"])
def test_damage_and_snapshots_hide_no_lost_records(tmp_path: Path, lost: str) -> None:
    """Only damage was an error, also of later ids, and a snapshot, which has no ids, stood for what is before it."""
    root, name = write_root(tmp_path), f"{STATE_TOPIC}-0"
    one, two, three = (
        state_record(number, each, number, "Ongoing", after(seconds=number), on=[("orders", 0)])
        for number, each in enumerate(ids_of(0, 3))
    )
    if lost == "end":
        write_log(root, name, [one, two[:-1] + b"?", three])
        write_checkpoint(root, HIGH_WATERMARK, {(STATE_TOPIC, 0): 4})
        (root / CLEAN_SHUTDOWN).touch()
    else:
        write_log(root, name, [one])
        write_snapshot(write_log(root, name, [three], base_offset=2), 3, {})
    tables, files = Tables(tmp_path), LogDir(tmp_path)
    tables.run()
    expected = TRANSACTION_HISTORY.rows(files.transaction_history())
    assert tables.rows()[TRANSACTION_HISTORY.name] == sorted_rows(expected)
    (row,) = [row for row in expected if row["first_offset"] == 2]
    assert row["error"].startswith("OFFSETS_LOST")
    assert files.transactions()["error"].notna().any()


# Records of real coordinators.


@pytest.mark.parametrize("is_damaged", [False, True])
def test_real_records_split_over_runs_give_the_complete_history(
    history: Path, tmp_path: Path, is_damaged: bool
) -> None:
    """``is_damaged``: in the middle and at the end of segments."""
    folder = damaged_copy(history, tmp_path / "logs") if is_damaged else history
    for segment in folder.glob(f"{STATE_TOPIC}-*[02468]/*.log") if is_damaged else ():
        data = segment.read_bytes()
        segment.write_bytes(data[:-20] + bytes(len(data[-20:])))
    files, random = LogDir(folder), Random(seed())
    events = TRANSACTION_LOG.rows(files.transaction_log())
    assert is_damaged == ("CORRUPT_BATCH" in {str(event["error"]).partition(":")[0] for event in events})
    stored = Stored(random)
    expected = complete_history(events)
    events.sort(key=lambda event: (event["file"], event["position"], event["offset"] or 0))
    runs = sorted(random.choices(range(1, 5), k=len(events)))
    for number in range(1, 5):
        stored.run(event for event, run in zip(events, runs, strict=True) if run == number)
    assert stored.rows() == expected


def test_the_longest_of_several_replicas_is_read(history: Path, tmp_path: Path) -> None:
    """Each of two brokers lacks the last records of some logs."""
    non_empty = sorted(
        {segment.parent.name for segment in history.glob(f"{STATE_TOPIC}-*/*.log") if segment.stat().st_size}
    )
    assert len(non_empty) > 2
    for number in (1, 2):
        copy = Path(shutil.copytree(history, tmp_path / str(number) / "logs"))
        properties = copy / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", f"node.id={number}"))
        for name in (*non_empty[number - 1 :: 3], *non_empty[2::3]):
            folder = copy / name
            segment = max(folder.glob("*.log"))
            segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // number // 2])
            for snapshot in folder.glob("*.snapshot"):
                snapshot.unlink()
    tables = Tables(tmp_path)
    tables.run()
    expected = TRANSACTION_HISTORY.rows(LogDir(tmp_path).transaction_history())
    assert {row["broker_id"] for row in expected} == {1, 2}
    assert tables.rows()[TRANSACTION_HISTORY.name] == sorted_rows(expected)
