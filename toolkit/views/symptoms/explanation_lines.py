"""An explained error as text for a terminal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from toolkit.analysis.diagnosis.evidence_text import at, coordinator_says, number
from toolkit.analysis.symptoms.named_resources import NamedResources
from toolkit.analysis.symptoms.recognition import RecognizedSymptom
from toolkit.analysis.symptoms.symptom import Symptom
from toolkit.schema import Row
from toolkit.schema.docs_links import symptom_page
from toolkit.schema.live import Transaction
from toolkit.sources.resource_checks import ResourceChecks
from toolkit.views.findings_text import finding_lines, summary, wrap
from toolkit.views.row_formats import printable

TITLE_OF_UNKNOWN = "This text contains no known error of Kafka transactions."
WHAT_TO_COLLECT = (
    "The first error of the client, with its `Caused by:` lines and 20 lines before it: later errors follow from it.",
    "Name and version of the client (Java, librdkafka, franz-go, Flink ...) and of the brokers.",
    "transactional.id, group.id, topic, partition: to pass as --transactional-id, --group, --topic, --partition.",
    "kafka-txn diagnose --bootstrap-server HOST:PORT: whether any transaction holds anything at all.",
    "The logs of the coordinator and of the partition's leader at that time.",
)


def explanation_lines(
    recognized: Sequence[RecognizedSymptom],
    named: NamedResources,
    checks: ResourceChecks | None,
    *,
    now: dt.datetime,
    width: int | None = None,
) -> list[str]:
    """Symptoms, named ids and partitions, and their state in the source."""
    paragraphs = [list(_symptom(each, width=width)) for each in recognized] or [list(_unknown(width=width))]
    if name := named_line(named):
        paragraphs.append(wrap(name, before="Named: ", width=width))
    if checks is not None:
        paragraphs.append(checked_lines(checks, named, now=now, width=width))
    return [line for paragraph in paragraphs for line in [*paragraph, ""]][:-1]


def answer_lines(symptom: Symptom) -> Iterator[tuple[str, str]]:
    """Label and sentence of each line; only the first line of a kind has its label."""
    kinds = (("cause", symptom.causes), ("check", symptom.checks), ("safe", symptom.safe), ("never", symptom.never))
    for label, sentences in kinds:
        yield from ((label if index == 0 else "", sentence) for index, sentence in enumerate(sentences))
    yield "source", ", ".join(symptom.sources)
    yield "page", symptom_page(symptom.name)


def checked_lines(
    checks: ResourceChecks, named: NamedResources, *, now: dt.datetime, width: int | None = None
) -> list[str]:
    """Findings about the named partitions, or about all, and failed checks."""
    lines = [*said_of_ids(checks), *finding_lines(checks.findings, now=now, width=width)]
    lines += ["", _sum(checks, named)] if lines else [_sum(checks, named)]
    lines += [
        line for each in checks.not_checked for line in wrap(printable(each), before="not checked: ", width=width)
    ]
    return lines


def said_of_ids(checks: ResourceChecks) -> list[str]:
    """Coordinator state of ids, the end of their last transactions, and the lag of groups: a sentence each."""
    return [
        *map(_transaction, checks.transactions),
        *map(_ended, checks.history),
        *map(_lag, checks.group_lag),
    ]


def named_line(named: NamedResources) -> str:
    """``transactional id payments-7, group billing, orders-0``; empty if nothing is named."""
    parts = [f"transactional id {each}" for each in named.transactional_ids]
    parts += [f"group {each}" for each in named.groups]
    parts += [f"topic {each}" for each in named.topics]
    parts += [f"{topic}-{partition}" for topic, partition in named.partitions]
    parts += [f"producer {each}" for each in named.producer_ids]
    return printable(", ".join(parts))


def _sum(checks: ResourceChecks, named: NamedResources) -> str:
    if checks.findings:
        incomplete = "; not everything was checked" if checks.not_checked else ""
        return summary(checks.findings) + incomplete
    if not checks.all_partitions:
        return "no partition was checked"
    if checks.not_checked:
        return "nothing was found open, but not everything was checked"
    return "nothing of it is open on any partition" if named else "nothing hangs, and nothing holds an LSO for long"


def _symptom(recognized: RecognizedSymptom, *, width: int | None) -> Iterator[str]:
    symptom = recognized.symptom
    yield from wrap(f"{symptom.title} ({', '.join(recognized.clients)})", before=f"{symptom.name}: ", width=width)
    for label, sentence in answer_lines(symptom):
        yield from wrap(sentence, before=f"  {label:<8}", width=width)


def _unknown(*, width: int | None) -> Iterator[str]:
    yield f"unknown: {TITLE_OF_UNKNOWN}"
    for index, sentence in enumerate(WHAT_TO_COLLECT):
        yield from wrap(sentence, before=f"  {'collect' if index == 0 else '':<8}", width=width)


def _transaction(row: Row) -> str:
    if row["error"] or row["transactional_id"] is None:
        return printable(f"transactional id {number(row['transactional_id'])}: {row['error']}")
    owner = Transaction.of(row)
    text = f"{coordinator_says(owner)}, producer {number(owner.producer_id)} epoch {number(owner.producer_epoch)}"
    return printable(text + (f", since {at(row['start_time'])}" if row["start_time"] else ""))


def _ended(row: Row) -> str:
    what = row["ended"] or row["kind"]
    when = row["end_time"] or row["decided_at"] or row["start_time"]
    return printable(f"  {what}{f' at {at(when)}' if when else ''}: {row['reason']}")


def _lag(row: Row) -> str:
    where = f"group {row['group_id']}"
    if row["topic"] is not None:
        where += f", {row['topic']}-{row['partition']}"
    if row.get("error"):
        return printable(f"{where}: {row['error']}")
    if row.get("lag") is None:
        return printable(f"{where}: nothing committed")
    markers = "" if row["markers"] is None else f", {row['markers']} markers"
    return printable(f"{where}: lag {row['lag']}, of it {row['behind']} to read, {row['held']} held{markers}")
