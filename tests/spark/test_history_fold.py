"""Transaction history in runs: of partitions that are incomplete, read again, or of several replicas.

Any copies in any order are in `test_incomplete_copies`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
from tests.spark.read_log import state_of
from tests.spark.test_incomplete_copies import Tables
from toolkit import LogDir
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import TRANSACTION_HISTORY, Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import LogId
from toolkit.sources.logdir.log_dir_layout import CLEAN_SHUTDOWN
from toolkit.spark.arrow_types import spark_table
from toolkit.spark.datasources.log_reader import LogIdentity
from toolkit.spark.pipeline.history_fold import current_transaction_history, fold_records
from toolkit.spark.pipeline.log_states import TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import STATE, StoredState


def fold(records: Iterable[TransactionLogRecord], state: StoredState | None = None, **plan: Any) -> StoredState:
    """The new state of a partition."""
    where = LogId(topic=STATE_TOPIC, partition=3, broker_id=1)
    *_, stored = fold_records("3", where, records, LogPlan(**plan), state)
    return state_of(stored)


def current(state: StoredState) -> list[Row]:
    found = current_transaction_history(STATE.arrow([state]), latest={LogIdentity.of(state.log).origin: state.latest})
    return found.select(TRANSACTION_HISTORY.names).to_pylist()  # type: ignore[no-any-return]


def sorted_rows(rows: Sequence[Row]) -> list[str]:
    return sorted(map(repr, spark_table(TRANSACTION_HISTORY.arrow(rows)).to_pylist()))


def test_an_unopened_file_is_marked_unread_until_it_is_read() -> None:
    unread = TransactionLogRecord(
        txn_state_partition=3, broker_id=1, file="0.log", position=0, error="UNREADABLE: no permission."
    )
    state = fold([unread, *transaction("Commit", decide=100)])
    assert state.is_unread
    assert not fold([record(9, 300, "Empty")], state).is_unread


def test_an_id_without_new_records_keeps_what_compaction_has_deleted() -> None:
    """The log is read again from offset 10 on, and before it only the last record of each id is left."""
    one = transaction("Commit", decide=100)
    two = [replace(each, transactional_id="other", offset=(each.offset or 0) + 10) for each in one]
    before = fold([*one, *two])
    after = fold([one[-1], *two], before, mode=TRUNCATED, offset=10)
    assert sorted(map(repr, current(after))) == sorted(map(repr, current(before)))


def test_records_that_a_broker_sends_twice_count_once() -> None:
    """It sends the complete batch, though it begins before the offset that was asked for."""
    records = transaction("Commit", decide=100)
    assert current(fold([*records, *records[-2:]])) == current(fold(records))


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
