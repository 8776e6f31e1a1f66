"""The content of a path: log directories, partitions, loose files, dump texts; and skipped files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.sources.log_files import META, partition_folder, write_root
from tests.unprivileged import unprivileged
from toolkit import LogDir
from toolkit.errors import NotFound, UsageError
from toolkit.sources.logdir.log_dir_layout import LogDirLayout, discover
from toolkit.sources.logdir.replica_log import FolderLog

SEGMENT = "00000000000000000000.log"
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


def test_a_folder_above_several_brokers_includes_all_of_them(tmp_path: Path) -> None:
    for broker_id in (1, 2):
        partition_folder(write_root(tmp_path / f"broker-{broker_id}" / "data", broker_id=broker_id), "orders-0")
    assert topic_partitions(discover([tmp_path])) == [("orders", 0, 1), ("orders", 0, 2)]


def test_a_partition_folder_takes_its_broker_from_its_parent(tmp_path: Path) -> None:
    folder = partition_folder(write_root(tmp_path), "orders-0")
    assert topic_partitions(discover([folder])) == [("orders", 0, 1)]
    renamed = folder.rename(tmp_path / "what the admin sent")
    assert topic_partitions(discover([renamed])) == [(None, None, 1)]


def test_loose_files_of_one_folder_are_one_replica(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, "orders-0", "00000000000000000005.log", "00000000000000000005.snapshot")
    segments = [folder / SEGMENT, folder / "00000000000000000005.log"]
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
    copied.write_bytes((partition_folder(tmp_path, "orders-0") / SEGMENT).read_bytes())
    [replica] = discover([copied]).replicas
    assert [file.path for file in FolderLog(replica).segments] == [copied]


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


def test_a_broken_link_to_a_partition_is_an_error(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    (root / "orders-0").symlink_to(tmp_path / "gone")
    [replica] = discover([root]).replicas
    assert FolderLog(replica).error == f"UNREADABLE: {root / 'orders-0'}: No such file or directory."


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
    (folder / SEGMENT).rename(folder / f"{SEGMENT}.swap")  # holds the offsets 0 to 2
    log = FolderLog(discover([folder]).replicas[0])
    assert [file.path.name for file in log.segments] == [f"{SEGMENT}.swap", "00000000000000000003.log"]
    (folder / f"{SEGMENT}.cleaned").touch()  # unfinished: the swap file does not count
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
    (folder / SEGMENT).rename(folder / f"{SEGMENT}.deleted")
    assert f"{SEGMENT} was removed" in before.changes(appending=True)[0]


def test_meta_properties_with_zookeeper_name_the_broker(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    (root / META).write_text("version=0\nbroker.id=9\ncluster.id=xRkncQT9TEa2WI1kTHANEQ\n")
    partition_folder(root, "orders-0")
    assert topic_partitions(discover([root])) == [("orders", 0, 9)]
