"""The audit trail survives killed processes, full disks and torn lines."""

import datetime as dt
import getpass
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.actions.audit import AUDIT_FILE, Audit
from toolkit.errors import ActionFailed, ActionRefused, AuditFailed
from toolkit.schema import ACTIONS
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.recorded import ActionStep
from toolkit.views.panel.layout import problem_section

ABORT_ACTION = ActionStep(action="abort", bootstrap_servers="localhost:9092", target="orders-0@7")
CHANGED = json.dumps({**ABORT_ACTION.row(), "at": "2026-11-21T12:00:00Z", "target": 7})
KILLED_SCRIPT = """
import os, signal
from tests.actions.test_audit import ABORT_ACTION, Audit, replace
with Audit().recording(replace(ABORT_ACTION, verdict="hanging")):
    os.kill(os.getpid(), signal.SIGKILL)
"""
WRITING_SCRIPT = """
from tests.actions.test_audit import ABORT_ACTION, Audit
for _ in range(50):
    with Audit().recording(ABORT_ACTION) as outcome:
        outcome.response = "NONE" * 2000
"""


def test_an_action_writes_an_intent_and_an_outcome(audit: Audit) -> None:
    with audit.recording(replace(ABORT_ACTION, last_stable_offset_before=7)) as outcome:
        assert [row["step"] for row in audit.rows()] == ["intent"]
        outcome.last_stable_offset_after = 9
    intent, final = audit.rows()
    assert intent["action_id"] == final["action_id"]
    assert "null" not in audit.path.read_text(), "a line has only what is known"
    assert (final["step"], final["last_stable_offset_before"], final["last_stable_offset_after"]) == ("outcome", 7, 9)
    assert "@" in final["who"]
    assert audit.unfinished() == []
    assert list(audit.frame()["step"]) == ["intent", "outcome"]
    assert list(audit.frame().columns) == ACTIONS.names


def test_only_the_owner_can_read_the_file(audit: Audit) -> None:
    with audit.recording(ABORT_ACTION):
        pass
    assert audit.path.stat().st_mode & 0o777 == 0o600
    assert audit.path.parent.stat().st_mode & 0o777 == 0o700


def test_the_trail_is_in_the_users_state_directory_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AUDIT_FILE)
    assert Audit().path.parts[-2:] == ("kafka-txn", "audit.jsonl")
    deep = Audit(tmp_path / "not" / "yet" / "trail.jsonl")
    with deep.recording(ABORT_ACTION):
        pass
    assert len(deep.rows()) == 2, "its folders are created"


def test_of_two_at_once_the_second_waits_until_the_first_is_done(audit: Audit) -> None:
    def waits() -> None:
        raise ActionRefused("The action was cancelled.", do="")

    audit.path.parent.mkdir()
    with (
        audit.exclusive(waits),
        pytest.raises(ActionRefused, match="was cancelled"),
        Audit(audit.path).exclusive(waits),
    ):
        pytest.fail("the second did not wait")
    with audit.exclusive(waits):
        lock = audit.path.with_name("trail.jsonl.lock")
        assert lock.stat().st_mode & 0o777 == 0o600


def test_a_missing_file_has_no_rows(audit: Audit) -> None:
    assert audit.rows() == []
    assert audit.unfinished() == []
    assert not audit.path.exists()


def test_a_killed_process_leaves_an_intent_without_outcome(audit: Audit) -> None:
    completed = subprocess.run([sys.executable, "-c", KILLED_SCRIPT], check=False, timeout=60)
    assert completed.returncode == -9
    (intent,) = audit.unfinished()
    assert (intent["target"], intent["verdict"], intent["step"]) == ("orders-0@7", "hanging", "intent")


def test_a_failure_is_written_as_the_outcome(audit: Audit) -> None:
    with pytest.raises(RuntimeError, match="lost"), audit.recording(ABORT_ACTION):
        raise RuntimeError("the connection was lost")
    with pytest.raises(KeyboardInterrupt), audit.recording(ABORT_ACTION):
        raise KeyboardInterrupt
    errors = [row["error"] for row in audit.rows() if row["step"] == "outcome"]
    assert errors == ["RuntimeError: the connection was lost", "KeyboardInterrupt: interrupted"]
    assert audit.unfinished() == []


def test_two_processes_write_whole_lines(audit: Audit) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITING_SCRIPT]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    rows = audit.rows()
    assert len(rows) == 200
    assert {row["step"] for row in rows} == {"intent", "outcome"}
    assert audit.unfinished() == []


