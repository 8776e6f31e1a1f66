"""No test writes to the audit file of whoever runs it."""

from pathlib import Path

import pytest

from toolkit.actions.audit import AUDIT_FILE, Audit


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """The audit trail that actions of this test write to."""
    monkeypatch.setenv(AUDIT_FILE, str(tmp_path / "audit" / "trail.jsonl"))
    return Audit()
