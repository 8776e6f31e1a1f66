"""A log is the same one wherever its files are; a topic that was created again is another one. Without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sources.log_files import (
    CLEANED,
    HIGH_WATERMARK,
    SEGMENT,
    after,
    data,
    in_epoch,
    marker,
    state_record,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from tests.spark.read_log import listed
from tests.spark.test_incomplete_copies import Tables
from toolkit import LogDir
from toolkit.errors import UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC, coordinator_partition
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.sources.logdir.contents import found_in
from toolkit.sources.logdir.replica_log import ReplicaLog
from toolkit.sources.logdir.replica_state import ReplicaState, read_state
from toolkit.sources.source import TableArguments
from toolkit.spark.datasources.log_reader import LogIdentity, LogListing
from toolkit.spark.pipeline.log_states import assumptions, renames
from toolkit.spark.pipeline.run_sources import ListedLogs
from toolkit.spark.pipeline.stored_tables import IDS, StoredState

IDS_OF_TOPICS = {"old": "AAAAAAAAAAAAAAAAAAAAAQ", "new": "AAAAAAAAAAAAAAAAAAAAAg"}


def write_logs(
    root: Path, *, topic_id: str | None = "old", producer_id: int = 7, count: int = 2, broker: int = 1
) -> None:
    """A log directory with transactions of one producer on orders-0."""
    write_root(root)
    (root / "meta.properties").write_text(f"version=1\ncluster.id=A-Cluster\nnode.id={broker}\n")
    batches = []
    for number in range(count):
        batches += [
            data(2 * number, producer_id, after(seconds=number)),
            marker(2 * number + 1, producer_id, after(seconds=number)),
        ]
    write_log(root, "orders-0", map(in_epoch, batches))
    write_checkpoint(root, CLEANED, {})
    (root / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    if topic_id is not None:
        text = f"version: 0\ntopic_id: {IDS_OF_TOPICS[topic_id]}\n"
        (root / "orders-0" / "partition.metadata").write_text(text)


def log_names(root: Path) -> set[str]:
    return {each.log for each in listed(root)}


def offsets(tables: Tables) -> list[tuple[Any, ...]]:
    """Log, producer and first offset of each stored transaction."""
    found = [row for row in tables.stored if row["table"] == "log_transactions"]
    rows_ = ((row["log"], row["log_transactions"]) for row in found)
    return sorted((log, row["producer_id"], row["first_offset"]) for log, row in rows_)


def test_a_moved_copy_and_a_dated_one_are_the_same_log(tmp_path: Path) -> None:
    """Both doubled the tables, as the path was the name of the log."""
    write_logs(tmp_path / "one", count=2)
    tables = Tables(tmp_path / "one")
    tables.run()
    before = offsets(tables)
    assert before == [(f"A-Cluster/1/{IDS_OF_TOPICS['old']}/orders-0", 7, offset) for offset in (0, 2)]
    tables.folder = shutil.copytree(tmp_path / "one", tmp_path / "moved")
    tables.run()
    assert offsets(tables) == before
    write_logs(tmp_path / "later", count=3)
    tables.folder = tmp_path / "later"
    tables.run()
    assert offsets(tables) == [*before, (before[0][0], 7, 4)]
    tables.folder = tmp_path / "one"  # an older copy, read after a newer one
    tables.run()
    assert len(offsets(tables)) == 3


def test_an_older_copy_ends_nothing_that_a_newer_one_has_open(tmp_path: Path) -> None:
    """What was open was no finding any more after a run over the copy of the day before."""
    write_logs(tmp_path / "newer", count=3)
    write_logs(tmp_path / "older", count=2)
    tables = Tables(tmp_path / "newer")
    tables.run()
    tables.folder = tmp_path / "older"
    texts: Any = {"reason": "", "remedy": "", "missing": (), "evidence": ()}
    opened = Finding(topic="orders", partition=0, verdict=Verdict.HANGING, observed_at=after(), **texts)
    for _ in range(2):
        older = ListedLogs(spark=None, logs=listed(tables.folder))  # type: ignore[arg-type]
        assert older.elsewhere([opened], may_hide=False, states=tables.states) == [opened]
        tables.run()
    for folder in ("older", "newer"):
        write_logs(tmp_path / folder, count=4)
        grown = ListedLogs(spark=None, logs=listed(tmp_path / folder))  # type: ignore[arg-type]
        assert grown.elsewhere([opened], may_hide=False, states=tables.states) == []


def test_a_copy_of_before_retention_takes_nothing_back(tmp_path: Path) -> None:
    """Its first segment was taken for a late one: all was read again up to its end, and what followed was gone."""
    for name, count in (("older", 2), ("newer", 4)):
        write_logs(tmp_path / name, count=count)
    folder = tmp_path / "newer" / "orders-0"
    whole, head = (folder / SEGMENT).read_bytes(), (tmp_path / "older" / "orders-0" / SEGMENT).stat().st_size
    (folder / SEGMENT).unlink()
    (folder / f"{4:020}.log").write_bytes(whole[head:])
    tables = Tables(tmp_path / "newer")
    for name in ("newer", "older", "newer"):
        tables.folder = tmp_path / name
        tables.run()
        assert [offset for _, _, offset in offsets(tables)] == [4, 6]


def test_a_shorter_copy_without_leader_epochs_takes_nothing_back(tmp_path: Path) -> None:
    """It passed for a truncated log: the last transaction, whose marker an older copy lacks, was hanging again."""
    for name, count in (("newer", 4), ("older", 4)):
        write_logs(tmp_path / name, count=count)
    older = tmp_path / "older" / "orders-0"
    (older / SEGMENT).write_bytes((older / SEGMENT).read_bytes()[: -len(marker(7, 7, after()))])
    (older / "leader-epoch-checkpoint").unlink()
    tables = Tables(tmp_path / "newer")
    tables.run()
    before = tables.rows()
    for name in ("older", "newer"):
        tables.folder = tmp_path / name
        tables.run()
        errors = [row["error"] for row in tables.log_transactions if row["error"]]
        assert [each.partition(",")[0] for each in errors] == ["OFFSETS_LOST: The files end before offset 8"] * (
            name == "older"
        )
        for table, rows in tables.rows().items():
            assert set(before[table]) - set(rows) == set(), table
    assert tables.rows() == before


def test_a_log_that_was_read_with_nothing_open_is_not_read_for_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 small logs, the findings read each once more: half of the time of a run."""
    root, named = write_root(tmp_path / "data"), coordinator_partition("app", 50)
    ended = [data(0, 7, after()), marker(1, 7, after(seconds=1))]
    for number, batches in enumerate((ended, ended[:1], ended, ended)):
        folder = write_log(root, f"orders-{number}", batches)
    write_snapshot(folder, 9, {})  # the last one went on after these files
    on = [("orders", 2)]
    write_state_topic(root, {named: [state_record(0, "app", 7, "Ongoing", after(minutes=5), on=on)]})
    write_checkpoint(root, HIGH_WATERMARK, {(STATE_TOPIC, named): 1})
    tables = Tables(root)
    tables.run()
    known = ListedLogs(spark=None, logs=listed(root)).settled(tables.states)  # type: ignore[arg-type]
    assert {Path(each).name for each in known if "orders" in each} == {"orders-0", "orders-2", "orders-3"}
    read: list[str] = []

    def read_and_note(log: ReplicaLog, *arguments: Any, **more: Any) -> ReplicaState:
        read.append(Path(log.name).name)
        return read_state(log, *arguments, **more)

    def findings(settled: Mapping[str, int]) -> list[Finding]:
        read.clear()
        contents = found_in([root])
        contents.settled = settled
        return list(LogDir.of(contents, root).read("findings", TableArguments()))

    monkeypatch.setattr("toolkit.sources.logdir.contents.read_state", read_and_note)
    assert findings(known) == findings({}) != []
    findings(known)
    assert {each for each in read if "orders" in each} == {"orders-1", "orders-2", "orders-3"}


