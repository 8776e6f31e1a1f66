"""What cannot be read of a log directory is an error row with its partition, in every table that has rows of it."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unprivileged import unprivileged
from toolkit import LogDir
from toolkit.cli.commands import app
from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.formats.broker_logs import BrokerLogs
from toolkit.formats.log_dir_files import parse_folder_name
from toolkit.lab import samples
from toolkit.lab.samples import IncidentSample
from toolkit.schema import CLUSTER_EVENTS, TABLES, Row
from toolkit.schema.log import FROM_BROKER_LOG
from toolkit.sources.source import STREAMED, TableArguments

OPEN = "__transaction_state-25"  # of the sample: the coordinator's partition of an open id
FOLDERS = ("orders-0", OPEN, "__consumer_offsets-9", "__cluster_metadata-0")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Some partitions of a real broker's log directory, that may be written to."""
    source, copied = Path(str(samples.load("late-message").log_dir().paths[0])), tmp_path / "logs"
    others = [folder.name for folder in source.iterdir() if folder.is_dir() and folder.name not in FOLDERS]
    shutil.copytree(source, copied, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns(*others))
    for folder in copied.glob("*-*/"):
        folder.chmod(0o755)
    return copied


def tables(log_dir: Path) -> Iterator[tuple[str, Sequence[Row]]]:
    """The rows of each table; an error instead of a table is one row of it."""
    try:
        files = LogDir(log_dir)
    except ToolkitError as error:
        yield from ((name, [{"error": str(error)}]) for name in LogDir.functions)
        return
    for name in LogDir.functions:
        rows: list[Row]
        try:
            found = files.read(name, TableArguments())
            rows = (
                [row for each in found for row in each.to_pylist()] if name in STREAMED else TABLES[name].ordered(found)
            )
        except ToolkitError as error:
            rows = [{"error": str(error)}]
        yield name, rows


def kept(rows: Sequence[Row]) -> Counter[str]:
    """Rows that can be compared: without the times and texts that depend on the read."""
    left_out = {"observed_at", "modified", "evidence", "reason", "remedy", "missing", "error", "error_counts"}
    left_out |= {"broker_id", "metadata_node_id"}  # of meta.properties, whose own rows have its error
    return Counter(
        json.dumps({name: value for name, value in row.items() if name not in left_out}, default=str) for row in rows
    )


def elsewhere(rows: Sequence[Row], file: Path) -> Counter[str]:
    """Those of partitions whose folder a file is not of."""
    return kept([row for row in rows if f"{row['topic']}-{row['partition']}" not in file.parts])


SILENT = {  # tables that lose rows in silence
    "coordinators": "an id or group without a readable record is not known; transactions and findings say so"
}
DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "unreadable": lambda path: path.chmod(0),
    "garbage": lambda path: path.write_bytes(b"\x07" * max(100, path.stat().st_size)),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_no_row_is_lost_in_silence(log_dir: Path, how: str) -> None:
    before = dict(tables(log_dir))
    assert {name for name, rows in before.items() if rows} >= {
        "batches",
        "aborted",
        "snapshots",
        "checkpoints",
        "findings",
    }
    files = [path for folder in FOLDERS for path in sorted((log_dir / folder).iterdir())]
    files += [path for path in sorted(log_dir.iterdir()) if path.is_file()]
    files += [log_dir / folder for folder in FOLDERS] if how == "unreadable" else []
    silent: list[str] = []
    expected = {name: kept(rows) for name, rows in before.items()}
    for file in files:
        mode, content = file.stat().st_mode, file.read_bytes() if file.is_file() else b""
        DAMAGES[how](file)
        with unprivileged():
            after = dict(tables(log_dir))
        file.chmod(mode)
        if file.is_file():
            file.write_bytes(content)
        for name, rows in after.items():
            if name in STREAMED:
                assert not elsewhere(before[name], file) - elsewhere(rows, file), f"{file}: a log after it is not read"
            if expected[name] - kept(rows) and not any(says(row, file) for row in rows):
                silent.append(f"{file.relative_to(log_dir)}: {name}")
    assert {each for each in silent if each.split()[1] not in SILENT} == set()
    assert {each.split()[1] for each in silent} == SILENT.keys(), "explained, and gone"


def says(row: Row, file: Path) -> bool:
    """Whether a row says that something of this file's partition could not be read."""
    if not (row.get("error") or row.get("missing")):
        return False
    named = parse_folder_name(file.name if file.is_dir() else file.parent.name)
    return named is None or row.get("topic") is None or (row["topic"], row["partition"]) == named[:2]


DECIDING = ("verdict", "outcome", "action", "reason", "missing", "remedy", "cause")


@pytest.fixture(scope="module")
def sample() -> IncidentSample:
    return samples.load("late-message")


@pytest.fixture(scope="module")
def plain(sample: IncidentSample) -> Row:
    return finding_of(sample.log_dir(), sample)


def finding_of(files: LogDir, sample: IncidentSample) -> Row:
    rows = files.finding_rows(topics=[sample.topic])
    (row,) = [row for row in rows if row["start_offset"] == sample.expected["start_offset"]]
    return row


