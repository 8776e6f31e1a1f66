"""The command, or another program, as a process with a time limit."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit.lab import Kafka

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-c", "from toolkit.cli import main; main()"]
PATIENCE_S = 180  # for what takes a second, on a machine that does much else
Process = subprocess.CompletedProcess[str]

# A shell without job control starts background processes with SIGINT ignored, and their children inherit that.
_WITH_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)


def run(*arguments: str, **options: Any) -> Process:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, **options
    )


def on(kafka: Kafka, *arguments: str) -> Process:
    return run(*arguments, "--bootstrap-server", kafka.bootstrap_servers)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that SIGINT reaches, even if this run ignores it; killed at the end if it still runs."""
    with subprocess.Popen([sys.executable, "-S", "-c", _WITH_SIGINT, *command], **options) as process:
        try:
            yield process
        finally:
            process.kill()
