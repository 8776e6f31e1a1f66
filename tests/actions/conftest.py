"""Tests never write to the user's own audit file."""

from pathlib import Path

import pytest

from toolkit.actions.audit import AUDIT_FILE, Audit


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """The audit trail of the test, in its temporary folder."""
    monkeypatch.setenv(AUDIT_FILE, str(tmp_path / "audit" / "trail.jsonl"))
    return Audit()
