"""Delta tables, where Delta Lake fits this Spark and its jars can be had: in a process of its own, which has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.errors import UsageError
from toolkit.spark.delta import delta_settings

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
NOT_THERE = ("unresolved dependency", "Server access error", "UNRESOLVED DEPENDENCIES", "UnknownHostException")


def delta(mode: str, *arguments: str) -> dict[str, list[int]]:
    """What `tests.spark.delta_rows` counted; skips where there is no Delta Lake for this Spark."""
    try:
        delta_settings()
    except UsageError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "tests.spark.delta_rows", mode, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1100)
    if done.returncode and any(text in done.stderr for text in NOT_THERE):
        pytest.skip("The jars of Delta Lake cannot be had here.")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("mode", ["classic", "connect"])
def test_runs_add_up_and_leave_what_they_should(history: Path, tmp_path: Path, mode: str) -> None:
    found = delta(mode, str(history), str(tmp_path))
    assert found.pop("same") == [1]
    assert found, "no tables"
    for table, (several, single) in found.items():
        assert several == single, table
