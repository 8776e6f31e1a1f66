"""No text offers an abort where a commit is possible without saying how to exclude it."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import nbformat
import pytest

from toolkit.analysis.diagnosis.decision.decision import OpenRule
from toolkit.analysis.diagnosis.decision.disowned_rules import DISOWNED_RULES
from toolkit.analysis.diagnosis.decision.owned_rules import OWNED_RULES
from toolkit.analysis.diagnosis.known_bugs import KNOWN_BUGS
from toolkit.analysis.diagnosis.verdicts import OUTCOMES
from toolkit.analysis.symptoms.recognition import SYMPTOMS
from toolkit.views.monitoring import AlertSettings, alerts, grafana_dashboard

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
)
EXCLUDES_A_COMMIT = re.compile(r"outcome|kafka-txn complete|plan_complete")
NO_ADVICE = re.compile(
    r"\A---\n.*?^---$|^## How (?:it happens|to prove it)$.*|:::\{danger\}.*?^:::$|^\*\*Never\*\*.*?(?=\n\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""Of a section: keywords, origins, and what it forbids."""
AT_ONCE = re.compile(r"abort (?:it |them )?at once", re.IGNORECASE)
GENERATED = {"symptoms", "notebooks", "about"}
REFERENCES = {"commands.md"}  # lists commands and their output; gives no remedies


def offers_an_unchecked_abort(text: str) -> bool:
    """Whether it names an abort as a remedy, and neither the outcome nor what a commit needs instead."""
    advice = " ".join(NO_ADVICE.sub("", text).split())
    return bool(ABORT.search(advice)) and not EXCLUDES_A_COMMIT.search(advice)


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
        cells = nbformat.read(path, as_version=4).cells  # type: ignore[no-untyped-call]
        yield path.name, "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def of_code() -> Iterator[tuple[str, str]]:
    for name, symptom in SYMPTOMS.items():
        yield f"symptom {name}", " ".join((*symptom.checks, *symptom.safe))
    for bug in KNOWN_BUGS:
        yield bug.key, f"{bug.effect} {bug.remedy}"
    for alert in alerts(AlertSettings()):
        yield alert.name, f"{alert.summary} {alert.description}"
    for panel in json.loads(grafana_dashboard())["panels"]:
        yield f"panel {panel['title']}", panel["description"]


TEXTS = [*of_docs(), *of_notebooks(), *of_code()]


@pytest.mark.parametrize("text", [text for _, text in TEXTS], ids=[name for name, _ in TEXTS])
def test_no_text_offers_an_abort_where_a_commit_is_possible(text: str) -> None:
    assert not offers_an_unchecked_abort(text)
    assert not AT_ONCE.search(NO_ADVICE.sub("", text))


@pytest.mark.parametrize(
    "text",
    [
        "Upgrade to 3.6.0 or newer; end hanging transactions with an abort marker.",
        "After an abort: write the abort marker of the remedy.",
        "## What is safe\n\nUse `kafka-txn abort` on that partition only.\n\n:::{danger}\n**Never:** the outcome\n:::",
        "Nobody will ever end them: kafka-txn abort.",
        "End the transaction with `kafka-transactions.sh abort`, and produce the records again.",
        "read_committed consumers stop until you abort it.",
    ],
)
def test_sentences_that_lost_committed_records_are_found(text: str) -> None:
    assert offers_an_unchecked_abort(text)


@pytest.mark.parametrize("rule", [*OWNED_RULES, *DISOWNED_RULES], ids=lambda rule: rule.name)
def test_each_rule_has_a_command_that_its_outcome_allows(rule: OpenRule) -> None:
    assert rule.outcome is None or rule.action in SAFE[rule.outcome]
    assert (rule.verdict == "hanging") == (rule.action == "abort")
    assert (rule.name == "pre-committed by a checkpoint of Flink") == (rule.action == "commit")


def test_the_table_has_each_outcome() -> None:
    assert SAFE.keys() == OUTCOMES.keys()
