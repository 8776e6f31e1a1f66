"""The command in this process, and as a process with a time limit."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from toolkit.cli.commands import app
from toolkit.lab import Kafka

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-c", "from toolkit.cli import main; main()"]
PATIENCE_S = 180  # for what takes a second, on a machine that does much else
Process = subprocess.CompletedProcess[str]

# A shell without job control starts background processes with SIGINT ignored, and their children inherit that.
_WITH_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)


def run(*arguments: object, stdin: str | bytes | None = None) -> Process:
    """A command in this process."""
    words = list(map(str, arguments))
    result = CliRunner().invoke(app, words, input=stdin)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Process(words, result.exit_code, result.stdout, result.stderr)


def on(kafka: Kafka, *arguments: object) -> Process:
    return run(*arguments, "--bootstrap-server", kafka.bootstrap_servers)


def spawn(*arguments: str, **options: Any) -> Process:
    """A command as a process of its own."""
    options = {"cwd": ROOT, "text": True, "timeout": PATIENCE_S, **options}
    if "stdout" not in options:
        options["capture_output"] = True
    return subprocess.run([*COMMAND, *arguments], **options)


def is_listening(address: str) -> bool:
    """Whether somebody accepts connections there."""
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that SIGINT reaches, even if this run ignores it; killed at the end if it still runs."""
    with subprocess.Popen([sys.executable, "-S", "-c", _WITH_SIGINT, *command], **options) as process:
        try:
            yield process
        finally:
            process.kill()
