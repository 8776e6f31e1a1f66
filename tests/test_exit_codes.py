"""Each exit code that the docs have: a command line, and what the shell gets. 130 is in `test_cli_processes`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import Context

import pytest

from tests.process import ROOT, on, run
from toolkit import Cluster
from toolkit.cli.output import Answer
from toolkit.errors import ActionFailed, AuditFailed
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema import Row

NOWHERE = ("--bootstrap-server", "127.0.0.1:1", "--timeout", "1s")
ALONE: dict[str, tuple[int, Sequence[str]]] = {
    "2 no source": (2, ["diagnose"]),
    "2 two sources": (2, ["diagnose", "--log-dir", ".", *NOWHERE]),
    "3 no connection": (3, ["find-hanging", *NOWHERE]),
    "4 an unknown text": (4, ["explain", "all is well"]),
    "4 no such folder": (4, ["diagnose", "--log-dir", "/no/such/folder"]),
}
FAULTS = {
    "failed": ActionFailed("x", effect="written", do=""),
    "done, but not in the audit trail": AuditFailed("x", do=""),
}
OF_A_CLUSTER = {
    "0 healthy": (0, ["find-hanging", "--topic", "ALIVE"]),
    "1 hanging": (1, ["find-hanging", "--topic", "TOPIC"]),
    "1 as JSON": (1, ["diagnose", "--topic", "TOPIC", "--format", "json"]),
    "0 a dry run": (0, ["abort", "--topic", "TOPIC", "--partition", "0", "--start-offset", "START"]),
    "4 no such topic": (4, ["diagnose", "--topic", "no-such-topic"]),
    "5 refused": (5, ["abort", "--topic", "ALIVE", "--partition", "0", "--start-offset", "START_OF_ALIVE"]),
}
ELSEWHERE = {6, 70, 130}  # a failure below, a defect in `test_cli`, an interrupt in `test_cli_processes`


def documented() -> set[int]:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = text[text.index("| exit code | meaning |") :].split("\n\n", 1)[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}


def test_every_documented_code_is_tried() -> None:
    assert {code for code, _ in [*ALONE.values(), *OF_A_CLUSTER.values()]} | ELSEWHERE == documented()


@pytest.mark.parametrize("case", ALONE)
def test_code_without_a_cluster(case: str) -> None:
    code, arguments = ALONE[case]
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr or done.stdout, "it says why"


@pytest.mark.parametrize("fault", FAULTS)
def test_code_of_a_failure(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FAULTS[fault]

    monkeypatch.setattr(Cluster, "__init__", fail)
    assert run("diagnose", *NOWHERE).returncode == 6


def test_codes_of_a_cluster(kafka: Kafka) -> None:
    staged, alive = INCIDENTS["never_added"](kafka), INCIDENTS["open_young"](kafka)
    named = {"TOPIC": staged.topic, "START": str(staged.start_offset), "ALIVE": alive.topic}
    named["START_OF_ALIVE"] = str(alive.start_offset)
    for case, (code, words) in OF_A_CLUSTER.items():
        done = on(kafka, *(named.get(word, word) for word in words))
        assert done.returncode == code, f"{case}: {done.stdout}{done.stderr}"


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
