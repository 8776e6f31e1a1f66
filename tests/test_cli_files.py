"""The commands that read files, as processes, on the log directory of a real broker."""

import csv
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from tests import process
from tests.sources.log_files import wait_for_checkpoint
from tests.unprivileged import unprivileged
from toolkit import Cluster, connect
from toolkit.cli.commands import app
from toolkit.cli.file_commands import TABLE_NAMES
from toolkit.formats.coordinator.transaction_log_records import coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.staging import StagedIncident
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, STATISTICS, TABLES
from toolkit.views.findings_text import LINKED_FINDINGS

pytestmark = pytest.mark.lab


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def hanging(kafka: Kafka) -> StagedIncident:
    return INCIDENTS["late_message"](kafka)


@pytest.fixture(scope="module")
def folder(kafka: Kafka, hanging: StagedIncident, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what the broker has, taken while it runs; one healthy transaction is open in it."""
    with INCIDENTS["open_young"](kafka), Cluster(kafka.bootstrap_servers) as cluster:
        wait_for_checkpoint(cluster, kafka.log_dirs[1], hanging.topic)  # the LSO of files depends on it
        yield Path(shutil.copytree(kafka.log_dirs[1], tmp_path_factory.mktemp("copied") / "data"))


@pytest.fixture
def partition(folder: Path, hanging: StagedIncident) -> Path:
    return folder / f"{hanging.topic}-{hanging.partition}"


def test_hanging_from_files_needs_consistent_copy(folder: Path, hanging: StagedIncident) -> None:
    unsure = run("diagnose", "--log-dir", str(folder), "--topic", hanging.topic, "--format", "json")
    sure = run("diagnose", "--log-dir", str(folder), "--consistent-copy", "--topic", hanging.topic, "--format", "json")
    assert (unsure.exit_code, sure.exit_code) == (3, 1)
    rows = [next(row for row in json.loads(done.stdout) if row["producer_id"]) for done in (unsure, sure)]
    assert [row["verdict"] for row in rows] == ["unknown", "hanging"]
    assert [list(row) for row in rows] == [LINKED_FINDINGS.names] * 2
    assert rows[1]["start_offset"] == hanging.start_offset
    output = run("find-hanging", "--log-dir", str(folder), "--consistent-copy").stdout
    assert f"kafka-txn abort --topic {hanging.topic}" in output
    assert "ongoing" not in output.splitlines()[0]


def test_the_number_of_coordinator_partitions_of_a_copy_is_an_option(tmp_path: Path) -> None:
    incident = INCIDENTS["late_message"]
    properties = {**incident.properties, "transaction.state.log.num.partitions": "3"}
    with Kafka("4.3.1", properties=properties) as kafka:
        staged = incident(kafka)
        copied = str(shutil.copytree(kafka.log_dirs[1], tmp_path / "data"))
    arguments = ["diagnose", "--log-dir", copied, "--consistent-copy", "--topic", staged.topic]
    assert run(*arguments).exit_code == 1, "the metadata log is copied, too, and has the number"
    shutil.rmtree(Path(copied) / "__cluster_metadata-0")
    unsure = run(*arguments)
    assert unsure.exit_code == 3
    missing = " ".join(unsure.stdout.split())
    assert "if transaction.state.log.num.partitions is not 50, set txn_state_partitions" in missing
    assert run(*arguments, "--txn-state-partitions", "3").exit_code == 1
    assert run(*arguments, "--txn-state-partitions", "4").exit_code == 3
    line = ["--producer-id", str(staged.producer_id), "--producer-epoch", str(staged.producer_epoch)]
    abort = run("abort-command", copied, *line, "--consistent-copy", "--txn-state-partitions", "3")
    assert abort.exit_code == 0, abort.stderr
    assert abort.stdout.startswith("kafka-transactions.sh")
    with connect(copied, consistent_copy=True, txn_state_partitions=3) as connection:
        assert "hanging" in set(connection.source.findings(topics=staged.topic)["verdict"])
    owner = ["coordinator", "--log-dir", copied, "--transactional-id", "new-id", "--format", "json"]
    (row,) = json.loads(run(*owner, "--txn-state-partitions", "3").stdout)
    assert row["partition"] == coordinator_partition("new-id", 3)
    other = run("diagnose", "--txn-state-partitions", "3", "--bootstrap-server", "127.0.0.1:1")
    assert "--txn-state-partitions applies to files. Add --log-dir PATH." in other.stderr


def test_a_partition_alone_is_unknown(partition: Path) -> None:
    done = run("diagnose", "--log-dir", str(partition), "--consistent-copy")
    assert done.exit_code == 3
    assert "no partition of __transaction_state is among the files" in done.stdout


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_every_table_can_be_scanned_in_every_format(table: str, folder: Path, tmp_path: Path) -> None:
    names = TABLES[table].names
    arguments = ["scan", str(folder), "--table", table]
    printed = json.loads(run(*arguments, "--format", "json").stdout)
    assert all(list(row) == names for row in printed)
    written = {suffix: tmp_path / f"out.{suffix}" for suffix in ("parquet", "csv", "json")}
    for file in written.values():
        done = run(*arguments, "--output", str(file))
        assert done.exit_code == (3 if any(row.get("error") for row in printed) else 0), done.stderr
        assert f"{file}: {len(printed):,} rows of {table}" in done.stderr
    assert pq.read_schema(written["parquet"]).names == names
    assert pq.read_metadata(written["parquet"]).num_rows == len(printed)
    lines = list(csv.DictReader(written["csv"].read_text().splitlines()))
    assert len(lines) == len(json.loads(written["json"].read_text()))
    assert sorted(tmp_path.iterdir()) == sorted(written.values())
    assert run(*arguments).exit_code == done.exit_code


def test_only_selected_rows_are_printed(folder: Path, hanging: StagedIncident) -> None:
    arguments = ["scan", str(folder), "--topic", hanging.topic, "--format", "json", "--table"]
    mine = json.loads(run(*arguments, "batches", "--producer-id", str(hanging.producer_id), "--crc").stdout)
    assert {row["producer_id"] for row in mine} == {hanging.producer_id}
    assert all(row["crc_ok"] for row in mine)
    late = json.loads(run(*arguments, "batches", "--start", str(hanging.start_offset)).stdout)
    assert [row["base_offset"] for row in late] == [hanging.start_offset]
    before = json.loads(run(*arguments, "log_transactions", "--stop", "lso").stdout)
    assert {row["outcome"] for row in before} == {"commit", "abort"}
    events = run("scan", str(folder), "--table", "transaction_log", "--format", "json",
                 "--transactional-id", hanging.transactional_id)  # fmt: skip
    assert [row["state"] for row in json.loads(events.stdout)] == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort"]
    assert not json.loads(run(*arguments, "log_transactions", "--producer-epoch", "9").stdout)


def test_txn_stat_counts_and_names_open_transactions(partition: Path, hanging: StagedIncident) -> None:
    output = process.run("txn-stat", str(partition))
    assert output.returncode == 0
    assert output.stdout.splitlines()[0] == f"{partition.name} (broker 1)"
    assert f"producer {hanging.producer_id} epoch {hanging.producer_epoch} from offset {hanging.start_offset}" in (
        output.stdout
    )
    rows = json.loads(run("txn-stat", str(partition), "--format", "json").stdout)
    assert [list(row) for row in rows] == [STATISTICS.names] * len(rows)
    counts = {row["outcome"]: row["transactions"] for row in rows}
    assert counts == {"commit": 1, "abort": 1, "empty": 0, "open": 1, "undecided": 0}


def test_the_abort_line_is_a_comment_until_it_is_proven(folder: Path, hanging: StagedIncident) -> None:
    arguments = ["abort-command", str(folder), "--producer-id", str(hanging.producer_id), "--producer-epoch"]
    unsure = run(*arguments, str(hanging.producer_epoch))
    assert unsure.exit_code == 3
    assert unsure.stdout.startswith("# kafka-transactions.sh")
    assert "against  Not known: proof that" in unsure.stderr
    assert "kafka-transactions.sh" not in unsure.stderr, "nor is one for older brokers ready to be pasted"
    sure = run(*arguments, str(hanging.producer_epoch), "--consistent-copy", "--bootstrap-server", "b:9092")
    where = f"--topic {hanging.topic} --partition {hanging.partition} --start-offset {hanging.start_offset}"
    assert sure.stdout == f"kafka-transactions.sh --bootstrap-server b:9092 abort {where}\n"
    assert f"{hanging.topic}-0@{hanging.start_offset}  for" in sure.stderr
    assert "before Kafka 2.8" in sure.stderr
    other = run(*arguments, "7", "--consistent-copy")
    assert other.stdout.startswith("# ")
    assert f"Its epoch there is {hanging.producer_epoch}, not 7." in other.stderr
    assert run("abort-command", str(folder), "--producer-id", "424242", "--producer-epoch", "0").exit_code == 2


def test_nothing_is_written_to_the_log_directory(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = run("scan", str(folder), "--table", "batches", "--output", str(folder / "out.csv"))
    assert done.exit_code == 2
    assert "is never written to" in done.stderr
    for command in (["diagnose", "--log-dir"], ["txn-stat"], ["scan", "--table", "violations"]):
        run(*command, str(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["scan", "--table", "checkpoints", "--producer-id", "1"], "takes no --producer-id"),
        (["scan", "--table", "producers", "--start", "1"], "takes no --start"),
        (["scan", "--table", "log_transactions", "--crc"], "takes no --crc"),
        (
            ["scan", "--table", "log_transactions", "--topic", "no-such-topic"],
            "contain no partition of topic 'no-such-topic'",
        ),
        (["scan", "--table", "log_transactions", "--start", "yesterday"], "'yesterday' is not an offset"),
        (["scan", "--table", "log_transactions", "--output", "/tmp/out.xlsx"], "ends in none of .parquet, .csv, .json"),
        (["scan", "--table", "log_transactions", "--output", "/no/such/folder/out.csv"], "cannot be written"),
        (["scan", "--table", "tables"], "is not one of"),
        (["txn-stat", "--partition", "1"], "--partition is a number within a topic"),
    ],
)
def test_invalid_usage_is_a_sentence(arguments: list[str], sentence: str, folder: Path) -> None:
    done = run(*arguments, str(folder))
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_cluster_and_file_options_exclude_each_other(folder: Path) -> None:
    both = run("diagnose", "--log-dir", str(folder), "--bootstrap-server", "127.0.0.1:1")
    assert (both.exit_code, both.stdout) == (2, "")
    assert "Use one of them" in both.stderr
    assert "Add --log-dir" in run("diagnose", "--consistent-copy", "--bootstrap-server", "127.0.0.1:1").stderr


def test_other_files_are_named_as_such(folder: Path, tmp_path: Path) -> None:
    packed, empty, closed = tmp_path / "log.gz", tmp_path / "00000000000000000000.log", tmp_path / "closed.log"
    packed.write_bytes(gzip.compress(b"packed" * 100))
    empty.touch()
    closed.touch(mode=0)
    for path in (packed, tmp_path / "gone", tmp_path):
        done = run("scan", str(path), "--table", "batches", "--format", "json")
        assert "Traceback" not in done.stderr, done.stderr
        assert done.exit_code == 2 or json.loads(done.stdout or "[]") is not None
    assert json.loads(run("scan", str(empty), "--table", "batches", "--format", "json").stdout) == []
    with unprivileged():
        assert run("scan", str(closed), "--table", "batches").exit_code == 2


def test_damage_is_a_row_and_an_exit_code(partition: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(partition, tmp_path / partition.name))
    [log] = copy.glob("*.log")
    log.write_bytes(log.read_bytes()[:-3])
    done = run("scan", str(copy), "--table", "batches", "--format", "json")
    *sound, torn = json.loads(done.stdout)
    assert done.exit_code == 3
    assert torn["error"].startswith("TORN_TAIL: ")
    assert (torn["position"], torn["size"]) == (sound[-1]["position"] + sound[-1]["size"], 92)
    assert run("txn-stat", str(copy)).exit_code == 3
    assert list(sound[0]) == BATCHES.names
    assert LOG_TRANSACTIONS.names == list(
        json.loads(run("scan", str(copy), "--table", "log_transactions", "--format", "json").stdout)[0]
    )


def test_the_history_of_an_id_is_the_same_from_cluster_and_files(
    kafka: Kafka, folder: Path, hanging: StagedIncident
) -> None:
    arguments = ["history", "--transactional-id", hanging.transactional_id, "--format", "json"]
    live = json.loads(run(*arguments, "--bootstrap-server", kafka.bootstrap_servers).stdout)
    copied = json.loads(run(*arguments, "--log-dir", str(folder)).stdout)
    assert [(row["kind"], row["ended"]) for row in copied] == [("init", None), ("transaction", "abort")]
    assert [{**row, "broker_id": None} for row in live] == [{**row, "broker_id": None} for row in copied]
    assert "Its client aborted it" in run(*arguments[:-2], "--log-dir", str(folder)).stdout
    unknown = run("history", "--transactional-id", "no-such-id", "--log-dir", str(folder))
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    coordinator = run("coordinator", *arguments[1:], "--log-dir", str(folder))
    [by_hash] = json.loads(coordinator.stdout)
    assert by_hash["partition"] == copied[0]["txn_state_partition"]
