"""An explained error as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.analysis.symptoms.named_resources import NamedResources
from toolkit.analysis.symptoms.recognition import RecognizedSymptom
from toolkit.schema import Column, ListOf, Row, StructOf, Table
from toolkit.schema.table import INT16, INT32, INT64, STRING, TOPIC_PARTITIONS
from toolkit.sources.resource_checks import ResourceChecks
from toolkit.views.symptoms.explanation_lines import TITLE_OF_UNKNOWN, WHAT_TO_COLLECT, said_of_ids

_TEXTS = ListOf(STRING)
_FINDING = (
    ("topic", STRING),
    ("partition", INT32),
    ("producer_id", INT64),
    ("producer_epoch", INT16),
    ("transactional_id", STRING),
    ("start_offset", INT64),
    ("verdict", STRING),
    ("reason", STRING),
    ("cause", STRING),
    ("remedy", STRING),
)

EXPLANATIONS = Table(
    "explanations",
    "a symptom that a pasted error shows; one row without symptom where the text is unknown",
    (
        Column("symptom", STRING, "Its name; null where the text is unknown."),
        Column("title", STRING, "What is going on, as a sentence.", nullable=False),
        Column("clients", _TEXTS, "Clients by whose wordings it was recognized.", nullable=False),
        Column("causes", _TEXTS, "Possible causes, the most frequent one first.", nullable=False),
        Column("checks", _TEXTS, "What to check; where the text is unknown, what to collect.", nullable=False),
        Column("safe", _TEXTS, "What to do, and what is safe meanwhile.", nullable=False),
        Column("never", _TEXTS, "What makes it worse.", nullable=False),
        Column("sources", _TEXTS, "Kafka issues, KIPs and public threads.", nullable=False),
        Column("transactional_ids", _TEXTS, "Transactional ids that are named.", nullable=False),
        Column("groups", _TEXTS, "Consumer groups that are named.", nullable=False),
        Column("topics", _TEXTS, "Topics that are named as a whole.", nullable=False),
        Column("topic_partitions", TOPIC_PARTITIONS, "Partitions that are named.", nullable=False),
        Column("producer_ids", ListOf(INT64), "Producer ids that are named.", nullable=False),
        Column("findings", ListOf(StructOf(_FINDING)), "Findings about them; null without a source."),
        Column("observed", _TEXTS, "State of ids and groups by their coordinators; null without a source."),
        Column("not_checked", _TEXTS, "What could not be checked, and why; null without a source."),
    ),
    key=("symptom",),
    sort=(),
)


def explanation_rows(
    recognized: Sequence[RecognizedSymptom], named: NamedResources, checks: ResourceChecks | None
) -> list[Row]:
    """A row for each symptom, or one for an unknown text; each has the named ids and the findings."""
    shared = {
        "transactional_ids": list(named.transactional_ids),
        "groups": list(named.groups),
        "topics": list(named.topics),
        "topic_partitions": [{"topic": topic, "partition": number} for topic, number in named.partitions],
        "producer_ids": list(named.producer_ids),
        "findings": None,
    }
    if checks is not None:
        shared["findings"] = [{name: row[name] for name, _ in _FINDING} for row in checks.findings]
        shared |= {"observed": [each.strip() for each in said_of_ids(checks)], "not_checked": list(checks.not_checked)}
    return [{**_symptom(each), **shared} for each in recognized] or [{**_unknown(), **shared}]


def _symptom(recognized: RecognizedSymptom) -> Row:
    symptom = recognized.symptom
    return {
        "symptom": symptom.name,
        "title": symptom.title,
        "clients": list(recognized.clients),
        "causes": list(symptom.causes),
        "checks": list(symptom.checks),
        "safe": list(symptom.safe),
        "never": list(symptom.never),
        "sources": list(symptom.sources),
    }


def _unknown() -> Row:
    nothing: dict[str, list[str]] = {name: [] for name in ("clients", "causes", "safe", "never", "sources")}
    return {"symptom": None, "title": TITLE_OF_UNKNOWN, "checks": list(WHAT_TO_COLLECT), **nothing}
