"""The linters pass: the same that pre-commit runs, here so that one command checks everything."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


MYPY = pytest.param("mypy", marks=[pytest.mark.full, pytest.mark.xdist_group("mypy")])


@pytest.mark.parametrize("linter", ["ruff check", "ruff format --check", MYPY])
def test_the_linters_pass(linter: str) -> None:
    command = [sys.executable, "-m", *linter.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_are_small() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "toolkit").rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 900} == {}
