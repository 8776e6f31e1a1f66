"""The commands that change something, with a person at a terminal and without one."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, on, run, started
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.queries import until

pytestmark = pytest.mark.lab

CTRL_C, CTRL_D = "\x03", "\x04"


def at_terminal(kafka: Kafka, *arguments: str, typed: str) -> tuple[int, str]:
    """Run a command in a terminal, type a line at its prompt, and return its exit code and the output."""
    mine, its = pty.openpty()
    command = [*COMMAND, *arguments, "--bootstrap-server", kafka.bootstrap_servers]
    wide = {**os.environ, "COLUMNS": "300"}
    with started(command, cwd=ROOT, stdin=its, stdout=its, stderr=its, env=wide) as running:
        os.close(its)
        screen, interrupted, deadline = b"", False, time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, screen.decode()
            if not select.select([mine], [], [], 1)[0]:
                if interrupted:  # the first one may come between the prompt and the wait for a line
                    running.send_signal(signal.SIGINT)
                continue
            try:
                screen += os.read(mine, 4096)
            except OSError:  # the other end is closed
                break
            if b" to confirm; Enter" in screen and typed:
                if typed == CTRL_C:
                    interrupted = True
                    running.send_signal(signal.SIGINT)
                else:
                    os.write(mine, typed.encode())
                typed = ""
        os.close(mine)
        return running.wait(timeout=PATIENCE_S), " ".join(screen.decode().split())


def test_an_operator_types_the_name_to_confirm(kafka: Kafka, tmp_path: Path) -> None:
    staged = INCIDENTS["never_added"](kafka)
    audit = Audit(tmp_path / "audit.jsonl")
    where = ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]
    arguments = ["abort", *where, "--recheck-after", "0.2", "--audit-file", str(audit.path)]
    code, screen = at_terminal(kafka, *arguments, typed="\n")
    assert code == 0
    assert "Dry run: nothing was changed." in screen
    assert "its records, which are never read: 1" in screen
    assert f"bytes in the log) are saved first: {audit.path.with_name('audit.records')}/" in screen
    assert audit.rows() == []
    code, screen = at_terminal(kafka, *arguments, typed="yes\n")
    assert code == 5
    assert "does not name" in screen
    code, screen = at_terminal(kafka, *arguments, typed=f"{staged.topic}-0@{staged.start_offset}\n")
    assert code == 0
    assert f"Audit trail: {audit.path}." in screen
    assert [row["step"] for row in audit.rows()] == ["refused", "intent", "outcome"]


def test_ctrl_c_at_the_confirmation_sends_nothing_and_exits_with_130(kafka: Kafka, tmp_path: Path) -> None:
    """It said "Aborted.", which reads as if the transaction was, and exited with 1."""
    staged = INCIDENTS["never_added"](kafka)
    audit = Audit(tmp_path / "audit.jsonl")
    where = ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]
    abort = ["abort", *where, "--recheck-after", "0", "--audit-file", str(audit.path)]
    fence = ["fence", "--transactional-id", staged.transactional_id, "--audit-file", str(audit.path)]
    for arguments in (abort, fence):
        code, screen = at_terminal(kafka, *arguments, typed=CTRL_C)
        assert code == 130, screen
        assert "nothing was sent" in screen
        assert "Aborted" not in screen
    code, screen = at_terminal(kafka, *abort, typed=CTRL_D)
    assert code == 0, screen
    assert "nothing was sent" in screen
    assert audit.rows() == []
    assert on(kafka, "find-hanging", "--topic", staged.topic, "--recheck-after", "0").returncode == 1


def test_ctrl_c_while_it_checks_again_names_the_effect(kafka: Kafka, tmp_path: Path) -> None:
    """The records are saved by then; the copy goes, as nothing was discarded."""
    staged = INCIDENTS["never_added"](kafka)
    target = f"{staged.topic}-0@{staged.start_offset}"
    where = ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]
    sure = ["--confirm", target, "--audit-file", str(tmp_path / "audit.jsonl"), "--recheck-after", "4"]
    command = [*COMMAND, "abort", *where, *sure, "--bootstrap-server", kafka.bootstrap_servers]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        folder = tmp_path / "audit.records"

        def is_saved() -> bool | None:
            return any(path.read_bytes().endswith(b"PAR1") for path in folder.glob("*.parquet")) or None

        until(is_saved, awaited="the complete copy")
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, errors
    assert "Nothing was written." in errors
    assert not folder.exists()
    assert on(kafka, "find-hanging", "--topic", staged.topic, "--recheck-after", "0").returncode == 1


def test_a_confirmed_abort_or_complete_that_is_refused_is_audited(kafka: Kafka, tmp_path: Path) -> None:
    """As a refused fence is, whose plan is made all the same."""
    staged = INCIDENTS["open_young"](kafka)
    audit = Audit(tmp_path / "audit.jsonl")
    where = ["--topic", staged.topic, "--partition", str(staged.partition), "--start-offset", str(staged.start_offset)]
    sure = ["--confirm", f"{staged.topic}-{staged.partition}@{staged.start_offset}", "--audit-file", str(audit.path)]
    for action in ("abort", "complete"):
        refused = on(kafka, action, *where, "--recheck-after", "0", *sure)
        assert refused.returncode == 5
        assert on(kafka, action, *where, "--recheck-after", "0", "--audit-file", str(audit.path)).returncode == 5
    rows = [(row["step"], row["action"], row["verdict"], row["producer_id"]) for row in audit.rows()]
    assert rows == [("refused", action, "ongoing", staged.producer_id) for action in ("abort", "complete")]
    staged.close()


def test_a_program_gets_one_object_and_no_prompt(kafka: Kafka, tmp_path: Path) -> None:
    staged = INCIDENTS["never_added"](kafka)
    trail = ["--audit-file", str(tmp_path / "audit.jsonl"), "--format", "json"]
    where = ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]
    target = f"{staged.topic}-0@{staged.start_offset}"
    code, screen = at_terminal(kafka, "abort", *where, "--recheck-after", "0.2", *trail, typed="")
    planned = json.loads(screen[screen.index("{") :])
    assert (code, planned["dry_run"], planned["target"], planned["result"]) == (0, True, target, None)
    assert (planned["plan"]["basis"]["verdict"], planned["plan"]["impact"]["records"]) == ("hanging", 1)
    done = on(kafka, "abort", *where, "--recheck-after", "0.2", *trail, "--confirm", target)
    result = json.loads(done.stdout)["result"]
    assert result["last_stable_offset_after"] > result["last_stable_offset_before"] == staged.start_offset
    fence = on(kafka, "fence", "--transactional-id", staged.transactional_id, *trail)
    assert json.loads(fence.stdout)["plan"]["owner"]["transactional_id"] == staged.transactional_id


def test_without_an_audit_trail_nothing_is_done(kafka: Kafka) -> None:
    staged = INCIDENTS["never_added"](kafka)
    where = ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]
    sure = ["--confirm", f"{staged.topic}-0@{staged.start_offset}", "--audit-file", "/dev/full"]
    done = on(kafka, "abort", *where, "--recheck-after", "0", *sure)
    assert done.returncode == 5
    assert "The audit file /dev/full cannot be written: No space left on device. Nothing was sent" in done.stderr
    assert not Path("/dev/full.records").exists()
    assert on(kafka, "find-hanging", "--topic", staged.topic, "--recheck-after", "0").returncode == 1


@pytest.mark.parametrize("action", ["abort", "complete", "fence"])
def test_an_audit_trail_that_cannot_be_written_is_found_before_the_cluster_is_queried(
    tmp_path: Path, action: str
) -> None:
    (tmp_path / "file").touch()
    of_marker = ["--topic", "orders", "--partition", "0", "--start-offset", "1"]
    where = ["--transactional-id", "a"] if action == "fence" else of_marker
    sure = ["--confirm", "x", "--audit-file", str(tmp_path / "file/audit.jsonl")]
    done = run(action, *where, *sure, "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, "file/audit.jsonl cannot be written" in done.stderr) == (5, True)


def test_fence_is_a_dry_run_unless_confirmed_by_name(kafka: Kafka, tmp_path: Path) -> None:
    staged = INCIDENTS["open_young"](kafka)
    audit = Audit(tmp_path / "audit.jsonl")
    fence = ["fence", "--transactional-id", staged.transactional_id, "--audit-file", str(audit.path)]
    dry = on(kafka, *fence)
    assert dry.returncode == 0, dry.stderr
    assert f"{staged.transactional_id}  ongoing  producer {staged.producer_id} epoch" in dry.stdout
    assert "It would be refused: it is ongoing." in dry.stdout
    assert "never read by read_committed" in " ".join(dry.stdout.split())
    assert f"--confirm {staged.transactional_id} --override ongoing" in " ".join(dry.stdout.split())
    overridden = on(kafka, *fence, "--override", "ongoing")
    assert (overridden.returncode, "It would be refused" in overridden.stdout) == (0, False)
    assert f"To do it, add: --confirm {staged.transactional_id}" in " ".join(overridden.stdout.split())
    for option in ([], ["--override", "ongoing"]):
        zero = on(kafka, *fence, "--max-transaction-timeout", "0", *option, "--confirm", staged.transactional_id)
        assert zero.returncode == 5, "it is called long, and is alive within its own timeout all the same"
        assert "is long now" in zero.stderr
    refused = on(kafka, *fence, "--confirm", staged.transactional_id)
    assert refused.returncode == 5
    assert "override 'ongoing', word for word" in refused.stderr
    code, screen = at_terminal(kafka, *fence, "--override", "ongoing", typed=f"{staged.transactional_id}\n")
    assert code == 0, screen
    assert "is fenced" in screen
    assert [row["step"] for row in audit.rows()] == ["refused"] * 3 + ["intent", "outcome"]
    assert audit.rows()[-1]["override"] == "ongoing"
    gone = on(kafka, "fence", "--transactional-id", "nobody")
    assert gone.returncode == 2
    assert "There is no transactional id 'nobody'" in gone.stderr