def test_a_torn_line_is_reported_and_the_next_line_is_read(audit: Audit) -> None:
    with audit.recording(ABORT_ACTION):
        pass
    whole = audit.path.read_bytes()
    audit.path.write_bytes(whole[:-9])
    with audit.recording(ABORT_ACTION):
        pass
    steps = [(row["step"], row["error"]) for row in audit.rows()]
    torn = ("unreadable", "TORN_LINE: line 2 is cut off, or was changed.")
    assert steps == [("intent", None), torn, ("intent", None), ("outcome", None)]
    assert len(audit.unfinished()) == 1  # the lost outcome is reported, not assumed
    assert len(audit.frame()) == 4


@pytest.mark.parametrize(
    "line", ["[]", "null", '{"at": "yesterday"}', '{"at": "2026-11-21T12:00:00Z"}', "\x00", CHANGED]
)
def test_an_invalid_line_is_reported(audit: Audit, line: str) -> None:
    audit.path.parent.mkdir()
    audit.path.write_text(f"{line}\n")
    (row,) = audit.rows()
    assert row["step"] == "unreadable"
    assert len(audit.frame()) == 1


def test_a_refusal_is_written_and_never_raises(audit: Audit, tmp_path: Path) -> None:
    audit.refused(ActionRefused("It is ongoing.", do=""), ABORT_ACTION)
    (row,) = audit.rows()
    assert (row["step"], row["error"]) == ("refused", "ActionRefused: It is ongoing.")
    assert audit.unfinished() == []
    Audit(tmp_path).refused(ActionRefused("It is ongoing.", do=""), ABORT_ACTION)


@pytest.mark.parametrize("path", [".", "/dev/full", "/proc/none/audit.jsonl", "a-file/audit.jsonl"])
def test_an_unwritable_file_stops_the_action(tmp_path: Path, path: str) -> None:
    (tmp_path / "a-file").touch()
    with (
        pytest.raises(ActionRefused, match=r"cannot be written: .*Nothing was sent.*--audit-file"),
        Audit(tmp_path / path).recording(ABORT_ACTION),
    ):
        pytest.fail("the action was not stopped")


def test_an_unwritable_file_stops_the_command_before_its_plan(audit: Audit, tmp_path: Path) -> None:
    audit.check()
    with pytest.raises(ActionRefused, match=r"cannot be written: .*Nothing was sent.*--audit-file"):
        Audit(tmp_path).check()


@pytest.mark.parametrize(
    ("failure", "effect", "said"),
    [
        (None, "written", "It was done"),
        (ActionFailed("no response", effect="uncertain", do=""), "uncertain", "It failed: ActionFailed: no response"),
        (ActionFailed("denied", effect="nothing", do=""), "nothing", "It failed: ActionFailed: denied"),
        (ActionRefused("changed", do=""), "nothing", "It failed: ActionRefused: changed"),
        (KeyboardInterrupt(), "uncertain", "It failed: KeyboardInterrupt: interrupted"),
    ],
)
def test_a_full_disk_does_not_hide_what_the_action_did(
    audit: Audit, failure: BaseException | None, effect: str, said: str
) -> None:
    """The panel said `Done, but missing from the audit trail` of a marker that the broker had refused."""
    with pytest.raises(AuditFailed, match=said) as raised, audit.recording(ABORT_ACTION):  # noqa: PT012  the block is the test
        audit.path.rename(audit.path.with_suffix(".kept"))
        audit.path.symlink_to("/dev/full")
        if failure is not None:
            raise failure
    assert "No space left on device" in str(raised.value)
    assert raised.value.effect == effect
    head = "Done, but missing from the audit trail"
    assert (problem_section(raised.value).title == head) is (effect == "written")
    assert len(Audit(audit.path.with_suffix(".kept")).unfinished()) == 1


def test_a_line_that_does_not_fit_leaves_nothing(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk took a part of it, and every later listing of the trail had a torn line."""
    with audit.recording(ABORT_ACTION):
        pass
    before, write = audit.path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    with pytest.raises(ActionRefused, match="No space left on device"), audit.recording(ABORT_ACTION):
        pytest.fail("the action was not stopped")
    assert audit.path.read_bytes() == before


def test_an_intent_is_on_disk_before_the_action(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stops after the marker was written must not forget that it was to be."""
    synced, fsync = list[int](), os.fsync

    def noting(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", noting)
    with audit.recording(ABORT_ACTION):
        assert audit.path.stat().st_size in synced


def test_times_and_evidence_round_trip(audit: Audit) -> None:
    observed_at = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    entry = EvidenceEntry(source="Fetch", broker_id=1, observed_at=observed_at, name="note", value="text")
    with audit.recording(replace(ABORT_ACTION, evidence=(entry,))):
        pass
    assert audit.rows()[0]["evidence"] == [entry.row()]


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")])
def test_a_user_without_a_name_is_a_number(audit: Audit, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container; from Python 3.13 on it is an OSError."""

    def unknown_user() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown_user)
    with audit.recording(ABORT_ACTION):
        pass
    assert audit.rows()[0]["who"].startswith("uid ")
