"""Texts that are stored beside the tests and compared: a change shows as a difference that a reviewer reads."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
WRITE = "KAFKA_TXN_TEST_WRITE"


def compare(name: str, lines: Iterable[str]) -> None:
    """Compare lines with those of a file in `GOLDEN`, or write them if the variable `WRITE` is set."""
    path, found = GOLDEN / name, list(lines)
    if WRITE in os.environ:
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    stored = path.read_text(encoding="utf-8").splitlines()
    changed = "\n".join(difflib.unified_diff(stored, found, "stored", "now", lineterm="", n=1))
    assert not changed, f"If it is meant, run the test with {WRITE}=1.\n{changed}"
