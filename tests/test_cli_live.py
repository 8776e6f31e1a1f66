"""The command as a process on a real broker: pipes, signals, imports, a login, the lab; answers are in tests/corpus."""

import os
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

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def hanging(kafka: Kafka) -> Iterator[StagedIncident]:
    """Partition 0 of a topic hangs, and its partition 1 has a healthy transaction."""
    staged = INCIDENTS["busy_elsewhere"](kafka)
    yield staged
    staged.close()


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
