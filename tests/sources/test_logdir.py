"""The tables of files: topics, partitions, offset specs; dump texts, loose files, and files that disappear."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.sources.log_files import (
    HIGH_WATERMARK,
    META,
    SEGMENT,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    partition_folder,
    state_record,
    tombstone,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from tests.unprivileged import unprivileged
from toolkit import LogDir
from toolkit.errors import NotFound, UsageError
from toolkit.schema import Row
from toolkit.schema.live import Finding
from toolkit.sources.live.broker_client import write_batch
from toolkit.sources.logdir.log_dir_layout import LogDirLayout, discover
from toolkit.sources.logdir.replica_log import FolderLog, RecordIndex
from toolkit.sources.logdir.replica_state import LogWindow, ReadLimit, read_window
from toolkit.sources.source import FILES, tables_of

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


def test_states_ids_and_durations_filter_transactions(root: Path) -> None:
    files = LogDir(root)
    (name,) = ids_of(33, 1)
    assert [row["transactional_id"] for row in files.transaction_rows()] == [name]
    assert files.transaction_rows(states=["Empty"]) == files.transaction_rows(producer_ids=[7]) == []
    assert files.transaction_rows(min_duration_ms=1000) == []  # its newest record is that of its start
    later = LogDir(root, as_of=after(minutes=5).isoformat())  # text, as on the command line
    assert len(later.transaction_rows(min_duration_ms=1000, transactional_id_pattern="id-.*")) == 1
    (found, missing) = files.transaction_rows(transactional_ids=[name, "nobody"])
    assert (found["state"], missing["error"].partition(":")[0]) == ("Ongoing", "TRANSACTIONAL_ID_NOT_FOUND")
    with pytest.raises(UsageError, match="No such state"):
        files.transaction_rows(states=["Sleeping"])


def test_an_id_whose_partition_is_not_among_the_files_is_not_absent(root: Path) -> None:
    """It had no record in these files, as an id that does not exist."""
    name, other = *ids_of(7, 1), *ids_of(8, 1)
    shutil.rmtree(root / f"{STATE_TOPIC}-7")
    (counted,) = LogDir(root, txn_state_partitions=50).transaction_rows(transactional_ids=[name])
    assert counted["error"] == f"UNKNOWN_TOPIC_OR_PARTITION: its partition {STATE_TOPIC}-7 is not among the files"
    (present,) = LogDir(root, txn_state_partitions=50).transaction_rows(transactional_ids=[other])
    assert present["error"].startswith("TRANSACTIONAL_ID_NOT_FOUND")
    (unknown,) = LogDir(root).transaction_rows(transactional_ids=[other])
    assert unknown["error"] == f"UNKNOWN_TOPIC_OR_PARTITION: its partition {STATE_TOPIC}-N is not among the files"


def test_a_log_start_that_could_not_be_read_is_reported(root: Path) -> None:
    """Offsets that DeleteRecords removed were there."""
    (root / "log-start-offset-checkpoint").write_text("0\n2\norders 0 x\npayments 1 0\n")
    orders, payments = LogDir(root).partition_rows(topics=["orders", "payments"])
    assert orders["error"].endswith("(log-start-offset-checkpoint), so the log may start later")
    assert payments["error"] is None


def test_coordinators_are_computed_only_with_a_known_partition_count(root: Path) -> None:
    assert [row["partition"] for row in LogDir(root).coordinator_rows(groups=[])] == [33]
    (of_group,) = LogDir(root).coordinator_rows(transactional_ids=[], groups=["my-group"])
    (of_seven,) = LogDir(root, txn_state_partitions=7).coordinator_rows(transactional_ids=["a"], groups=[])
    (root / f"{STATE_TOPIC}-3").rename(root.parent / "elsewhere")
    (incomplete,) = LogDir(root).coordinator_rows(groups=[])
    assert of_seven["partition"] == 97 % 7
    for row in (of_group, incomplete):
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
    assert rows[-1]["error"].startswith("OFFSETS_LOST: The files end at offset 6, before its snapshot")


@pytest.mark.parametrize("left", ["000.snapshot", "006.index", "006.timeindex", "no segment"])
def test_files_without_the_last_segment_clear_nothing(root: Path, left: str) -> None:
    """What is beside it shows that it is missing, as after ``rsync --exclude '*.log'``: all was clear."""
    folder = write_log(root, "paid-0", ORDERS[:2])
    write_snapshot(folder, 9 if left == "000.snapshot" else 3, {7: None})
    if left == "no segment":
        (folder / SEGMENT).unlink()
    elif left != "000.snapshot":
        (folder / f"{0:017}{left}").touch()
    (row,) = LogDir(root).finding_rows(partitions=[("paid", 0)])
    assert (row["verdict"], row["last_stable_offset"]) == ("unknown", None)
    assert row["missing"][0].startswith("EMPTY" if left == "no segment" else "OFFSETS_LOST: The files end at offset 3")


def test_folders_that_were_not_read_are_named(root: Path) -> None:
    """What could not be listed, or is not named as brokers do, was left out in silence: nothing hangs, exit code 0."""
    locked, renamed = root.parent / "broker 2", root.parent / "payments"
    write_log(write_root(locked, broker_id=2), "orders-1", ORDERS)
    write_log(root.parent, renamed.name, ORDERS)
    (root.parent / "lost+found").mkdir(mode=0)
    locked.chmod(0)
    with unprivileged():
        files = LogDir(root.parent)
        (row,) = (row for row in files.finding_rows() if row["topic"] is None)
        assert [row["verdict"], *(each.partition(". ")[0] for each in row["missing"])] == [
            "unknown",
            f"{locked}: UNREADABLE: Permission denied.",
            f"{renamed}: UNNAMED: its folder is not named as brokers name it (topic-partition), so its partition is "
            "unknown.",
        ]
        assert all(row["topic"] for row in files.finding_rows(partitions=[("orders", 0)]))
    locked.chmod(0o755)


def test_other_folders_of_a_log_directory_are_searched(root: Path) -> None:
    """orders-1, renamed beside checkpoints, and a broker copied into another's copy were no part of the answer."""
    for name in ("remote-log-index-cache", "lost+found", "cache/tier"):
        (root / name).mkdir(parents=True)
        (root / name / "0_KC6WHIOKRcSiDvKs5ydVqA.index").touch()
    closed = root / "remote-log-index-cache", root / "lost+found"
    for folder in closed:
        folder.chmod(0)
    with unprivileged():
        assert all(row["topic"] for row in LogDir(root).finding_rows())
    for folder in closed:
        folder.chmod(0o755)
    write_log(root, "orders-1.bak", ORDERS)
    write_log(write_root(root / "copied", broker_id=2), "payments-0", ORDERS)
    files = LogDir(root)
    assert ("payments", 0) in {log.where.tp for log in files.contents().logs}
    (row,) = (row for row in files.finding_rows() if row["topic"] is None)
    assert row["verdict"] == "unknown"
    assert [each.partition(". ")[0] for each in row["missing"]] == [
        f"{root / 'orders-1.bak'}: UNNAMED: its folder is not named as brokers name it (topic-partition), so its "
        "partition is unknown."
    ]