def test_of_several_copies_in_one_run_the_newest_is_read(tmp_path: Path) -> None:
    for number in (3, 5, 4):
        write_logs(tmp_path / "copies" / f"day-{number}", count=number)
    tables = Tables(tmp_path / "copies")
    tables.run()
    assert [offset for _, _, offset in offsets(tables)] == [0, 2, 4, 6, 8]


def test_two_replicas_are_two_logs(tmp_path: Path) -> None:
    for broker in (1, 2):
        write_logs(tmp_path / "brokers" / str(broker), broker=broker)
    tables = Tables(tmp_path / "brokers")
    tables.run()
    assert len(set(offsets(tables))) == len(offsets(tables)) == 4


@pytest.mark.parametrize(("old", "new"), [("old", "new"), (None, None), (None, "new")])
def test_a_topic_that_was_created_again_keeps_the_history_of_the_old_one(
    tmp_path: Path, old: str | None, new: str | None
) -> None:
    """Its rows were replaced; without a topic id, the new topic was not read below the end of the old one."""
    write_logs(tmp_path / "logs", topic_id=old, producer_id=7, count=3)
    tables = Tables(tmp_path / "logs")
    tables.run()
    shutil.rmtree(tmp_path / "logs")
    write_logs(tmp_path / "logs", topic_id=new, producer_id=8, count=2)
    is_upgrade = old is None and new is not None  # a cluster that is upgraded gives ids to its topics
    tables.run()
    if is_upgrade:
        assert {log for log, _, _ in offsets(tables)} == log_names(tmp_path / "logs")
        return
    assert [each[1:] for each in sorted(offsets(tables), key=lambda each: each[1:])] == [
        *((7, offset) for offset in (0, 2, 4)),
        *((8, offset) for offset in (0, 2)),
    ]
    topic_ids = {LogIdentity.of(log).topic_id for log, _, _ in offsets(tables)}
    assert topic_ids == ({IDS_OF_TOPICS[old], IDS_OF_TOPICS[new]} if old and new else {"~1", None})
    again = offsets(tables)
    tables.run()
    assert offsets(tables) == again


