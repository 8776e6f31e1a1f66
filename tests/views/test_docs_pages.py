"""The pages of the package as text: none has what only a site can show, and each is found by the name that one has."""

import re

import pytest

from tests.process import run
from toolkit.analysis.diagnosis.decision import CAUSES
from toolkit.analysis.symptoms import SYMPTOMS
from toolkit.schema.verdict import Verdict
from toolkit.views.docs_pages import page_names, page_text
from toolkit.views.monitoring import prometheus_rules


@pytest.mark.parametrize("name", page_names())
def test_a_page_is_text(name: str) -> None:
    text = page_text(page_names()[name])
    assert text.startswith("# ")
    assert not re.search(r"\{\{|\{%|^:::|\]\(\.|html_meta|^```\{", text, re.MULTILINE)


def test_every_verdict_cause_symptom_and_alert_has_one() -> None:
    listed = {line.split()[0] for line in run("docs").stdout.splitlines()}
    assert {*Verdict, *CAUSES, *SYMPTOMS} <= listed
    for alert in re.findall(r"- alert: (\w+)", prometheus_rules()):
        assert run("docs", alert).stdout.startswith(f"## {alert}\n")


def test_an_error_is_as_good_as_its_name() -> None:
    by_text = run("docs", "org.apache.kafka.common.errors.InvalidTxnStateException: The producer attempted")
    assert by_text.returncode == 0
    assert "never" in by_text.stdout
    assert Verdict.HANGING.sentence in run("docs", "hanging").stdout
    unknown = run("docs", "hangin")
    assert (unknown.returncode, "Is it hanging" in unknown.stderr) == (4, True)
