"""Copies of log directories: of a running broker, interrupted, refused; and what their manifest proves."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.brokers import NEWEST, on_cluster
from tests.sources.log_files import (
    HIGH_WATERMARK,
    META,
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
from tests.workload import Worker
from toolkit import Cluster, LogDir
from toolkit.cli.commands import app
from toolkit.errors import NotFound, UsageError
from toolkit.formats.log_dir_files import MANIFEST, CopyManifest, LogPath, parse_manifest, read_manifest
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema import Row
from toolkit.sources.logdir import contents as contents_module
from toolkit.sources.logdir import log_dir_copy
from toolkit.sources.logdir.contents import Copies
from toolkit.sources.logdir.log_dir_copy import copy_log_dir
from toolkit.sources.logdir.log_dir_layout import discover

OWNER = ids_of(33, 1)[0]
IN_THREE_DAYS = (dt.datetime.now(dt.UTC) + dt.timedelta(days=3)).timestamp()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """orders-0 with an open transaction of one minute, and payments-0."""
    monkeypatch.setattr(log_dir_copy, "is_locked", lambda path: True)
    root = write_root(tmp_path / "data")
    write_log(root, "orders-0", [data(0, 8, after(minutes=-1)), marker(1, 8, after()), data(2, 7, after())])
    write_log(root, "payments-0", [data(0, 9, after())])
    write_state_topic(root, {33: [state_record(0, OWNER, 7, "Ongoing", after(), on=[("orders", 0)])]})
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 3, ("payments", 0): 1, (STATE_TOPIC, 33): 1})
    for folder in root.glob("*-0"):
        (folder / f"{0:020}.index").write_bytes(b"\0\0\0\1\0\0\0\0" + b"\0" * 1_000)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """All files but the manifest; an index without the zeros that a broker allocates in advance."""
    paths = [path for path in root.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {
        path.relative_to(root).as_posix(): data.rstrip(b"\0") if path.suffix == ".index" else data
        for path in paths
        for data in [path.read_bytes()]
    }


def when(folder: str, do: Callable[[], object]) -> Callable[[str], None]:
    """Calls a function before a folder is copied, the first time only."""
    called: list[str] = []

    def progress(name: str) -> None:
        if name == folder and not called:
            called.append(name)
            do()

    return progress


def finding(files: LogDir, producer_id: int) -> Row:
    (row,) = (row for row in files.finding_rows(topics=["orders"]) if row["producer_id"] == producer_id)
    return row


def test_a_copy_equals_its_source_and_the_manifest_has_its_time(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    manifest = copy_log_dir(source, target)
    assert contents(target) == contents(source)
    assert (target / "orders-0" / f"{0:020}.index").stat().st_size == 8
    assert manifest == read_manifest(target)
    assert manifest.moment is not None
    assert before < manifest.begin <= manifest.moment <= (manifest.end or before)
    assert (manifest.changed, manifest.incomplete) == ([], [])
    line = LogDir(target).proof().line
    assert f"a copy of one moment, {manifest.moment:%Y-%m-%d %H:%M:%S} UTC." in line
    assert "Not proven" not in line
    (partition,) = LogDir(target).partition_rows(topics=["orders"])
    assert partition["observed_at"] == manifest.moment


def test_a_replica_that_is_read_while_another_reads_the_manifest_has_its_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = copy_log_dir(source, tmp_path / "copy")
    first, second = threading.Event(), threading.Event()

    def slow(folder: LogPath) -> CopyManifest | None:
        if not first.is_set():
            first.set()
            second.wait(5)
        return read_manifest(folder)

    monkeypatch.setattr(contents_module, "read_manifest", slow)
    (root,) = discover([tmp_path / "copy"]).roots
    copies = Copies()
    reader = threading.Thread(target=copies.manifest, args=(root,))
    reader.start()
    assert first.wait(5)
    assert copies.manifest(root) == manifest
    second.set()
    reader.join(5)


def test_only_some_topics_are_copied_and_always_what_a_diagnosis_needs(source: Path, tmp_path: Path) -> None:
    copy_log_dir(source, tmp_path / "copy", topics=["payments"])
    found = contents(tmp_path / "copy")
    assert {path.partition("/")[0] for path in found} >= {"payments-0", f"{STATE_TOPIC}-33", META, HIGH_WATERMARK}
    assert not any(path.startswith("orders") for path in found)
    with pytest.raises(NotFound, match="no partition of topic 'nothing'"):
        copy_log_dir(source, tmp_path / "other", topics=["nothing"])


def test_what_is_there_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").touch()
    with pytest.raises(UsageError, match="has other files"):
        copy_log_dir(source, other)
    copy_log_dir(source, tmp_path / "copy")
    with pytest.raises(UsageError, match="has a complete copy"):
        copy_log_dir(source, tmp_path / "copy")
    for target in (source / "copy", source, tmp_path):
        with pytest.raises(UsageError, match="contain each other"):
            copy_log_dir(source, target)
    with pytest.raises(UsageError, match="is no log directory"):
        copy_log_dir(other, tmp_path / "new")
    shutil.copytree(source, tmp_path / "renamed")
    (tmp_path / "renamed" / "orders-0").rename(tmp_path / "renamed" / "orders-0.bak")
    with pytest.raises(UsageError, match=r"has the folder orders-0\.bak with files of a log"):  # its copy was clear
        copy_log_dir(tmp_path / "renamed", tmp_path / "new")
    with pytest.raises(UsageError, match="is a copy itself"):
        copy_log_dir(tmp_path / "copy", tmp_path / "new")
    with pytest.raises(UsageError, match="Not a directory"):
        copy_log_dir(source, source.parent / "other" / "notes.txt" / "copy")
    with pytest.raises(NotFound, match="There is no folder"):
        copy_log_dir(tmp_path / "nowhere", tmp_path / "new")
    assert not (tmp_path / "new").exists()


class Killed(BaseException):
    """Ends a copy as a signal does."""


def kill() -> None:
    raise Killed


def test_an_interrupted_copy_proves_nothing_and_the_same_call_continues_it(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    with pytest.raises(Killed):
        copy_log_dir(source, target, progress=when(f"{STATE_TOPIC}-7", kill))
    assert "the copy was not finished: run kafka-txn copy again" in LogDir(target).proof().line
    with pytest.raises(UsageError, match="has an unfinished copy of"):
        copy_log_dir(source, target, topics=["orders"])
    kept = (target / "orders-0" / SEGMENT).stat().st_mtime_ns
    (target / "payments-0" / f"{5:020}.log").write_bytes(b"half a segment, which the broker has deleted since")
    shutil.rmtree(source / f"{STATE_TOPIC}-0")  # deleted meanwhile
    manifest = copy_log_dir(source, target)
    assert manifest.moment is not None
    assert (target / "orders-0" / SEGMENT).stat().st_mtime_ns == kept
    assert not (target / f"{STATE_TOPIC}-0").exists()
    assert contents(target) == contents(source)


def test_the_source_may_change_while_it_is_copied(source: Path, tmp_path: Path) -> None:
    """Segments roll and are deleted, and a transaction begins when its coordinator's log has been copied."""
    segment, rolled = source / "orders-0" / SEGMENT, source / "orders-0" / f"{4:020}.log"

    def change() -> None:
        with segment.open("ab") as file:
            file.write(data(3, 6, after(seconds=9)))
        rolled.write_bytes(data(4, 6, after(seconds=10)))
        (source / "payments-0" / SEGMENT).rename(source / "payments-0" / f"{SEGMENT}.deleted")
        (source / "payments-0" / f"{1:020}.log").write_bytes(data(1, 9, after(seconds=11)))
        write_snapshot(source / "payments-0", 1, {})
        write_checkpoint(source, HIGH_WATERMARK, {("orders", 0): 5, ("payments", 0): 2, (STATE_TOPIC, 33): 1})

    manifest = copy_log_dir(source, tmp_path / "copy", progress=when(f"{STATE_TOPIC}-33", change))
    copied, now = contents(tmp_path / "copy"), contents(source)
    now.pop(f"payments-0/{SEGMENT}.deleted")
    assert copied == now
    assert manifest.changed == ["orders-0", "payments-0"]
    grown = manifest.files[f"orders-0/{SEGMENT}"]
    assert 0 < grown.first_size < grown.size == segment.stat().st_size
    assert manifest.files[f"orders-0/{rolled.name}"].first_size == 0
    rows = {row["producer_id"]: row for row in LogDir(tmp_path / "copy").finding_rows(topics=["orders"])}
    assert {producer_id: row["verdict"] for producer_id, row in rows.items()} == {7: "ongoing"}
    (payments,) = LogDir(tmp_path / "copy").finding_rows(partitions=[("payments", 0)])
    assert payments["verdict"] == "clear"
    assert "began afterwards, while the files were copied" in payments["reason"]


