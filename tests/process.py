"""The command as a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from toolkit.lab import Kafka

__all__ = ["COMMAND", "ROOT", "Process", "on", "run"]

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-c", "from toolkit.cli import main; main()"]
Process = subprocess.CompletedProcess[str]


def run(*arguments: str, **options: Any) -> Process:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, **options)


def on(kafka: Kafka, *arguments: str) -> Process:
    return run(*arguments, "--bootstrap-server", kafka.bootstrap_servers)