@pytest.fixture
def log(sample: IncidentSample, plain: Row, tmp_path: Path) -> Path:
    """Lines of the time of the open batch, in Berlin's time: about it, about another id, and about nothing."""
    time = f"{plain['opened_at'] + dt.timedelta(hours=1):%Y-%m-%d %H:%M:%S,123}"
    lines = [
        f"[UnifiedLog partition={sample.topic}-{sample.partition}, dir=/data] Truncating to offset 5",
        f"Completed rollback of ongoing transaction for transactionalId {plain['transactional_id']} due to timeout",
        "Completed rollback of ongoing transaction for transactionalId another-id due to timeout",
        "[GroupCoordinator 1]: Stabilized group g",
    ]
    path = tmp_path / "logs" / "server.log"
    path.parent.mkdir()
    path.write_text("".join(f"[{time}] INFO {line} (kafka.X)\n" for line in lines))
    return path


def with_log(sample: IncidentSample, *paths: Path, zone: str = "Europe/Berlin") -> LogDir:
    directory = sample.log_dir().paths[0]
    return LogDir(directory, consistent_copy=True, broker_logs=BrokerLogs(*paths, time_zone=zone))


def test_lines_are_rows_beside_those_of_the_metadata_log(sample: IncidentSample, log: Path, plain: Row) -> None:
    files = with_log(sample, log.parent)
    rows = files.cluster_event_rows()
    CLUSTER_EVENTS.arrow(rows)
    found = [row for row in rows if row["source"] == FROM_BROKER_LOG]
    assert [row["event"] for row in found] == ["log_truncated", "transaction_timed_out", "transaction_timed_out"]
    assert {row["timestamp"].replace(microsecond=0) for row in found} == {plain["opened_at"].replace(microsecond=0)}
    assert {row["broker_id"] for row in found} == {1}
    assert len(rows) - len(found) == len(sample.log_dir().cluster_event_rows())
    of_topic = files.cluster_event_rows(topics=[sample.topic], partitions=[sample.partition])
    assert [row["event"] for row in of_topic if row["source"] == FROM_BROKER_LOG] == [row["event"] for row in found]


def test_lines_are_evidence_and_decide_nothing(sample: IncidentSample, log: Path, plain: Row) -> None:
    row = finding_of(with_log(sample, log), sample)
    assert {name: row[name] for name in DECIDING} == {name: plain[name] for name in DECIDING}
    lines = [entry["name"] for entry in row["evidence"] if entry["source"] == FROM_BROKER_LOG]
    assert lines == ["log_truncated", "transaction_timed_out"]
    of_the_day_before = finding_of(with_log(sample, log, zone="+14:00"), sample)
    assert not [entry for entry in of_the_day_before["evidence"] if entry["name"] == "log_truncated"]


def test_what_cannot_be_read_is_a_row_and_evidence(sample: IncidentSample, log: Path) -> None:
    torn = log.with_name("controller.log.gz")
    torn.write_bytes(gzip.compress(log.read_bytes())[:-20])
    files = with_log(sample, log.parent)
    (error,) = [row["error"] for row in files.cluster_event_rows() if row["error"]]
    assert error.startswith("UNREADABLE: ")
    unread = [entry for entry in finding_of(files, sample)["evidence"] if entry["name"] == "unread"]
    assert [entry["value"] for entry in unread] == [error]


def test_a_log_that_does_not_exist_is_an_error(sample: IncidentSample, tmp_path: Path) -> None:
    for path in (tmp_path / "gone.log", tmp_path):
        with pytest.raises(NotFound):
            with_log(sample, path)
    with pytest.raises(UsageError, match="is not a time zone"):
        with_log(sample, zone="Nowhere")
    with pytest.raises(UsageError, match="No files are named"):
        LogDir()


def test_brokers_logs_alone_have_their_events(log: Path) -> None:
    assert len(LogDir(broker_logs=BrokerLogs(log)).cluster_event_rows()) == 3
    done = run("scan", "--table", "cluster_events", "--broker-log", str(log), "--format", "json")
    assert len(json.loads(done.stdout)["rows"]) == 3
    with pytest.raises(UsageError, match="Brokers' logs alone have no table findings"):
        LogDir(broker_logs=BrokerLogs(log)).findings()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_the_options_of_the_commands(sample: IncidentSample, log: Path) -> None:
    """That they reach the files is in test_cli_flags."""
    directory = str(sample.log_dir().paths[0])
    options = ("--broker-log", str(log.parent), "--broker-log-time-zone", "Europe/Berlin", "--format", "json")
    for arguments, sentence in (
        (("scan", directory, "--table", "batches", *options), "takes no --broker-log"),
        (("diagnose", "--bootstrap-server", "127.0.0.1:1", *options), "Add --log-dir"),
        (("scan", directory, "--table", "cluster_events", "--broker-log", directory), "has no broker's log"),
        (("scan", "--table", "cluster_events"), "No files are named"),
    ):
        done = run(*arguments)
        assert done.exit_code in {2, 4}, "invalid, or not there"
        assert sentence in " ".join(done.stderr.replace("│", " ").split())