def test_a_segment_that_was_truncated_and_written_again_is_copied_again(source: Path, tmp_path: Path) -> None:
    segment = source / "orders-0" / SEGMENT

    def truncate() -> None:
        with segment.open("r+b") as file:
            file.truncate(0)
            file.write(data(0, 5, after()) + data(1, 5, after()) + data(2, 5, after()) + data(3, 5, after()))

    manifest = copy_log_dir(source, tmp_path / "copy", progress=when(f"{STATE_TOPIC}-0", truncate))
    assert (tmp_path / "copy" / "orders-0" / SEGMENT).read_bytes() == segment.read_bytes()
    assert manifest.files[f"orders-0/{SEGMENT}"].first_size == 0


def test_a_partition_that_is_deleted_meanwhile_is_left_out(source: Path, tmp_path: Path) -> None:
    manifest = copy_log_dir(
        source, tmp_path / "copy", progress=when(f"{STATE_TOPIC}-0", lambda: shutil.rmtree(source / "payments-0"))
    )
    assert manifest.changed == ["payments-0"]
    assert not any(path.startswith("payments") for path in contents(tmp_path / "copy"))


def test_a_folder_that_changes_faster_than_it_is_copied_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dir_copy, "ATTEMPTS", 0)
    manifest = copy_log_dir(source, tmp_path / "copy", topics=["orders"])
    assert "orders-0" in manifest.incomplete
    done = CliRunner().invoke(app, ["copy", str(source), str(tmp_path / "second"), "--topic", "orders"])
    assert done.exit_code == 3
    assert "orders-0 changed faster than it was copied" in done.output


