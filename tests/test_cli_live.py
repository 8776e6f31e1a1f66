"""The command on a real broker: Kafka's own answers, errors, and the lab itself."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, on, run, started
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema import COORDINATORS, PARTITIONS, PRODUCERS, TRANSACTIONS
from toolkit.views.findings_text import LINKED_FINDINGS

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def hanging(kafka: Kafka) -> Iterator[StagedIncident]:
    """Partition 0 of a topic hangs, and its partition 1 has a healthy transaction."""
    staged = INCIDENTS["busy_elsewhere"](kafka)
    yield staged
    staged.close()


def test_diagnose_shows_owner_reason_and_remedy(kafka: Kafka, hanging: StagedIncident) -> None:
    done = on(kafka, "diagnose", "--topic", hanging.topic, "--recheck-after", "0")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{hanging.topic}-0  LSO {hanging.start_offset} held")
    assert [line[2:11].strip() for line in lines[1:6]] == ["hanging", "why", "outcome", "cause", "remedy"]
    assert f"--topic {hanging.topic} --partition 0 --start-offset {hanging.start_offset}" in lines[5]
    printed = lines[5].removeprefix("  remedy").strip().removeprefix("On this partition only: ")
    dry_run = run(*shlex.split(printed)[1:], "--recheck-after", "0")
    assert (dry_run.returncode, "Dry run: nothing was changed." in dry_run.stdout) == (0, True), "as it was printed"
    assert any(line.startswith(f"{hanging.topic}-1  ongoing") for line in lines)
    assert lines[-1] == "1 partition hangs, 1 open transaction is healthy"


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        ("find-hanging --recheck-after 0", LINKED_FINDINGS.names),
        ("diagnose --recheck-after 0", LINKED_FINDINGS.names),
        ("describe-producers", PRODUCERS.names),
        ("partitions", PARTITIONS.names),
    ],
)
def test_json_and_csv_contain_only_the_table(
    kafka: Kafka, hanging: StagedIncident, command: str, columns: list[str]
) -> None:
    parsed = json.loads(on(kafka, *command.split(), "--topic", hanging.topic, "--format", "json").stdout)
    assert parsed
    assert all(list(row) == columns for row in parsed)
    assert on(kafka, *command.split(), "--topic", hanging.topic, "--format", "csv").stdout.startswith(",".join(columns))


def test_list_describe_and_coordinator_agree(kafka: Kafka, hanging: StagedIncident) -> None:
    done = on(kafka, "list", "--state", "Ongoing", "--transactional-id-pattern", "busy_elsewhere.*",
              "--format", "json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    [listed] = json.loads(done.stdout)
    assert list(listed) == TRANSACTIONS.names
    name = listed["transactional_id"]
    [described] = json.loads(on(kafka, "describe", "--transactional-id", name, "--format", "json").stdout)
    assert described["producer_id"] == listed["producer_id"]
    assert described["topic_partitions"] == [{"topic": hanging.topic, "partition": 1}]
    done = on(kafka, "coordinator", "--transactional-id", name, "--group", "g", "--format", "json")
    rows = json.loads(done.stdout)
    assert [list(row) for row in rows] == [COORDINATORS.names] * 2
    assert {row["agrees"] for row in rows if row["key"] == name} == {True}
    assert on(kafka, "list", "--producer-id", str(listed["producer_id"])).stdout.count("Ongoing") == 1


def test_options_may_precede_the_command_as_in_kafkas_tool(kafka: Kafka, hanging: StagedIncident) -> None:
    done = run(
        "--bootstrap-server", kafka.bootstrap_servers, "partitions", "--topic", hanging.topic, "--partition", "0"
    )
    assert done.returncode == 0, done.stderr
    assert hanging.topic in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["diagnose", "--topic", "no-such-topic"], "no-such-topic"),
        (["partitions", "--topic", "no-such-topic"], "no-such-topic"),
        (["describe-producers", "--topic", "no-such-topic"], "no-such-topic"),
        (["describe-producers", "--broker-id", "99"], "99"),
        (["find-hanging", "--broker-id", "99"], "99"),
        (["describe", "--transactional-id", "no-such-id"], "no-such-id"),
    ],
)
def test_a_missing_topic_is_an_error_sentence(
    kafka: Kafka, hanging: StagedIncident, arguments: list[str], named: str
) -> None:
    done = on(kafka, *arguments, "--timeout", "10")
    assert done.returncode == 2, done.stdout
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_abort_is_a_dry_run_unless_confirmed_by_name(kafka: Kafka) -> None:
    staged = INCIDENTS["never_added"](kafka)
    start = str(staged.start_offset)
    where = ("--topic", staged.topic, "--partition", "0", "--start-offset", start, "--recheck-after", "0.5")
    target = f"{staged.topic}-0@{start}"
    dry = on(kafka, "abort", *where)
    assert dry.returncode == 0, dry.stderr
    assert "Dry run: nothing was changed." in dry.stdout
    assert f"--confirm {target}" in dry.stdout
    wrong = on(kafka, "abort", *where, "--confirm", "orders-0@1")
    assert wrong.returncode == 5
    assert "Nothing was written." in wrong.stderr
    assert on(kafka, "find-hanging", "--topic", staged.topic, "--recheck-after", "0").returncode == 1
    done = on(kafka, "abort", *where, "--confirm", target)
    assert done.returncode == 0, done.stderr
    assert (
        f"{staged.topic}-0: the LSO moved from {start} to {staged.start_offset + 2}, and nothing else is open on it."
        in done.stdout
    )
    assert on(kafka, "find-hanging", "--topic", staged.topic, "--recheck-after", "0").returncode == 0
    gone = on(kafka, "abort", *where, "--confirm", target)
    assert gone.returncode == 2
    assert f"no open transaction that starts at offset {start}" in gone.stderr


def test_abort_refuses_a_live_transaction(kafka: Kafka) -> None:
    with INCIDENTS["open_young"](kafka) as staged:
        start = str(staged.start_offset)
        done = on(kafka, "abort", "--topic", staged.topic, "--partition", "0", "--start-offset", start,
                  "--recheck-after", "0", "--confirm", f"{staged.topic}-0@{start}")  # fmt: skip
    assert done.returncode == 5
    assert "is ongoing" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_prints_no_traceback(kafka: Kafka, hanging: StagedIncident) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    arguments = ["partitions", "--bootstrap-server", kafka.bootstrap_servers]
    command = [*COMMAND, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


def test_ctrl_c_prints_no_traceback(kafka: Kafka) -> None:
    arguments = ["diagnose", "--bootstrap-server", kafka.bootstrap_servers, "--recheck-after", "60"]
    with started([*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for_connection(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_no_command_imports_pandas_nor_numpy_unless_it_reads_a_log(kafka: Kafka, hanging: StagedIncident) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print({'pandas', 'pyspark', 'plotly', 'numpy'} & set(sys.modules), file=sys.stderr))\n"
        "from toolkit.cli import main; main()"
    )
    # What other tests left on this broker may have its coordinator's log read.
    only = ["--recheck-after", "0", "--topic", hanging.topic]
    reads_log = ["diagnose", *only]
    reads_none = ["find-hanging", *only, "--no-log-evidence"]  # it once asked what files prove
    for arguments in (reads_log, reads_none, ["list"], ["partitions"], ["describe-producers"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments, "--bootstrap-server", kafka.bootstrap_servers],
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.stderr == ("{'numpy'}\n" if arguments == reads_log else "set()\n")


def test_a_wrong_password_is_an_error_without_the_password(tmp_path: Path) -> None:
    with Kafka("4.3.1", users={"ann": "right-one"}, super_users=["ann"]) as kafka:
        config = tmp_path / "client.properties"
        lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]
        login = 'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" '
        config.write_text("\n".join([*lines, login + 'password="wrong-one";']))
        done = on(kafka, "diagnose", "--command-config", str(config), "--timeout", "10")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "wrong-one" not in done.stderr
        config.write_text(config.read_text().replace("wrong-one", "right-one"))
        done = on(kafka, "diagnose", "--command-config", str(config), "--recheck-after", "0")
        assert done.returncode == 0, done.stderr


def test_lab_runs_until_ctrl_c() -> None:
    command = [*COMMAND, "lab"]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ready = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert ready.startswith("Kafka 4.3.1 with 1 broker is ready at 127.0.0.1:")
    assert process.returncode == 0, err


def test_the_demo_succeeds() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All went as it should" in done.stdout


def wait_for_connection(pid: int) -> None:
    """Wait until a process has a socket open: it talks to its broker."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
        if any(link.startswith("socket:") for link in links):
            return
        time.sleep(0.05)
    raise AssertionError("never connected")
