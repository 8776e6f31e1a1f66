"""Copies that are incomplete or damaged at one run and whole at a later one give the tables of a single run.

The runs are those of the pipeline in one process, without Spark: plan, read, fold, and what is stored.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.log_files import (
    CLEANED,
    SEGMENT,
    after,
    data,
    ids_of,
    in_epoch,
    marker,
    state_record,
    tombstone,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from tests.spark.read_log import listed, rows_of
from tests.tiers import fuzzed
from toolkit import LogDir
from toolkit.analysis.log.log_transactions import END_NOT_READ
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.scan import scan
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_HOLDS, LSO_TIMELINE, TRANSACTION_HISTORY, Row
from toolkit.sources.live.broker_client import write_batch
from toolkit.sources.logdir.contents import FileAssertions
from toolkit.spark.arrow_types import spark_table
from toolkit.spark.datasources.log_reader import LogIdentity
from toolkit.spark.pipeline import log_fold, run_sources
from toolkit.spark.pipeline.history_fold import current_transaction_history
from toolkit.spark.pipeline.log_fold import LogState, LogWork, WorkOptions, fold_work
from toolkit.spark.pipeline.log_states import TRUNCATED, FoldStates, LogPlan, renames
from toolkit.spark.pipeline.stored_tables import IDS, STATE, StoredState

HISTORY = TRANSACTION_HISTORY.name
ALL_HOLDS = WorkOptions(min_held_ms=0)


@dataclass(slots=True)
class Tables:
    """What runs over a folder have stored."""

    folder: Path
    options: WorkOptions = ALL_HOLDS
    states: dict[str, StoredState] = field(default_factory=dict)
    stored: list[Row] = field(default_factory=list)
    bytes_read: int = 0

    def listed_logs(self) -> run_sources.ListedLogs:
        """The logs in the folder."""
        return run_sources.ListedLogs(
            spark=None,  # type: ignore[arg-type]
            paths=[str(self.folder)],
            topics=None,
            assertions=FileAssertions(consistent_copy=True),
            logs=listed(self.folder),
        )

    def run(self) -> None:
        """One run."""
        files = self.listed_logs()
        self.rename(renames(files.listings, self.states))
        plans = files.plans(self.states)
        folded = []
        for log, plan in plans.items():
            work = LogWork(log=log, listing=files.listings[log], plan=plan, state=self.states.get(log))
            work = pickle.loads(pickle.dumps(work))
            found = fold_work(work, self.options)
            folded += [(log, each.table, each.is_final, row) for each in found for row in rows_of(each)]
        states = FoldStates(store=None, runs=[], run_id=1, before=self.states)  # type: ignore[arg-type]
        states.add([StoredState.of(row) for _, table, _, row in folded if table == STATE.name], files.listings, plans)
        self.states |= states.new
        self.bytes_read = sum(state.bytes_read or 0 for state in states.new.values())
        is_kept = [row["is_final"] or row["log"] not in plans for row in self.stored]
        kept_rows = [row for row, is_kept in zip(self.stored, is_kept, strict=True) if is_kept]
        self.stored = [row for row in kept_rows if not is_obsolete(row, plans)]
        self.stored += [
            {"log": log, "table": table, "is_final": is_final, table: row}
            for log, table, is_final, row in folded
            if table != STATE.name
        ]

    def rename(self, names: dict[str, str]) -> None:
        """As `toolkit.spark.pipeline.log_states.FoldStates.rename`."""
        for old, new in names.items():
            state, broker = self.states.pop(old), LogIdentity.of(new).broker_id
            self.states[new] = replace(state, log=new, broker_id=state.broker_id if broker is None else broker)
            for number, row in enumerate(self.stored):
                if row["log"] == old:
                    values = row[row["table"]]
                    values = {**values, "broker_id": values["broker_id"] if broker is None else broker}
                    self.stored[number] = {**row, "log": new, row["table"]: values}

    def rows(self) -> dict[str, list[str]]:
        """The sorted rows of each table, and the holds of the states."""
        id_states = [state for log, state in self.states.items() if log.endswith(IDS)]
        latest = max((state.latest for state in id_states if state.latest is not None), default=None)
        by_origin = {LogIdentity.of(state.log).origin: latest for state in id_states}
        current = current_transaction_history(STATE.arrow(id_states), latest=by_origin)
        names = (BATCHES.name, LOG_TRANSACTIONS.name, LSO_TIMELINE.name, HISTORY, LSO_HOLDS.name)
        tables: dict[str, list[Row]] = {name: [] for name in names}
        for row in self.stored:
            tables[row["table"]].append(row[row["table"]])
        tables[HISTORY] += current.select(TRANSACTION_HISTORY.names).to_pylist()
        for log, state in self.states.items():
            if not log.endswith(IDS):
                tables[LSO_HOLDS.name] += (
                    LogState.of(state, min_held_ms=self.options.min_held_ms).lso_holds().to_pylist()
                )
        return {name: sorted(map(repr, found)) for name, found in tables.items()}

    @property
    def log_transactions(self) -> list[Row]:
        name = LOG_TRANSACTIONS.name
        return [row[name] for row in self.stored if row["table"] == name]


def is_obsolete(row: Row, plans: dict[str, LogPlan]) -> bool:
    """As `toolkit.spark.pipeline.stored_tables.TableStore.write`."""
    table = row["table"]
    plan = plans.get(row["log"])
    if plan is None or plan.mode != TRUNCATED or row["log"].endswith(IDS) is not (table == HISTORY):
        return False
    values: Row = row[table]
    if table == LSO_TIMELINE.name:
        if values["error"] is not None:
            return values["offset"] is None or values["offset"] >= plan.read_from[1]
        return bool(values["offset"] > plan.offset)
    if table == HISTORY:
        return bool(values["last_offset"] is not None and values["last_offset"] >= plan.offset)
    if table == BATCHES.name:
        return values["base_offset"] is None or values["base_offset"] >= plan.read_from[0]
    if values["marker_offset"] is not None:
        return bool(values["marker_offset"] >= plan.read_from[0])
    return values["first_offset"] is None or values["first_offset"] >= plan.read_from[1]


def write_random_logs(folder: Path, random: Random) -> Path:
    """Some transactions of three producers on `orders-0`, in segments, and the records of three ids.

    Batches are missing, by compaction or not, and after some of them there is a new leader.
    """
    root, segments = write_root(folder), defaultdict[int, list[bytes]](list)
    ends, epochs, offset, epoch = [0], {0: 0}, 0, 0
    for _ in range(random.randint(0, 30)):
        offset += random.choice([0] * 9 + [2])
        if random.random() < 0.2:
            ends.append(offset)
        if random.random() < 0.05:
            epoch += 1
            epochs[epoch] = offset
        at, producer, kind = after(seconds=random.randint(-9, 60)), random.randint(1, 3), random.random()
        batch, records = marker(offset, producer, at, commit=kind > 0.3), 1
        if kind > 0.5:
            records = random.randint(1, 3)
            batch = data(offset, producer, at, records=records)
        elif kind > 0.4:
            batch = write_batch([(None, b"plain")], timestamp=at, base_offset=offset)
        segments[ends[-1]].append(in_epoch(batch, epoch))
        offset += records
    for base_offset in ends:
        write_log(root, "orders-0", segments[base_offset], base_offset=base_offset)
    write_checkpoint(root, CLEANED, {("orders", 0): offset} if random.random() < 0.5 else {})
    epoch_lines = [f"{each} {first}" for each, first in epochs.items()]
    (root / "orders-0" / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(epochs)), *epoch_lines, ""]))
    (root / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: 4R2yICtSb6sfxKDr3xtSQw")
    records_of_ids = []
    for number in range(random.randint(0, 20)):
        name, at, state = random.choice(ids_of(0, 3)), after(seconds=number), random.choice(STATES)
        producer, on = random.randint(7, 8), [("orders", 0)] if state == "Ongoing" else []
        record = state_record(number, name, producer, state, at, epoch=random.randint(0, 2), on=on)
        records_of_ids.append(in_epoch(record if random.random() < 0.9 else tombstone(number, name, at)))
    for base_offset, batches in ((0, records_of_ids[:9]), (9, records_of_ids[9:])):
        write_log(root, f"{STATE_TOPIC}-0", batches, base_offset=base_offset)
    return root


STATES = ["Ongoing"] * 3 + ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"]


def follow_a_new_leader(root: Path, random: Random) -> None:
    """The replica loses some of its last batches, and has others of a new leader."""
    segment, epochs = max((root / "orders-0").glob("*.log")), root / "orders-0" / "leader-epoch-checkpoint"
    content = segment.read_bytes()
    kept = scan(content).headers[: random.randint(0, 5)]
    offset = int(kept["last_offset"][-1]) + 1 if len(kept) else int(segment.stem)
    batches = [data(offset, 2, after()), marker(offset + 1, random.randint(1, 2), after(seconds=90))]
    segment.write_bytes(content[: int(kept["size"].sum())] + b"".join(in_epoch(each, 99) for each in batches))
    lines = [each for each in epochs.read_text().splitlines()[2:] if int(each.split()[1]) < offset]
    epochs.write_text("\n".join(["0", str(len(lines) + 1), *lines, f"99 {offset}", ""]))


def copy_partly(source: Path, target: Path, random: Random, *, is_damaged: bool) -> None:
    """Replace a copy by another one: each segment whole, cut, with zeros or wrong bytes, or not there.

    One that is not damaged is cut in the last segment of each log, as if the rest had not been written yet.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for log in sorted(target.glob("*/*.log")):
        if not is_damaged:
            if log == max(log.parent.glob("*.log")):
                os.truncate(log, random.randint(0, log.stat().st_size))
            continue
        size, kind = log.stat().st_size, random.random()
        at = random.randint(0, size)
        if kind < 0.1 and len(list(log.parent.glob("*.log"))) > 1:
            log.unlink()
        elif kind < 0.2:
            os.truncate(log, at)
        elif kind < 0.4 and size > 4000:
            # So much that no batch is damaged alone: without its checksum, it may look intact.
            at, content = min(at, size - 3000), log.read_bytes()
            wrong = bytes(size - at) if kind < 0.3 else b"\xff" * 1400
            log.write_bytes(content[:at] + wrong + content[at + len(wrong) :])