def test_files_of_a_partition_beside_the_checkpoints_are_read(root: Path) -> None:
    """Copied into one folder with them, they were ignored: nothing hangs, exit code 0."""
    write_log(root, "", ORDERS)
    (row,) = (row for row in LogDir(root).finding_rows() if row["topic"] is None)
    assert (row["verdict"], [each.partition(": ")[0] for each in row["missing"]]) == ("unknown", [str(root)])


@pytest.mark.parametrize("left", [(), ("partition.metadata",), (f"{0:020}.index", f"{0:020}.timeindex")])
def test_a_folder_without_segments_is_a_partition_that_was_not_read(tmp_path: Path, left: tuple[str, ...]) -> None:
    """Outside of a log directory, as a copy of some folders, it was ignored."""
    write_log(tmp_path / "copy", "orders-0", ORDERS[:2])
    (tmp_path / "copy" / "orders-1").mkdir()
    for name in left:
        (tmp_path / "copy" / "orders-1" / name).touch()
    (row,) = LogDir(tmp_path / "copy").finding_rows()
    assert (row["topic"], row["partition"], row["verdict"]) == ("orders", 1, "unknown")
    assert row["missing"] == ["EMPTY: it contains no segment."]


def test_a_broken_link_is_an_error(root: Path) -> None:
    """The log seemed to end before it."""
    (root / "orders-0" / f"{6:020}.log").symlink_to(root / "gone")
    assert LogDir(root).batches(topics=["orders"])["error"].iloc[-1] == "UNREADABLE: No such file or directory."
    assert LogDir(root).partition_rows(topics=["orders"])[0]["error"].startswith("UNREADABLE")
    (root / "paid-0").symlink_to(root / "gone")
    [replica] = [each for each in discover([root]).replicas if each.topic == "paid"]
    assert FolderLog(replica).error == f"UNREADABLE: {root / 'paid-0'}: No such file or directory."


