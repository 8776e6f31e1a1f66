"""Could not look is never nothing found: files of a real broker, of which some partitions were not copied."""

import json
import shutil
from pathlib import Path

import pytest

from tests.process import Process, run
from toolkit import LogDir
from toolkit.lab.samples import load

POSITION = "Timeout of 8000ms expired before the position for partition orders-0 could be determined"


@pytest.fixture(scope="module")
def data_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data partition, without the topics of the coordinators."""
    return copied(tmp_path_factory.mktemp("data"), "orders-*")


@pytest.fixture(scope="module")
def coordinators_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("coordinators"), "__*")


def copied(folder: Path, pattern: str) -> Path:
    log_dir = load("late-message").path / "log-dir"
    for each in log_dir.iterdir():
        if each.is_file():
            shutil.copy2(each, folder)
        elif each.match(pattern):
            shutil.copytree(each, folder / each.name)
    return folder


def of(files: Path, *arguments: str) -> Process:
    return run(*arguments, "--log-dir", str(files))


def test_a_history_without_the_partition_of_its_id(data_only: Path) -> None:
    history = of(data_only, "history", "--transactional-id", "payments-7")
    assert history.returncode == 3
    assert "its partition __transaction_state-N is not among the files" in " ".join(history.stdout.split())
    with LogDir(data_only) as files:
        (row,) = files.transaction_history_rows(transactional_ids=["payments-7"])
    assert row["error"] == "UNKNOWN_TOPIC_OR_PARTITION: its partition __transaction_state-N is not among the files"
    scan = run("scan", "--table", "transaction_history", "--transactional-id", "payments-7", str(data_only))
    assert (scan.returncode, "no transaction history" in scan.stdout) == (3, False)
    assert "has no record" not in history.stderr
    whole = of(load("late-message").path / "log-dir", "history", "--transactional-id", "payments-7")
    assert (whole.returncode, "has no record of 'payments-7'" in whole.stderr) == (2, True)


def test_a_lag_without_the_log_or_without_the_offsets(data_only: Path, coordinators_only: Path) -> None:
    lag = of(coordinators_only, "lag", "--group", "billing", "--format", "json")
    (row,) = json.loads(lag.stdout)
    assert (row["topic"], row["committed_offset"], row["lag"]) == ("orders", 12, None)
    assert "its log is not among the files" in row["error"]
    assert lag.returncode == 3
    (of_all,) = json.loads(of(coordinators_only, "lag", "--format", "json").stdout)
    assert (of_all["group_id"], of_all["committed_offset"]) == ("billing", 12)
    without = of(data_only, "lag", "--group", "billing")
    assert (without.returncode, "__consumer_offsets is not among them" in without.stderr) == (2, True)


def test_groups_without_the_offsets_topic_are_not_checked(data_only: Path) -> None:
    explained = of(data_only, "explain", POSITION)
    assert explained.returncode == 3
    assert "not checked: Groups that commit offsets of orders-0: These files contain no" in explained.stdout
    assert "; not everything was checked" in explained.stdout
    whole = of(load("late-message").path / "log-dir", "explain", POSITION, "--consistent-copy")
    assert "not checked" not in whole.stdout
    assert "group billing, orders-0: lag 25" in whole.stdout