@pytest.fixture(scope="module")
def some_logs(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few logs of real clients with many transactions, one of them compacted, and those of two coordinators."""
    folder = tmp_path_factory.mktemp("some") / "logs"
    by_size = sorted(
        history.glob(f"{STATE_TOPIC}-*"), key=lambda log: sum(each.stat().st_size for each in log.glob("*.log"))
    )
    selected = [*sorted(history.glob("plain-*"))[:2], *sorted(history.glob("compacted-*"))[:1], *by_size[-2:]]
    folder.mkdir()
    for path in history.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    for path in selected:
        shutil.copytree(path, folder / path.name)
    return folder


def check_copies(source: Path, random: Random, change: Callable[[Path, Random], None] = lambda *_: None) -> None:
    """Incomplete copies, and then the whole of what has changed since, give the tables of one run over that.

    But for the holds after damage, whose bounds may be those of what could be read at first.
    """
    is_damaged = random.random() < 0.7
    options = WorkOptions(min_held_ms=random.choice([0, 20_000]), with_batches=random.random() < 0.7)
    with tempfile.TemporaryDirectory() as path:
        whole, copy = Tables(Path(path, "logs"), options), Tables(Path(path, "logs"), options)
        for _ in range(random.randint(1, 3)):
            copy_partly(source, copy.folder, random, is_damaged=is_damaged)
            with mock.patch.object(log_fold, "ROWS_AT_ONCE", random.choice([1, 1 << 16])):
                copy.run()
            assert_like_log_dir(copy)
        change(source, random)
        shutil.rmtree(copy.folder)
        shutil.copytree(source, copy.folder)
        copy.run()
        whole.run()
        actual, expected = copy.rows(), whole.rows()
        for name, found in expected.items():
            if name != LSO_HOLDS.name or not is_damaged:
                assert actual[name] == found, (name, set(actual[name]) ^ set(found))
        copy.run()
        assert copy.bytes_read == 0
        assert copy.rows() == actual


@fuzzed(40)
@given(st.randoms(use_true_random=True))
def test_copies_of_random_logs_in_any_order_give_the_tables_of_one_run(random: Random) -> None:
    with tempfile.TemporaryDirectory() as path:
        source = write_random_logs(Path(path, "source"), random)
        check_copies(source, random, follow_a_new_leader if random.random() < 0.3 else lambda *_: None)


@fuzzed(4)
@given(st.randoms(use_true_random=True))
def test_copies_of_real_logs_in_any_order_give_the_tables_of_one_run(some_logs: Path, random: Random) -> None:
    check_copies(some_logs, random)


def assert_like_log_dir(tables: Tables) -> None:
    """A first run has the rows of `toolkit.LogDir`, also of a damaged log."""
    first = Tables(tables.folder, replace(tables.options, min_held_ms=0))
    first.run()
    files, found = LogDir(tables.folder), first.rows()
    history = spark_table(TRANSACTION_HISTORY.arrow(TRANSACTION_HISTORY.rows(files.transaction_history())))
    expected = {HISTORY: history.to_pylist()}
    for table, frame in ((LOG_TRANSACTIONS, files.log_transactions()), (LSO_TIMELINE, files.lso_timeline())):
        expected[table.name] = table.rows(frame)
    for name, rows in expected.items():
        assert found[name] == sorted(map(repr, rows)), name
    if tables.options.with_batches:
        intact = [row for row in BATCHES.rows(files.batches(crc=True)) if row["crc_ok"]]
        assert [row for row in found[BATCHES.name] if "'crc_ok': True" in row] == sorted(map(repr, intact))


def test_a_batch_with_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    """Its marker ended the transaction in the tables, and its replica was as good as an intact one."""
    root, marked = write_root(tmp_path / "data"), bytearray(marker(1, 7, after()))
    marked[37] ^= 1 << 2  # of max_timestamp
    folder = write_log(
        root, "orders-0", [data(0, 7, after()), bytes(marked), data(2, 8, after()), marker(3, 8, after())]
    )
    tables = Tables(root)
    tables.run()
    assert [(row["producer_id"], row["outcome"]) for row in tables.log_transactions if row["producer_id"]] == [
        (7, None), (8, "commit")
    ]  # fmt: skip
    assert [state.is_damaged for state in tables.states.values()] == [True]
    assert_like_log_dir(tables)
    (folder / f"{0:020}.log").write_bytes(b"".join([data(0, 7, after()), marker(1, 7, after())]))
    tables.run()
    assert [row["outcome"] for row in tables.log_transactions] == ["commit"]


def test_what_the_cleaner_removed_is_no_loss(tmp_path: Path) -> None:
    """Without its checkpoint, the end of a transaction may be in a segment that is missing; it may be copied later."""
    root = write_root(tmp_path / "data")
    write_log(root, "orders-0", [data(0, 7, after())])
    write_log(root, "orders-0", [marker(7, 7, after()), data(8, 7, after()), marker(9, 7, after())], base_offset=7)
    lost = (
        "OFFSETS_LOST: No segment has offsets 1 to 6: one is missing or incomplete, or this is a new replica of a "
        "compacted log."
    )
    expected: dict[int, set[tuple[object, ...]]] = {
        7: {(0, 7, "commit", None), (8, 9, "commit", None)},
        6: {(0, None, None, END_NOT_READ), (None, 7, "empty", None), (8, 9, "commit", None), (None, None, None, lost)},
    }
    tables = Tables(root)
    for cleaned in (6, 7):
        write_checkpoint(root, CLEANED, {("orders", 0): cleaned})
        tables.run()
        columns = ("first_offset", "marker_offset", "outcome", "error")
        assert {tuple(row[name] for name in columns) for row in tables.log_transactions} == expected[cleaned]
        assert_like_log_dir(tables)


def test_a_producer_snapshot_that_is_copied_late_begins_transactions(tmp_path: Path) -> None:
    """The marker of a transaction that began in a deleted segment passed for an empty one for ever."""
    root = write_root(tmp_path / "data")
    log = write_log(
        root, "orders-0", [marker(7, 7, after()), data(8, 8, after()), marker(9, 8, after())], base_offset=7
    )
    tables, whole = Tables(root), Tables(root)
    tables.run()
    write_snapshot(log, 7, {7: 3})
    tables.run()
    whole.run()
    assert {row["first_offset"] for row in whole.log_transactions} == {3, 8}
    assert tables.rows() == whole.rows()


def test_a_marker_that_ends_in_zeros_ends_no_transaction(tmp_path: Path) -> None:
    """It passed for a marker of producer 0, or without type or coordinator epoch, and stayed so in the whole copy."""
    root = write_root(tmp_path / "data")
    end = marker(1, 7, after())
    write_log(root, "orders-0", [data(0, 7, after())])
    log = write_log(root, "orders-0", [end], base_offset=1)
    write_log(root, "orders-0", [data(2, 8, after()), marker(3, 8, after())], base_offset=2)
    whole = Tables(root)
    whole.run()
    for at in (3, 39, 61, 69, 70, 76):
        (log / f"{1:020}.log").write_bytes(end[:at] + bytes(len(end) - at))
        tables = Tables(root)
        tables.run()
        assert tables.rows() != whole.rows(), at
        assert {row["producer_id"] for row in tables.log_transactions} <= {None, 7, 8}
        assert_like_log_dir(tables)
        (log / f"{1:020}.log").write_bytes(end)
        tables.run()
        assert tables.rows() == whole.rows(), at


def test_a_log_that_ends_within_a_batch_is_read_for_findings_in_each_run(tmp_path: Path) -> None:
    """The pipeline had read it, so it held nothing; a diagnosis of files of stopped brokers finds its end lost."""
    batches = [data(0, 7, after()), marker(1, 7, after()), data(2, 8, after())]
    for name, size in (("whole", sum(map(len, batches[:2]))), ("torn", sum(map(len, batches)) - 10)):
        segment = write_log(write_root(tmp_path / name / "logs"), "orders-0", batches) / SEGMENT
        os.truncate(segment, size)
        tables = Tables(tmp_path / name)
        tables.run()
        assert [*tables.listed_logs().settled(tables.states).values()] == ([2] if name == "whole" else [])


def test_two_segments_cut_within_their_first_batches_leave_one_error_each(tmp_path: Path) -> None:
    """The first one began again after the second: ``Offset 1 follows offset 2``."""
    root = write_root(tmp_path / "data")
    write_log(root, "orders-0", [data(0, 7, after())])
    ends = {offset: write_log(root, "orders-0", [marker(offset, 7, after())], base_offset=offset) for offset in (1, 2)}
    whole, tables = Tables(root), Tables(root)
    whole.run()
    contents = {log / f"{offset:020}.log": (log / f"{offset:020}.log").read_bytes() for offset, log in ends.items()}
    for path in contents:
        os.truncate(path, 12)
    tables.run()
    errors = [row["error"].partition(":")[0] for row in tables.log_transactions if row["error"] is not None]
    assert sorted(errors) == ["CORRUPT_BATCH", END_NOT_READ.partition(":")[0], "TORN_TAIL"]
    assert_like_log_dir(tables)
    for path, content in contents.items():
        path.write_bytes(content)
    tables.run()
    assert tables.rows() == whole.rows()


def test_a_segment_that_is_missing_after_what_an_earlier_run_read_is_lost(tmp_path: Path) -> None:
    """A run that continued at the end of a segment went on in the next one: the transaction passed for a commit."""
    root = write_root(tmp_path / "data")
    in_epoch_0 = [in_epoch(data(0, 7, after())), in_epoch(marker(5, 7, after()))]
    log = write_log(root, "orders-0", in_epoch_0[:1])
    (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    whole, tables = Tables(root), Tables(root)
    tables.run()
    write_log(root, "orders-0", in_epoch_0[1:], base_offset=5)
    tables.run()
    whole.run()
    assert [row["outcome"] for row in tables.log_transactions if row["first_offset"] == 0] == [None]
    assert tables.rows() == whole.rows()


def test_rows_of_compacted_records_stay_when_the_log_is_read_again(tmp_path: Path) -> None:
    """A log whose end had changed was read again as a whole: what compaction had left of it took the place of all."""
    root = write_root(tmp_path / "data")

    def write(epoch: int, base_offset: int, *batches: bytes) -> Path:
        (root / "orders-0" / f"{base_offset:020}.log").unlink(missing_ok=True)
        return write_log(root, "orders-0", [in_epoch(each, epoch) for each in batches], base_offset=base_offset)

    whole = [data(0, 7, after()), marker(1, 7, after()), data(2, 7, after()), marker(3, 7, after(seconds=90))]
    log = write(0, 0, *whole)
    write(0, 4, data(4, 8, after()), marker(5, 8, after()))
    (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    tables = Tables(root)
    tables.run()
    before = tables.rows()
    write(0, 0, whole[3])  # compacted, and the replica follows a new leader from offset 4 on
    write_checkpoint(root, CLEANED, {("orders", 0): 4})
    write(1, 4, data(4, 9, after()), marker(5, 9, after()))
    (log / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 4\n")
    tables.run()
    found = {(row["producer_id"], row["first_offset"], row["marker_offset"]) for row in tables.log_transactions}
    assert found == {(7, 0, 1), (7, 2, 3), (9, 4, 5)}
    assert set(before[LSO_TIMELINE.name][:2]) <= set(tables.rows()[LSO_TIMELINE.name])
    (state,) = tables.states.values()
    assert [row["marker_offset"] for row in LogState.of(state).lso_holds().to_pylist()] == [1, 3, 5]


def test_a_log_is_the_same_once_meta_properties_is_copied_too(tmp_path: Path) -> None:
    """It was the log of its path before, so its rows stood twice."""
    root = write_root(tmp_path / "data")
    write_log(root, "orders-0", [data(0, 7, after()), marker(1, 7, after()), data(2, 8, after())])
    properties = (root / "meta.properties").read_bytes()
    tables, whole = Tables(root), Tables(root)
    whole.run()
    for begin in (b"", b"version=1\n"):
        tables = Tables(root)
        (root / "meta.properties").write_bytes(begin)
        tables.run()
        assert tables.rows() != whole.rows()
        (root / "meta.properties").write_bytes(properties)
        tables.run()
        assert tables.rows() == whole.rows()
        assert tables.states.keys() == whole.states.keys()


@pytest.mark.parametrize("spoiled", [0, 1])
def test_a_wrong_checksum_in_the_past_is_damage_of_holds_too(tmp_path: Path, spoiled: int) -> None:
    """Before what is open at the end, checksums did not count: a spoiled marker left its transaction open for good.

    Its hold then hid all later ones.
    """
    root = write_root(tmp_path)
    batches = [
        each for n in (0, 2, 4) for each in (data(n, n, after(minutes=n)), marker(n + 1, n, after(minutes=n + 1)))
    ]
    batches[spoiled] = batches[spoiled][:-1] + b"?"
    write_snapshot(write_log(root, "orders-0", batches), 6, {})
    write_state_topic(root)
    tables = Tables(tmp_path)
    tables.run()
    (state,) = (each for each in tables.states.values() if each.topic == "orders")
    found = LSO_HOLDS.rows(LogDir(tmp_path).lso_holds())
    markers = [row["marker_offset"] for row in found if row["error"] is None]
    assert markers == [row["marker_offset"] for row in LogState.of(state).lso_holds().to_pylist()] == [3, 5]
    (error,) = (row["error"] for row in found if row["error"] is not None)
    assert error.startswith(f"CORRUPT_BATCH: the checksum at offset {spoiled} is wrong (byte ")