def test_without_meta_properties_a_log_is_the_one_at_its_path(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs")
    (tmp_path / "logs" / "meta.properties").unlink()
    (name,) = log_names(tmp_path / "logs")
    assert name == f"//{IDS_OF_TOPICS['old']}/{tmp_path / 'logs' / 'orders-0'}"
    (sentence,) = assumptions([name, "A/1/T/orders-1"])
    assert sentence.startswith("1 of 2 logs have no meta.properties with cluster and broker")
    (sentence,) = assumptions(["A/1//orders-0"])
    assert sentence.startswith("1 of 1 logs have no topic id")
    assert assumptions(["A/1/T/orders-0"]) == []


def listing(**columns: Any) -> LogListing:
    listed = LogListing(log="", topic="orders", partition=0, broker_id=1, topic_id="T", folder="/moved/orders-0")
    return replace(listed, leader_epochs="{}", **columns)


def state(log: str, **columns: Any) -> StoredState:
    return StoredState.of({"log": log, "topic": "orders", "partition": 0, "broker_id": 1, "topic_id": "T", **columns})


@pytest.mark.parametrize(
    ("name", "row", "stored"),
    [
        pytest.param("A/1/T/orders-0", listing(), state("A/1//orders-0", topic_id=None), id="a topic id since then"),
        pytest.param("A/1//orders-0", listing(topic_id=None), state("A/1/T/orders-0"), id="no partition.metadata now"),
    ],
)
def test_a_log_whose_name_changes_is_renamed(name: str, row: LogListing, stored: StoredState) -> None:
    assert renames({name: row}, {stored.log: stored}) == {stored.log: name}
    with_records = StoredState.of({**stored.row(), "log": stored.log + IDS})
    assert renames({name + IDS: row}, {with_records.log: with_records}) == {with_records.log: name + IDS}


def test_copies_of_one_path_without_meta_properties_are_refused(tmp_path: Path) -> None:
    """They may be of two brokers, whose logs would be taken for one."""
    from toolkit.sources.logdir.log_dir_copy import copy_log_dir

    write_logs(tmp_path / "data")
    (tmp_path / "data" / "meta.properties").unlink()
    for name in ("a", "b"):
        copy_log_dir(tmp_path / "data", tmp_path / "copies" / name)
    assert log_names(tmp_path / "copies" / "a") == log_names(tmp_path / "copies" / "b")
    with pytest.raises(UsageError, match="may be of two brokers"):
        log_names(tmp_path / "copies")