def test_a_range_of_times_has_the_bytes_that_could_not_be_read(root: Path) -> None:
    """Unreadable bytes at the end of a range that ends at a time, or before the first newer batch, were no row."""
    segment, later = root / "orders-0" / SEGMENT, after(minutes=1)
    segment.write_bytes(segment.read_bytes() + b"\x07" * 500)
    assert LogDir(root).batches(topics=["orders"], stop=later)["error"].notna().sum() == 1
    with segment.open("ab") as file:
        file.write(data(9, 7, after(minutes=2)))
    assert LogDir(root).batches(topics=["orders"], start=later)["error"].notna().sum() == 1
    assert values(LogDir(root).batches(topics=["orders"], stop=later), "base_offset") == [0, 2, 3, 4, 5, None]


def test_each_table_reads_as_far_back_as_it_needs(root: Path) -> None:
    """After findings, which begin at the newest snapshot, holds before it were missing."""
    write_snapshot(root / "orders-0", 5, {7: None, 8: 3, 9: 4})
    with LogDir(root) as files:
        files.findings(topics=["orders"])
        assert len(files.lso_holds(topics=["orders"])) == len(LogDir(root).lso_holds(topics=["orders"])) == 2


def test_a_batch_with_a_wrong_checksum_holds_nothing(root: Path) -> None:
    """Whose it is, is not known: it was a hold of the producer that its damaged bytes name."""
    spoiled = bytearray(ORDERS[2])
    spoiled[-1] ^= 1
    write_log(root, "orders-0", [*ORDERS[:2], bytes(spoiled), *ORDERS[3:]])
    rows = LogDir(root).lso_hold_rows(topics=["orders"])
    assert [row["producer_id"] for row in rows if not row["error"]] == [7, 9]
    assert [row["error"].partition(" (")[0] for row in rows if row["error"]] == [
        "CORRUPT_BATCH: the checksum at offset 3 is wrong"
    ]


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


