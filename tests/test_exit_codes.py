"""Each exit code that the docs have, as a script sees it: a command line, and what the shell gets."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextvars import Context
from pathlib import Path

import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, started
from toolkit.cli.output import Answer
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema import Row

FAULTY = """
import sys
from toolkit.errors import ActionFailed, AuditFailed
from toolkit.sources.live.cluster import Cluster
fault = {"crash": ValueError("x"), "failed": ActionFailed("x", effect="written"), "unaudited": AuditFailed("x")}
raised = fault[sys.argv.pop(1)]
def failing(self, *_, **__): raise raised
Cluster.__init__ = failing
from toolkit.cli import main
main()
"""
NOWHERE = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "1s"]
ALONE = {
    "2 no source": (2, COMMAND, ["diagnose"]),
    "2 two sources": (2, COMMAND, ["diagnose", "--log-dir", ".", *NOWHERE]),
    "3 no connection": (3, COMMAND, ["find-hanging", *NOWHERE]),
    "4 an unknown text": (4, COMMAND, ["explain", "all is well"]),
    "4 no such folder": (4, COMMAND, ["diagnose", "--log-dir", "/no/such/folder"]),
    "6 failed": (6, [sys.executable, "-c", FAULTY, "failed"], ["diagnose", *NOWHERE]),
    "6 done, but not in the audit trail": (6, [sys.executable, "-c", FAULTY, "unaudited"], ["diagnose", *NOWHERE]),
    "70 a defect": (70, [sys.executable, "-c", FAULTY, "crash"], ["diagnose", *NOWHERE]),
}
OF_A_CLUSTER = {
    "0 healthy": (0, ["find-hanging", "--topic", "ALIVE"]),
    "1 hanging": (1, ["find-hanging", "--topic", "TOPIC"]),
    "1 as JSON": (1, ["diagnose", "--topic", "TOPIC", "--format", "json"]),
    "0 a dry run": (0, ["abort", "--topic", "TOPIC", "--partition", "0", "--start-offset", "START"]),
    "4 no such topic": (4, ["diagnose", "--topic", "no-such-topic"]),
    "5 refused": (5, ["abort", "--topic", "ALIVE", "--partition", "0", "--start-offset", "START_OF_ALIVE"]),
}


def documented() -> set[int]:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = text[text.index("| exit code | meaning |") :].split("\n\n", 1)[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}


def test_every_documented_code_is_tried() -> None:
    tried = {code for code, *_ in [*ALONE.values(), *OF_A_CLUSTER.values()]} | {130}
    assert tried == documented()


@pytest.mark.parametrize("case", ALONE)
def test_code_without_a_cluster(case: str) -> None:
    code, program, arguments = ALONE[case]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert done.returncode == code, done.stderr
    assert done.stderr or done.stdout, "it says why"


@pytest.mark.lab
def test_codes_of_a_cluster(kafka: Kafka, tmp_path: Path) -> None:
    staged, alive = INCIDENTS["never_added"](kafka), INCIDENTS["open_young"](kafka)
    named = {"TOPIC": staged.topic, "START": str(staged.start_offset), "ALIVE": alive.topic}
    named["START_OF_ALIVE"] = str(alive.start_offset)
    for case, (code, words) in OF_A_CLUSTER.items():
        arguments = [*(named.get(word, word) for word in words), "--bootstrap-server", kafka.bootstrap_servers]
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
        assert done.returncode == code, f"{case}: {done.stdout}{done.stderr}"
    waiting = [*COMMAND, "diagnose", "--bootstrap-server", kafka.bootstrap_servers, "--recheck-after", "600"]
    with started(waiting, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(timeout=10)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130


def test_a_row_that_a_right_is_missing_for_names_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    """`history` without READ said that no record could be read, and not what to grant."""
    error = "TOPIC_AUTHORIZATION_FAILED: Returned by the broker"
    rows: list[Row] = [
        {"transactional_id": "pay 7", "txn_state_partition": 3, "error": error},
        {"transactional_id": "pay 7", "error": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"},
        {"topic": None, "error": error},
        *({"group_id": f"g{number}", "error": "GROUP_AUTHORIZATION_FAILED"} for number in range(11)),
        {"topic": "orders", "error": None},
    ]
    assert Context().run(Answer(rows=rows).end) == 3  # without the options of a command that ran before
    principal = "kafka-acls.sh --add --allow-principal User:NAME --operation"
    assert capsys.readouterr().err.splitlines() == [
        "This principal needs READ on topic '__transaction_state':",
        f"{principal} READ --topic=__transaction_state",
        "This principal needs DESCRIBE on transactional-id 'pay 7':",
        f"{principal} DESCRIBE '--transactional-id=pay 7'",
        "This principal needs DESCRIBE on group '*':",
        f"{principal} DESCRIBE '--group=*'",
    ]
