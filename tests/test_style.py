"""The linters pass: the same that pre-commit runs, here so that one command checks everything."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "linter",
    ["ruff check", "ruff format --check", "lint-imports", pytest.param("mypy", marks=pytest.mark.xdist_group("mypy"))],
)
def test_the_linters_pass(linter: str) -> None:
    name, *options = linter.split()
    command = [str(Path(sys.executable).with_name(name)), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stdout + done.stderr