def test_nothing_is_written_to_the_files(root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    files = LogDir(root)
    for name in tables_of(FILES):
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


BATCHES = [data(10 * number, 7, after(), records=10) for number in range(6)]
SIZE = len(BATCHES[0])


def window(root: Path, *segments: list[bytes]) -> LogWindow:
    folders = [write_log(write_root(root), "orders-0", each, base_offset=30 * at) for at, each in enumerate(segments)]
    [replica] = discover(folders[:1]).replicas
    return read_window(FolderLog(replica), None, limit=ReadLimit.OPEN)


def test_damage_reaches_up_to_the_batch_behind_it_in_its_segment_or_the_next(tmp_path: Path) -> None:
    garbage = b"\xff" * SIZE
    first = [BATCHES[0], garbage, BATCHES[2]]
    damage = window(tmp_path, first, [*BATCHES[3:5], garbage]).damage
    assert [(each.next_offset, each.is_torn) for each in damage] == [(20, False), (None, False)]
    assert [each.place.partition(" of ")[0] for each in damage] == [f"byte {SIZE}", f"byte {2 * SIZE}"]
    assert [damage[0].reaches(offset) for offset in (0, 19, 20)] == [True, True, False]
    assert damage[1].reaches(10**9)
    at_the_end = window(tmp_path / "other", [*BATCHES[:2], garbage], BATCHES[3:]).damage
    assert [each.next_offset for each in at_the_end] == [30]


def test_the_first_and_the_last_wrong_checksum_are_kept(tmp_path: Path) -> None:
    """The last one reaches furthest: with the first alone, a marker behind the start could be missed."""
    wrong = {1, 3, 4}
    batches = [each[:-1] + b"?" if number in wrong else each for number, each in enumerate(BATCHES)]
    found = window(tmp_path, batches)
    assert [(each.next_offset, each.place.partition(" of ")[0]) for each in found.wrong_checksums] == [
        (20, f"byte {SIZE}"),
        (50, f"byte {4 * SIZE}"),
    ]
    assert [each.reason for each in found.wrong_checksums] == [
        f"CORRUPT_BATCH: the checksum at offset {offset} is wrong." for offset in (10, 40)
    ]
    assert not found.damage


FIRST_SEGMENT = "00000000000000000000.log"
DUMP = "Dumping /data/orders-0/00000000000000000000.log\nLog starting offset: 0\n"


def topic_partitions(layout: LogDirLayout) -> list[tuple[str | None, int | None, int | None]]:
    return [(replica.topic, replica.partition, replica.root.broker_id) for replica in layout.replicas]


def test_a_log_directory_has_its_partitions_and_its_brokers_id(tmp_path: Path) -> None:
    root = write_root(tmp_path, broker_id=3)
    partition_folder(root, "orders-0")
    partition_folder(root, "my-orders-12")
    layout = discover([root])
    assert topic_partitions(layout) == [("my-orders", 12, 3), ("orders", 0, 3)]
    assert layout.roots[0].cluster_id == "xRkncQT9TEa2WI1kTHANEQ"
    (root / META).write_text("version=0\nbroker.id=9\ncluster.id=xRkncQT9TEa2WI1kTHANEQ\n")  # with ZooKeeper
    assert topic_partitions(discover([root])) == [("my-orders", 12, 9), ("orders", 0, 9)]


def test_a_folder_above_several_brokers_includes_all_of_them(tmp_path: Path) -> None:
    for broker_id in (1, 2):
        partition_folder(write_root(tmp_path / f"broker-{broker_id}" / "data", broker_id=broker_id), "orders-0")
    assert topic_partitions(discover([tmp_path])) == [("orders", 0, 1), ("orders", 0, 2)]


def test_a_transaction_of_several_replicas_counts_once(tmp_path: Path) -> None:
    """The total of txn-stat had a transaction as often as it has replicas among the files."""
    for broker_id in (1, 2):
        root = write_root(tmp_path / str(broker_id), broker_id=broker_id)
        batches = [data(0, 7, after(seconds=1)), marker(1, 7, after(seconds=2)), data(2, 8, after(seconds=3))]
        write_log(root, "orders-0", batches[: 1 + broker_id])
    *of_logs, total = LogDir(tmp_path).statistic_rows()
    assert [(row["broker_id"], row["committed"], row["open"]) for row in of_logs] == [(1, 1, 0), (2, 1, 1)]
    assert (total["topic"], total["committed"], total["open"]) == (None, 1, 1)


def test_a_log_directory_that_lies_too_deep_is_named(tmp_path: Path) -> None:
    """What lay further below a path than is searched was left out in silence, and nothing was held there."""
    partition_folder(write_root(tmp_path / "near"), "orders-0")
    day = tmp_path / "backup" / "2026" / "11" / "30"
    partition_folder(write_root(day / "far"), "payments-0")
    layout = discover([tmp_path])
    assert topic_partitions(layout) == [("orders", 0, 1)]
    assert [(each.path, each.reason.partition(":")[0]) for each in layout.left_out] == [(day, "UNREADABLE")]
    assert [each.verdict for each in LogDir(tmp_path).records(Finding)] == ["unknown"]
    assert topic_partitions(discover([day])) == [("payments", 0, 1)]


def test_a_partition_folder_takes_its_broker_from_its_parent(tmp_path: Path) -> None:
    folder = partition_folder(write_root(tmp_path), "orders-0")
    assert topic_partitions(discover([folder])) == [("orders", 0, 1)]
    renamed = folder.rename(tmp_path / "what the admin sent")
    assert topic_partitions(discover([renamed])) == [(None, None, 1)]


def test_loose_files_of_one_folder_are_one_replica(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "orders-0", "00000000000000000005.log", "00000000000000000005.snapshot")
    segments = [folder / FIRST_SEGMENT, folder / "00000000000000000005.log"]
    [replica] = discover(segments).replicas
    assert [file.offset for file in FolderLog(replica).segments] == [0, 5]
    assert not FolderLog(replica).snapshot_files
    assert len(discover([*segments, folder]).replicas) == len(discover([folder, *segments]).replicas) == 1


def test_files_with_other_names_are_recognized_by_their_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "dump.out").write_text(DUMP)
    (tmp_path / "notes.txt").write_text("nothing of it")
    assert discover([tmp_path]).texts == [tmp_path / "dump.out"]
    assert discover([tmp_path / "dump.out", tmp_path]).texts == [tmp_path / "dump.out"]
    copied = tmp_path / "copied segment"
    copied.write_bytes((partition_folder(tmp_path, "orders-0") / FIRST_SEGMENT).read_bytes())
    [replica] = discover([copied]).replicas
    assert [file.path for file in FolderLog(replica).segments] == [copied]