def rewrite(target: Path, change: Callable[[CopyManifest], CopyManifest]) -> None:
    manifest = parse_manifest((target / MANIFEST).read_bytes())
    (target / MANIFEST).write_text(change(manifest).to_json())


def test_files_without_a_broker_may_be_of_any_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that was copied in a wrong order, days ago, becomes no better by another copy."""
    monkeypatch.setattr(log_dir_copy, "is_locked", lambda path: False)
    copy_log_dir(source, tmp_path / "copy")
    (partition,) = LogDir(tmp_path / "copy").partition_rows(topics=["orders"])
    assert partition["observed_at"] == after()
    line = LogDir(tmp_path / "copy").proof().line
    assert f"of one moment (no broker ran on {source} while it was copied; if all were shut down cleanly" in line
    row = finding(LogDir(tmp_path / "copy", as_of=after(days=1)), 7)
    assert row["verdict"] == "overdue"
    assert "as of 2026-11-22 12:00:00 UTC, by the asserted time of the copy (as_of)" in row["reason"]


def test_without_checkpoints_the_coordinators_log_reaches_to_an_unknown_time(source: Path, tmp_path: Path) -> None:
    """As of a broker that has just started; the first line spoke of a log without a record."""
    (source / "replication-offset-checkpoint").unlink()
    copy_log_dir(source, tmp_path / "copy")
    line = LogDir(tmp_path / "copy").proof().line
    assert "to a time that is unknown without its high watermark" in line
    assert "without a record" not in line


def as_if_leaders_had_changed(manifest: CopyManifest) -> CopyManifest:
    """The manifest of a copy during which all of the metadata log was written."""
    files = dict(manifest.files)
    for path, file in manifest.files.items():
        if path.startswith("__cluster_metadata"):
            files[path] = replace(file, first_size=0)
    return replace(manifest, files=files)


def test_a_manifest_counts_only_for_the_files_that_it_is_of(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    copy_log_dir(source, target)
    with (target / "orders-0" / SEGMENT).open("ab") as file:
        file.write(data(3, 7, after(seconds=1)))
    assert f"orders-0/{SEGMENT} is not the file that was copied" in LogDir(target).proof().line
    (partition,) = LogDir(target).partition_rows(topics=["orders"])
    assert partition["observed_at"] == after()
    for text, reason in (("[]", "it is no manifest"), ('{"format": 2}', "another version of kafka-txn")):
        (target / MANIFEST).write_text(text)
        (left_out,) = (each for each in LogDir(target).left_out if each.path.name == MANIFEST)
        assert reason in left_out.reason
        assert "copy with kafka-txn copy" in LogDir(target).proof().line
    with pytest.raises(UsageError, match="cannot be read"):
        copy_log_dir(source, target)


def test_without_a_manifest_the_first_line_has_what_to_do(source: Path) -> None:
    line = LogDir(source).proof().line
    assert line == (
        "Proven: __transaction_state is complete from 2026-11-21 12:00:00 UTC to 2026-11-21 12:00:00 UTC (50 "
        "partitions). Not proven: anything after 2026-11-21 12:00:00 UTC, so no age counts beyond it: say --as-of TIME "
        "of the copy; that the files are of one moment: copy with kafka-txn copy."
    )
    line = LogDir(source, as_of=after(days=1), consistent_copy=True).proof().line
    assert "copied at 2026-11-22 12:00:00 UTC, as asserted; the files are of one moment, as asserted." in line
    assert "Not proven" not in line
    shutil.rmtree(source / f"{STATE_TOPIC}-4")
    assert "Not proven: a complete __transaction_state: 49 of its 50" in LogDir(source).proof().line
    done = CliRunner().invoke(app, ["diagnose", "--log-dir", str(source)])
    assert done.output.startswith("Not proven: a complete __transaction_state")


@pytest.mark.parametrize("lab", [on_cluster(NEWEST, EVERYDAY, id=NEWEST)], indirect=True)
def test_the_copy_of_a_running_broker_has_the_verdicts_of_that_moment(lab: Kafka, tmp_path: Path) -> None:
    """A producer writes all the while. Days later, in files with other times, the same transactions are as old."""
    names = ("late_message", "never_added", "open_young")
    stop = threading.Event()
    with Cluster(lab.bootstrap_servers) as cluster:
        staged = [INCIDENTS[name](lab) for name in names]
        tps = [(each.topic, each.partition) for each in staged]
        keys = {(each.topic, each.partition, each.start_offset) for each in staged}
        writer = Worker(lab, [(staged[2].topic, 0)], "copied-meanwhile", stop)
        writer.start()
        try:
            source = lab.log_dirs[1]
            manifest = copy_log_dir(source, tmp_path / "copy", topics=[each.topic for each in staged])
            live = verdicts(cluster.finding_rows(partitions=tps, recheck_after=1), keys)
        finally:
            stop.set()
            writer.join()
    assert sorted(live.values()) == ["hanging", "hanging", "ongoing"]
    files = LogDir(tmp_path / "copy")
    assert verdicts(files.finding_rows(), keys) == live
    young = next(row for row in files.finding_rows(partitions=tps[2:]) if row["producer_id"] == staged[2].producer_id)
    assert f"as of {manifest.moment:%Y-%m-%d %H:%M:%S} UTC, by the manifest of the copy" in young["reason"]

    # Of a broker that writes, a checkpoint may be newer than its log, which contradicts --consistent-copy.
    copy_log_dir(source, tmp_path / "idle", topics=[each.topic for each in staged])
    (tmp_path / "idle" / MANIFEST).unlink()
    later = shutil.copytree(tmp_path / "copy", tmp_path / "later", copy_function=shutil.copy)
    for path in (*later.rglob("*"), *(tmp_path / "idle").rglob("*")):
        os.utime(path, (IN_THREE_DAYS, IN_THREE_DAYS))
    assert verdicts(LogDir(later).finding_rows(), keys) == live
    unproven = {key: "unknown" if verdict == "hanging" else verdict for key, verdict in live.items()}
    (later / META).write_text((later / META).read_text().replace("node.id=1", "node.id=2"))  # a follower may lag
    assert verdicts(LogDir(later).finding_rows(), keys) == unproven
    (later / META).write_bytes((tmp_path / "copy" / META).read_bytes())
    assert verdicts(LogDir(later).finding_rows(), keys) == live
    rewrite(later, as_if_leaders_had_changed)
    assert verdicts(LogDir(later).finding_rows(), keys) == unproven
    (later / MANIFEST).unlink()
    assert verdicts(LogDir(later).finding_rows(), keys) == unproven
    idle = LogDir(tmp_path / "idle", consistent_copy=True)
    assert verdicts(idle.finding_rows(), keys) == live  # ages by the logs, not the files


def verdicts(rows: list[Row], keys: set[tuple[str, int, int]]) -> dict[tuple[str, int, int], str]:
    found = {(row["topic"], row["partition"], row["start_offset"]): row["verdict"] for row in rows}
    return {key: found[key] for key in keys}
