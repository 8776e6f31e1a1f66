"""Tests never write to the user's own audit file, and `complete` does not wait."""

from pathlib import Path

import pytest

from toolkit.actions.audit import AUDIT_FILE, Audit


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """The audit trail of the test, in its temporary folder."""
    monkeypatch.setenv(AUDIT_FILE, str(tmp_path / "audit" / "trail.jsonl"))
    return Audit()


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """`complete` writes its marker as soon as it may."""
    monkeypatch.setattr("toolkit.actions.marker_actions.Complete.after_plan_s", 0)
