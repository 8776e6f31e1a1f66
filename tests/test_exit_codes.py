"""The exit codes that the docs have: the corpus has what each command of each input ends with."""

from __future__ import annotations

import re
from contextvars import Context

import pytest

from tests.corpus.answers import ANSWERS
from tests.process import ROOT, run
from toolkit import Cluster
from toolkit.cli.output import Answer
from toolkit.errors import ActionFailed, AuditFailed
from toolkit.schema import Row

FAULTS = {
    "failed": ActionFailed("x", effect="written", do=""),
    "done, but not in the audit trail": AuditFailed("x", do=""),
}
ELSEWHERE = {70, 130, 141}  # a defect in `test_cli`, an interrupt and an ended pipe in `test_cli_processes`


def test_every_code_is_documented_and_stored() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = text[text.index("| exit code | meaning |") :].split("\n\n", 1)[0]
    answers = "\n".join(path.read_text(encoding="utf-8") for path in ANSWERS.glob("*/*.txt"))
    stored = re.findall(r"^\$ .*\nexit code (\d+)$", answers, re.MULTILINE)
    assert {*map(int, stored)} | ELSEWHERE == {*map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE))}


@pytest.mark.parametrize("fault", FAULTS)
def test_code_of_a_failure(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FAULTS[fault]

    monkeypatch.setattr(Cluster, "__init__", fail)
    assert run("diagnose", "--bootstrap-server", "127.0.0.1:1").returncode == 6


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
