"""The tables of files: topics, partitions, offset specs; dump texts, loose files, and files that disappear."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import toolkit.schema
from tests.sources.log_files import (
    HIGH_WATERMARK,
    SEGMENT,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    state_record,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from toolkit import LogDir
from toolkit.errors import NotFound, UsageError
from toolkit.sources.logdir.log_dir_layout import discover
from toolkit.sources.logdir.replica_log import FolderLog

TABLES = (
    *(
        "partitions",
        "producers",
        "transactions",
        "coordinators",
        "findings",
        "batches",
        "log_transactions",
        "lso_timeline",
    ),
    *("transaction_log", "transaction_history", "offsets_log", "aborted", "checkpoints"),
)
ORDERS = [
    data(0, 7, after(), records=2),
    marker(2, 7, after(seconds=1)),
    data(3, 8, after(seconds=10)),
    data(4, 9, after(seconds=20)),
    marker(5, 9, after(seconds=30), commit=False),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """orders-0 with a committed, an open and an aborted transaction; payments-1 with nothing."""
    root = write_root(tmp_path / "data")
    write_log(root, "orders-0", ORDERS)
    write_log(root, "payments-1", [])
    replicated = {(STATE_TOPIC, number): int(number == 33) for number in range(50)}
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 6, ("payments", 1): 0, **replicated})
    write_state_topic(root, {33: [state_record(0, ids_of(33, 1)[0], 8, "Ongoing", after(), on=[("orders", 0)])]})
    return root


def values(frame: pd.DataFrame, *names: str) -> list[Any]:
    rows = [
        tuple(None if pd.isna(value) else value for value in row) for row in frame[list(names)].itertuples(index=False)
    ]
    return [row[0] for row in rows] if len(names) == 1 else rows


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_as_declared(root: Path, name: str) -> None:
    declared = toolkit.schema.TABLES[name]
    frame = getattr(LogDir(root), name)()
    assert list(frame.columns) == declared.names
    assert frame.dtypes.to_dict() == {field.name: pd.ArrowDtype(field.type) for field in declared.arrow_schema}
    assert "error" not in frame or frame["error"].isna().all()


def test_topics_and_partitions_are_selected_as_for_a_cluster(root: Path) -> None:
    files = LogDir(root)
    assert [row["topic"] for row in files.partition_rows(topics=["orders", "payments"])] == ["orders", "payments"]
    assert [row["topic"] for row in files.partition_rows(partitions=[("payments", 1)])] == ["payments"]
    assert len(files.partition_rows(topics=["orders"], partitions=[0])) == 1
    with pytest.raises(NotFound, match="contain no partition of topic 'nowhere'"):
        files.batches(topics=["nowhere"])
    with pytest.raises(NotFound, match="do not contain partition 0 of topic 'payments', only partitions 1"):
        files.log_transactions(topics=["payments"], partitions=[0])
    with pytest.raises(NotFound, match="contain no partition of topic 'nowhere'"):
        files.finding_rows(partitions=[("nowhere", 0)])
    with pytest.raises(UsageError, match="partitions are either numbers"):
        files.producers(partitions=[0])
    with pytest.raises(NotFound, match="partition 50"):
        files.transaction_log(partitions=[50])


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, [0, 2, 3, 4, 5]),
        (1, 4, [0, 2, 3]),  # a batch is read completely
        (4, None, [4, 5]),
        ("lso", "high_watermark", [3, 4, 5]),
        ("log_end", None, []),
        (after(seconds=10), after(seconds=30), [3, 4]),
        (after(hours=1), None, []),
    ],
)
def test_start_and_stop_are_offsets_times_or_names(root: Path, start: Any, stop: Any, expected: list[int]) -> None:
    assert values(LogDir(root).batches(topics=["orders"], start=start, stop=stop), "base_offset") == expected


def test_an_invalid_offset_spec_is_rejected_before_reading(root: Path) -> None:
    for wrong in ("yesterday", -1, dt.datetime(2026, 11, 21)):
        with pytest.raises(UsageError):
            LogDir(root).batch_tables(start=wrong)


def test_a_range_of_a_log_includes_transactions_open_before_it(root: Path) -> None:
    log_transactions = LogDir(root).log_transactions(topics=["orders"], start=4)
    assert values(log_transactions, "producer_id", "first_offset", "outcome", "batches", "truncated") == [
        (8, 3, "open", 0, True),
        (9, 4, "abort", 1, False),
    ]
    timeline = LogDir(root).lso_timeline(topics=["orders"], start=4)
    assert set(values(timeline, "last_stable_offset")) == {3}


def test_rows_can_be_limited_to_a_producer(root: Path) -> None:
    files = LogDir(root)
    assert values(files.batches(topics=["orders"], producer_id=9), "base_offset") == [4, 5]
    assert values(files.log_transactions(producer_id=7), "first_offset", "outcome") == [(0, "commit")]
    assert values(files.lso_timeline(producer_id=8), "offset", "event") == [(4, "open"), (6, "end")]
    assert values(files.transaction_log(producer_id=8), "state") == ["Ongoing"]
    assert files.transaction_log(producer_id=7).empty


def test_large_tables_are_read_in_chunks(root: Path) -> None:
    files = LogDir(root)
    for pieces, whole, table in (
        (files.batch_tables(), files.batches(), toolkit.schema.BATCHES),
        (files.log_transaction_tables(), files.log_transactions(), toolkit.schema.LOG_TRANSACTIONS),
    ):
        found = pa.concat_tables(list(pieces))
        assert found.schema.equals(table.arrow_schema)
        assert found.num_rows == len(whole) > 0


def test_states_ids_and_durations_filter_transactions(root: Path) -> None:
    files = LogDir(root)
    (name,) = ids_of(33, 1)
    assert [row["transactional_id"] for row in files.transaction_rows()] == [name]
    assert files.transaction_rows(states=["Empty"]) == files.transaction_rows(producer_ids=[7]) == []
    assert files.transaction_rows(min_duration_ms=1000) == []  # its newest record is that of its start
    later = LogDir(root, as_of=after(minutes=5))
    assert len(later.transaction_rows(min_duration_ms=1000, transactional_id_pattern="id-.*")) == 1
    (found, missing) = files.transaction_rows(transactional_ids=[name, "nobody"])
    assert (found["state"], missing["error"].partition(":")[0]) == ("Ongoing", "TRANSACTIONAL_ID_NOT_FOUND")
    with pytest.raises(UsageError, match="No such state"):
        files.transaction_rows(states=["Sleeping"])


def test_coordinators_are_computed_only_with_a_known_partition_count(root: Path) -> None:
    assert [row["partition"] for row in LogDir(root).coordinator_rows(groups=[])] == [33]
    assert (
        LogDir(root)
        .coordinator_rows(transactional_ids=[], groups=["my-group"])[0]["error"]
        .startswith("UNKNOWN_PARTITIONS")
    )
    assert [
        row["partition"]
        for row in LogDir(root, txn_state_partitions=7).coordinator_rows(transactional_ids=["a"], groups=[])
    ] == [97 % 7]
    (root / f"{STATE_TOPIC}-3").rename(root.parent / "elsewhere")
    (row,) = LogDir(root).coordinator_rows(groups=[])
    assert (row["partition"], row["error"].partition(":")[0]) == (None, "UNKNOWN_PARTITIONS")


def test_an_unknown_high_watermark_is_reported(root: Path) -> None:
    (root / HIGH_WATERMARK).unlink()
    (row,) = LogDir(root).partition_rows(topics=["orders"])
    assert (row["last_stable_offset"], row["high_watermark"], row["log_end_offset"]) == (3, None, 6)
    assert row["error"].startswith("NO_HIGH_WATERMARK")


def test_a_final_high_watermark_bounds_the_lso(root: Path) -> None:
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 2})
    lso = {"last_stable_offset": 2, "high_watermark": 2}
    assert LogDir(root).partition_rows(topics=["orders"])[0].items() >= lso.items()  # it may only lag
    (root / ".kafka_cleanshutdown").touch()
    assert LogDir(root).partition_rows(topics=["orders"])[0].items() >= {**lso, "last_stable_offset": 0}.items()
    (row,) = (row for row in LogDir(root).finding_rows(topics=["orders"]) if row["producer_id"] is None)
    assert (row["verdict"], row["last_stable_offset"]) == ("unreplicated", 0)


def test_reading_begins_at_the_newest_intact_snapshot(root: Path) -> None:
    folder = root / "orders-0"
    write_snapshot(folder, 3, {7: None, 6: 1})
    (state,) = (row for row in LogDir(root).producer_rows(topics=["orders"]) if row["producer_id"] == 6)
    assert state["current_txn_start_offset"] == 1  # it is in no batch: the snapshot has it
    assert LogDir(root).partition_rows(topics=["orders"])[0]["last_stable_offset"] == 1
    snapshot = folder / "00000000000000000003.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    rows = LogDir(root).producer_rows(topics=["orders"])
    assert [row["producer_id"] for row in rows] == [7, 8, 9, None]
    assert rows[-1]["error"].startswith("CORRUPT_SNAPSHOT")
    assert LogDir(root).partition_rows(topics=["orders"])[0]["error"] is None  # a broker reads the log instead, too


def test_a_snapshot_beyond_the_log_end_is_not_used(root: Path) -> None:
    write_snapshot(root / "orders-0", 100, {6: 1})
    rows = LogDir(root).producer_rows(topics=["orders"])
    assert [row["producer_id"] for row in rows] == [7, 8, 9, None]
    assert rows[-1]["error"].startswith("FOREIGN_SNAPSHOT")


def test_loose_files_are_read_without_a_name(tmp_path: Path) -> None:
    write_log(tmp_path, "sent by the admin", ORDERS)
    segment = tmp_path / "sent by the admin" / SEGMENT
    for files in (LogDir(segment), LogDir(segment.parent)):
        log_transactions = files.log_transactions()
        assert values(log_transactions, "outcome") == ["commit", "open", "abort"]
        assert log_transactions["topic"].isna().all()
        assert [each.reason.partition(":")[0] for each in files.left_out] == ["UNNAMED"]
        with pytest.raises(UsageError, match="The topic and partition of"):
            files.findings()


def test_files_removed_during_the_read_are_error_rows(root: Path) -> None:
    """What a broker deletes between the listing and the reading."""
    log = FolderLog(next(each for each in discover([root]).replicas if each.topic == "orders"))
    (root / "orders-0" / SEGMENT).unlink()
    (part,) = log.parts()
    assert part.damage[0].reason.startswith("UNREADABLE")
    (root / "orders-0").rmdir()
    (root / "orders-0").symlink_to(root / "gone")
    files = LogDir(root)
    for frame in (
        files.partitions(topics=["orders"]),
        files.batches(topics=["orders"]),
        files.log_transactions(topics=["orders"]),
    ):
        assert all(error.startswith("UNREADABLE") for error in frame["error"])
    (finding,) = files.finding_rows(topics=["orders"])
    assert (finding["verdict"], finding["missing"]) == ("unknown", [f"the log of orders-0: {finding['error']}"])


def test_damage_is_a_row_and_the_batches_after_it_are_read(root: Path) -> None:
    segment = root / "orders-0" / SEGMENT
    content = bytearray(segment.read_bytes())
    hit = len(ORDERS[0])  # the length of the second batch
    content[hit + 8 : hit + 12] = b"\xff\xff\xff\xff"
    segment.write_bytes(content)
    files = LogDir(root)
    batches = files.batches(topics=["orders"])
    assert values(batches, "base_offset", "position")[1] == (None, hit)
    assert values(batches, "base_offset")[2:] == [3, 4, 5]
    (row,) = files.partition_rows(topics=["orders"])
    assert (row["log_end_offset"], row["error"].partition(":")[0]) == (6, "CORRUPT_BATCH")
    assert {finding["verdict"] for finding in files.finding_rows(topics=["orders"])} <= {"unknown", "ongoing"}


def test_nothing_is_written_to_the_files(root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    files = LogDir(root)
    for name in TABLES:
        getattr(files, name)()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_observed_at_is_the_newest_time_of_a_broker_in_the_files(root: Path) -> None:
    (row,) = LogDir(root).finding_rows(topics=["orders"])
    assert row["verdict"] == "ongoing"
    assert row["observed_at"] == after()  # the coordinator's record
    (partition,) = LogDir(root).partition_rows(topics=["orders"])
    assert partition["observed_at"] == after(seconds=30)  # the last marker
    with pytest.raises(UsageError, match="no time zone"):
        LogDir(root, as_of=after().replace(tzinfo=None))
    with pytest.raises(UsageError, match="lies in the future"):
        LogDir(root, as_of=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    assert row["opened_at"] == after()
    assert repr(LogDir(root, consistent_copy=True)) == f"LogDir('{root}', consistent_copy=True)"
    with LogDir(root) as files, pytest.raises(UsageError, match="cannot have 0 partitions"):
        LogDir(*files.paths, txn_state_partitions=0)
