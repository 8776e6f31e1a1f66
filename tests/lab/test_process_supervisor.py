"""No process of the supervisor survives its Python process, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import started
from toolkit.lab.clients import until
from toolkit.lab.process_supervisor import ProcessSupervisor

SLEEPER_PROGRAM = """
import os, signal, sys
from pathlib import Path
from toolkit.lab.process_supervisor import ProcessSupervisor

directory = Path(sys.argv[1])
supervisor = ProcessSupervisor(directory)
sleeper = supervisor.start(["sleep", "600"], log=directory / "log")
print(sleeper.pid, flush=True)
"""


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, timeout=60).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.parametrize(
    "exit_statement",
    [
        "supervisor.stop()",
        "sys.exit(3)",
        "raise RuntimeError",
        "os._exit(0)",
        "os.kill(os.getpid(), signal.SIGINT); signal.pause()",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.killpg(0, signal.SIGTERM); signal.pause()",
        "os.fork() or signal.pause(); supervisor.stop()",
        "os.fork() or signal.pause(); os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_all_processes_end_with_the_parent(tmp_path: Path, exit_statement: str) -> None:
    directory = tmp_path / "lab"
    directory.mkdir()
    with started(
        [sys.executable, "-c", SLEEPER_PROGRAM + exit_statement, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        assert parent.stdout
        sleeper = int(parent.stdout.readline())
        parent.wait(timeout=60)
        until(lambda: not directory.exists() or None, awaited="the directory to be gone")
        until(lambda: not is_running(sleeper) or None, awaited="the end of the process")
        if "fork" in exit_statement:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.parametrize("is_helper_killed", [False, True])
def test_stop_returns_when_processes_and_directory_are_gone(is_helper_killed: bool, tmp_path: Path) -> None:
    directory = tmp_path / "lab"
    directory.mkdir()
    supervisor = ProcessSupervisor(directory)
    sleeper = supervisor.start(["sleep", "600"], log=directory / "log")
    if is_helper_killed:
        supervisor._helper.kill()
        supervisor._helper.wait(60)
    supervisor.stop()
    assert sleeper.returncode == -signal.SIGKILL
    assert not directory.exists()


def test_output_is_written_to_the_log(tmp_path: Path) -> None:
    directory = tmp_path / "lab"
    directory.mkdir()
    supervisor = ProcessSupervisor(directory)
    supervisor.start(["sh", "-c", "echo out; echo err >&2"], log=directory / "log").wait(60)
    assert (directory / "log").read_text() == "out\nerr\n"
    supervisor.stop()
