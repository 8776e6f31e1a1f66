"""No text offers what can lose or duplicate records without saying how to exclude that."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.decision import OUTCOMES, Rule
from toolkit.analysis.diagnosis.rules import DISOWNED_RULES, OWNED_RULES
from toolkit.analysis.exposure import broker_facts
from toolkit.analysis.symptoms import SYMPTOMS
from toolkit.views.monitoring import grafana_dashboard, prometheus_rules

ROOT = Path(__file__).resolve().parent.parent

SAFE: Mapping[str, set[str | None]] = {
    "undecided": {"abort", "commit", "fence", None},
    "abort": {"abort", "complete", None},
    "commit": {"complete", None},
    "unknown": {None},
}
"""The commands that may be a remedy, by outcome."""

ABORT = re.compile(
    r"kafka-txn abort\b(?!-)|kafka-transactions\.sh abort|plan_abort|abort marker\b|until (?:it is aborted|you abort)"
    r"|mark_transaction_expired"
)
NO_ADVICE = re.compile(
    r"\A---\n.*?^---$|^## How (?:it happens|to prove it)$.*|:::\{danger\}.*?^:::$|^\*\*Never\*\*.*?(?=\n\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""Of a section: keywords, origins, and what it forbids."""
AT_ONCE = re.compile(r"abort (?:it |them )?at once", re.IGNORECASE)
GENERATED = {"symptoms", "notebooks", "about"}
REFERENCES = {"commands.md", "python.md"}  # list commands, their output, functions; give no remedies
RIGHTS = re.compile(
    r"^\|(?=.*(?:WRITE|ALTER|Alter)).*`kafka-txn (?:abort|fence).*$|^[Ff]or `kafka-txn (?:abort|fence)`.*$",
    re.MULTILINE,
)
"""Lines that say which right a command needs."""


class Precaution(NamedTuple):
    """What a text that gives an advice has to say, too."""

    advice: re.Pattern[str]
    says: re.Pattern[str]


PRECAUTIONS: Mapping[str, Precaution] = {
    "an abort discards what was committed": Precaution(
        ABORT, re.compile("outcome|kafka-txn complete|plan_complete|not committed")
    ),
    "a fence discards what a checkpoint of Flink is to commit": Precaution(
        re.compile(r"kafka-txn fence(?!`? refuses)|plan_fence|\b[Ff]ence (?:the|its|that) id"), re.compile("checkpoint")
    ),
    "a group whose offsets are dropped writes its output again": Precaution(
        re.compile(rf"__consumer_offsets.{{0,200}}(?:{ABORT.pattern})|(?:{ABORT.pattern}).{{0,200}}__consumer_offsets"),
        re.compile("twice|outcomes.md#what-abort-saves"),
    ),
    "a new coordinator skips the marker of a partition without a leader": Precaution(
        re.compile(r"[Mm]ove the (?:leader|coordinator)"),
        re.compile(r"leader\b[^.]{0,40}\bback|has a leader|in sync|partitions healthy"),
    ),
    "brokers that are shut down for a copy are an outage": Precaution(
        re.compile(r"shut (?:the|all|all the) brokers down|[Bb]rokers that were all shut down"), re.compile("outage")
    ),
}


def forgotten(text: str) -> list[str]:
    """The precautions that the advice in a text leaves out."""
    advice = " ".join(RIGHTS.sub("", NO_ADVICE.sub("", text)).split())
    return [name for name, each in PRECAUTIONS.items() if each.advice.search(advice) and not each.says.search(advice)]


def sections(path: Path) -> Iterator[tuple[str, str]]:
    """The sections of a page with their headings, and what comes before them."""
    for part in re.split(r"^(?=## )", path.read_text(), flags=re.MULTILINE):
        yield f"{path.relative_to(ROOT)}: {part.splitlines()[0] if part.strip() else ''}", part


def of_docs() -> Iterator[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("[a-z]*/*.md"))]
    for path in pages:
        if path.parent.name not in GENERATED and path.name not in REFERENCES:
            yield from sections(path)


def of_notebooks() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
            yield f"{path.name}: {part.splitlines()[0]}", part


def of_code() -> Iterator[tuple[str, str]]:
    for name, symptom in SYMPTOMS.items():
        yield f"symptom {name}", " ".join((*symptom.checks, *symptom.safe))
    for bug in broker_facts().bugs.values():
        yield bug.key, f"{bug.effect} {bug.remedy}"
    for name, setting in broker_facts().settings.items():
        yield name, " ".join((setting.safe, setting.unsafe, setting.absent, setting.beside_older))
    for system in broker_facts().systems:
        yield system.name, system.remedy
    for group in yaml.safe_load(prometheus_rules())["groups"]:
        for rule in group["rules"]:
            if texts := rule.get("annotations"):
                yield rule["alert"], f"{texts['summary']} {texts['description']}"
    for panel in json.loads(grafana_dashboard())["panels"]:
        yield f"panel {panel['title']}", panel["description"]


def test_no_text_advises_what_loses_or_duplicates_records() -> None:
    texts = [*of_docs(), *of_notebooks(), *of_code()]
    assert len(texts) > 400
    assert {name: names for name, text in texts if (names := forgotten(text))} == {}
    assert [name for name, text in texts if AT_ONCE.search(NO_ADVICE.sub("", text))] == []


HARMFUL = {  # sentences that lost or duplicated records once, by how the precaution begins that they lack
    "an abort": [
        "Upgrade to 3.6.0 or newer; end hanging transactions with an abort marker.",
        "After an abort: write the abort marker of the remedy.",
        "## What is safe\n\nUse `kafka-txn abort` on that partition only.\n\n:::{danger}\n**Never:** the outcome\n:::",
        "Nobody will ever end them: kafka-txn abort.",
        "End the transaction with `kafka-transactions.sh abort`, and produce the records again.",
        "read_committed consumers stop until you abort it.",
        "Use `rpk cluster txn`, or mark_transaction_expired of its Admin API.",
    ],
    "a fence": [
        "**Safe** to wait. If the application is gone for good, `kafka-txn fence --transactional-id ID` makes the "
        "coordinator abort it on all partitions.",
        "`overdue`: its coordinator did not end it. Check that coordinator; then fence the id",
    ],
    "a group": [
        "`hanging`, outcome undecided: kafka-txn abort. The group of __consumer_offsets continues from its last "
        "committed offsets.",
        "On `__consumer_offsets`, with the outcome `undecided`, use `kafka-txn abort`: the group reads again.",
    ],
    "a new coordinator": ["## What is safe\n\nMove the leader of its partition of `__transaction_state`."],
    "brokers": ["For proof, shut the brokers down cleanly, and copy the volumes."],
}


@pytest.mark.parametrize("precaution", HARMFUL)
def test_harmful_sentences_are_found(precaution: str) -> None:
    for text in HARMFUL[precaution]:
        assert [name.startswith(precaution) for name in forgotten(text)] == [True], text


@pytest.mark.parametrize("rule", [*OWNED_RULES, *DISOWNED_RULES], ids=lambda rule: rule.name)
def test_each_rule_has_a_command_that_its_outcome_allows(rule: Rule[Case]) -> None:
    assert rule.outcome is None or rule.action in SAFE[rule.outcome]
    assert (rule.verdict == "hanging") == (rule.action == "abort")
    assert (rule.name == "pre-committed by a checkpoint of Flink") == (rule.action == "commit")


def test_the_table_has_each_outcome() -> None:
    assert SAFE.keys() == OUTCOMES.keys()