def test_texts_in_utf_16_are_read_and_unreadable_ones_are_named(tmp_path: Path) -> None:
    """``>`` of Windows PowerShell writes UTF-16: among other texts, it was left out without a word."""
    (tmp_path / "orders.txt").write_text(DUMP.replace("\n", "\r\n"), encoding="utf-16", newline="")
    (tmp_path / "payments.txt").symlink_to("/proc/self/mem")  # which even root cannot read there
    files = LogDir(tmp_path)
    assert [log.where.tp for log in files.contents().logs] == [("orders", 0)]
    assert [each.path.name for each in files.left_out] == ["payments.txt"]


def test_future_deleted_and_stray_folders_are_reported_and_not_read(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    partition_folder(root, "orders-0")
    for suffix in ("delete", "future", "stray"):
        partition_folder(root, f"orders-0.0f81b0f6c1a8497fb47e1c9c9e2a6d1b-{suffix}")
    layout = discover([root])
    assert topic_partitions(layout) == [("orders", 0, 1)]
    assert sorted(each.reason.split(":")[0] for each in layout.left_out) == ["DELETED", "FUTURE", "STRAY"]


def test_links_and_paths_that_lead_to_the_same_count_once(tmp_path: Path) -> None:
    root = write_root(tmp_path / "data")
    folder = partition_folder(tmp_path / "disk", "orders-0")
    (root / "orders-0").symlink_to(folder)
    (tmp_path / "again").symlink_to(root)
    (root / "loop").symlink_to(tmp_path)
    assert topic_partitions(discover([tmp_path, root, root / "orders-0"])) == [("orders", 0, 1)]


def test_other_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file or folder"):
        discover([tmp_path / "missing"])
    with pytest.raises(NotFound, match="no Kafka files"):
        discover([tmp_path])
    packed = tmp_path / "orders.gz"
    packed.write_bytes(gzip.compress(DUMP.encode()))
    with pytest.raises(UsageError, match=r"This is gzip\. Unpack it first\."):
        discover([packed])
    (tmp_path / "empty").touch()
    with pytest.raises(UsageError, match="is not a segment"):
        discover([tmp_path / "empty"])


def test_an_unreadable_path_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    with unprivileged(), pytest.raises(UsageError, match="Permission denied"):
        discover([tmp_path])


def test_an_unreadable_folder_of_a_log_directory_is_an_error_row(tmp_path: Path) -> None:
    partition_folder(tmp_path, "orders-0", "00000000000000000007.log").chmod(0)
    with unprivileged():
        rows = LogDir(tmp_path).batch_rows()
    assert [(row["topic"], row["partition"]) for row in rows] == [("orders", 0)]
    assert "Permission denied" in rows[0]["error"]


def test_leftover_files_of_cleaner_and_deletion_are_not_read(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "orders-0", "00000000000000000007.log")
    for name in ("00000000000000000003.log.deleted", "00000000000000000005.log.cleaned"):
        (folder / name).write_bytes(b"")
    log = FolderLog(discover([folder]).replicas[0])
    assert [file.offset for file in log.segments] == [0, 7]
    assert sorted(each.reason.split(":")[0] for each in log.left_out) == ["CLEANED", "DELETED"]


def test_a_finished_swap_file_replaces_the_segments_it_covers(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "orders-0", "00000000000000000001.log", "00000000000000000003.log")
    (folder / FIRST_SEGMENT).rename(folder / f"{FIRST_SEGMENT}.swap")  # holds the offsets 0 to 2
    log = FolderLog(discover([folder]).replicas[0])
    assert [file.path.name for file in log.segments] == [f"{FIRST_SEGMENT}.swap", "00000000000000000003.log"]
    (folder / f"{FIRST_SEGMENT}.cleaned").touch()  # unfinished: the swap file does not count
    log = FolderLog(discover([folder]).replicas[0])
    assert [file.offset for file in log.segments] == [1, 3]


def test_changes_of_files_during_the_read_are_detected(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "orders-0", "00000000000000000003.log")
    [replica] = discover([folder]).replicas
    before = FolderLog(replica)
    assert before.changes(appending=False) == []
    with (folder / "00000000000000000003.log").open("ab") as file:
        file.write(b"more")
    assert before.changes(appending=True) == []
    assert "written to" in before.changes(appending=False)[0]
    (folder / FIRST_SEGMENT).rename(folder / f"{FIRST_SEGMENT}.deleted")
    assert f"{FIRST_SEGMENT} was removed" in before.changes(appending=True)[0]


# What the index of a log of __transaction_state finds is what reading everything finds.

LONG = "x" * 300  # a key whose length takes two bytes to write


def log_of(folder: Path) -> FolderLog:
    return FolderLog(discover([folder]).replicas[0])


def newest(rows: list[Row]) -> dict[str, Row]:
    return {row["transactional_id"]: row for row in rows if not row["error"]}


def newest_rows(log: FolderLog) -> list[Row]:
    index, parts = log.indexed()
    for _ in parts:
        pass
    return [each.row() for each in (*index.errors, *index.newest())]


def both_ways(folder: Path) -> tuple[dict[str, Row], dict[str, Row]]:
    log = log_of(folder)
    return newest(newest_rows(log)), newest([each.row() for each in log.transaction_log()])


@pytest.mark.parametrize("seed", range(5))
def test_newest_is_the_last_record_of_each_id_over_all_segments(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    names = [*ids_of(3, 5), LONG, "é" * 70, "a"]
    batches = []
    for offset in range(400):
        name = dice.choice(names)
        at = after(seconds=offset)
        is_last = dice.random() < 0.1
        batches.append(tombstone(offset, name, at) if is_last else state_record(offset, name, offset, "Ongoing", at))
    write_log(tmp_path, f"{STATE_TOPIC}-3", batches[:150])
    folder = write_log(tmp_path, f"{STATE_TOPIC}-3", batches[150:], base_offset=150)
    fast, slow = both_ways(folder)
    assert fast == slow
    assert len(fast) == len(names)


def test_batches_that_no_coordinator_writes_are_read(tmp_path: Path) -> None:
    first, second = ids_of(3, 2)
    several = write_batch([(b"\0\0" + len(name).to_bytes(2, "big") + name.encode(), None) for name in (first, second)],
                          timestamp=after(), base_offset=1)  # fmt: skip
    folder = write_log(
        tmp_path,
        f"{STATE_TOPIC}-3",
        [state_record(0, first, 1, "Empty", after()), several, state_record(3, second, 2, "Empty", after())],
    )
    fast, slow = both_ways(folder)
    assert fast == slow
    assert (fast[first]["tombstone"], fast[second]["tombstone"]) == (True, False)


def test_a_segment_that_the_cleaner_has_replaced_by_a_shorter_one_is_unreadable(tmp_path: Path) -> None:
    """The compiled decoder read beyond the end of the bytes."""
    folder = write_log(tmp_path, f"{STATE_TOPIC}-3", [state_record(0, ids_of(3, 1)[0], 1, "Empty", after())])
    log = log_of(folder)
    (part,) = log.parts()
    os.truncate(folder / SEGMENT, 70)
    index = RecordIndex()
    index.add(part)
    (unread,) = index.errors
    assert unread.error == "UNREADABLE: It has become shorter while it was read."


def test_unreadable_records_are_reported_and_hide_no_others(tmp_path: Path) -> None:
    first, second = ids_of(3, 2)
    broken = state_record(1, first, 1, "Ongoing", after()).replace(b"id-", b"ID-")
    strange = write_batch([(None, b"no key")], timestamp=after(), base_offset=2)
    sound = state_record(3, second, 2, "Empty", after())
    folder = write_log(
        tmp_path, f"{STATE_TOPIC}-3", [state_record(0, first, 1, "Empty", after()), broken, strange, sound]
    )
    rows = newest_rows(log_of(folder))
    assert sorted(newest(rows)) == sorted([first, second])
    errors = [row["error"].partition(":")[0] for row in rows if row["error"]]
    assert sorted(errors) == ["CORRUPT_BATCH", "CORRUPT_RECORD"]
    with (folder / SEGMENT).open("ab") as file:
        file.write(sound[:40])
    errors = [row["error"].partition(":")[0] for row in newest_rows(log_of(folder)) if row["error"]]
    assert "TORN_TAIL" in errors


def test_an_empty_partition_has_no_records(tmp_path: Path) -> None:
    write_state_topic(tmp_path, partitions=1)
    assert newest_rows(log_of(tmp_path / f"{STATE_TOPIC}-0")) == []
