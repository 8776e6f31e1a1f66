"""`explain`: from a pasted error to the answer, as text, as HTML and as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.evidence_text import at, coordinator_says, number
from toolkit.analysis.symptoms.recognition import NamedResources, RecognizedSymptom, pasted_records, recognize
from toolkit.analysis.symptoms.symptom import Symptom
from toolkit.schema import FINDINGS, Column, ListOf, Row, StructOf, Table
from toolkit.schema.docs_links import symptom_page
from toolkit.schema.live import Transaction
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.offsets import GroupLag
from toolkit.schema.table import INT16, INT32, INT64, STRING, TOPIC_PARTITIONS
from toolkit.sources.resource_checks import ResourceChecks, check_resources
from toolkit.views.findings_text import finding_lines, summary, wrap
from toolkit.views.html_page import page
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.source import Source


TITLE_OF_UNKNOWN = "This text contains no known error of Kafka transactions."
WHAT_TO_COLLECT = (
    "The first error of the client, with its `Caused by:` lines and 20 lines before it: later errors follow from it.",
    "Name and version of the client (Java, librdkafka, franz-go, Flink ...) and of the brokers.",
    "transactional.id, group.id, topic, partition: to pass as --transactional-id, --group, --topic, --partition.",
    "kafka-txn diagnose --bootstrap-server HOST:PORT: whether any transaction holds anything at all.",
    "The logs of the coordinator and of the partition's leader at that time.",
)


def answer_lines(symptom: Symptom) -> Iterator[tuple[str, str]]:
    """Label and sentence of each line; only the first line of a kind has its label."""
    kinds = (("cause", symptom.causes), ("check", symptom.checks), ("safe", symptom.safe), ("never", symptom.never))
    for label, sentences in kinds:
        yield from ((label if index == 0 else "", sentence) for index, sentence in enumerate(sentences))
    yield "source", ", ".join(symptom.sources)
    yield "page", symptom_page(symptom.name)


def checked_lines(checks: ResourceChecks, named: NamedResources, *, width: int | None = None) -> list[str]:
    """Findings about the named partitions, or about all, and failed checks."""
    lines = [*said_of_ids(checks), *finding_lines(checks.findings, width=width)]
    lines += ["", _sum(checks, named)] if lines else [_sum(checks, named)]
    lines += [
        line for each in checks.not_checked for line in wrap(printable(each), before="not checked: ", width=width)
    ]
    return lines


def said_of_ids(checks: ResourceChecks) -> list[str]:
    """Coordinator state of ids, the end of their last transactions, and the lag of groups: a sentence each."""
    return [*map(_transaction, checks.transactions), *map(_ended, checks.history), *map(_lag, checks.group_lag)]


def pasted_lines(records: Sequence[TransactionLogRecord]) -> list[str]:
    """The state of each transactional id by its last record in the text, a sentence each."""
    return [printable(_pasted(record)) for record in records]


def _pasted(record: TransactionLogRecord) -> str:
    if record.tombstone:
        return f"transactional id {record.transactional_id}: deleted, by its last record in the text"
    places = ", ".join(f"{topic}-{partition}" for topic, partition in record.topic_partitions or ())
    time = "" if record.last_update_time is None else f", at {at(record.last_update_time)}"
    return (
        f"transactional id {record.transactional_id}: {record.state} by its last record in the text{time}, "
        f"producer {number(record.producer_id)} epoch {number(record.producer_epoch)}"
        + (f", on {places}" if places else "")
    )


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


def _transaction(owner: Transaction) -> str:
    if owner.error or owner.transactional_id is None:
        return printable(f"transactional id {number(owner.transactional_id)}: {owner.error}")
    text = f"{coordinator_says(owner)}, producer {number(owner.producer_id)} epoch {number(owner.producer_epoch)}"
    return printable(text + (f", since {at(owner.start_time)}" if owner.start_time else ""))


def _ended(past: PastTransaction) -> str:
    when = past.end_time or past.decided_at or past.start_time
    return printable(f"  {past.ended or past.kind}{f' at {at(when)}' if when else ''}: {past.reason}")


def _lag(lag: GroupLag) -> str:
    where = f"group {lag.group_id}" + ("" if lag.topic is None else f", {lag.topic}-{lag.partition}")
    if lag.error:
        return printable(f"{where}: {lag.error}")
    if lag.lag is None:
        return printable(f"{where}: nothing committed")
    others = "" if lag.markers is None else f", {lag.markers} that no consumer receives"
    text = f"{where}: lag {lag.lag}, of it {lag.behind} to read, {lag.held} held{others}"
    beyond = (lag.committed_offset or 0) > (lag.high_watermark or 0)
    return printable(f"{text}. {lag.reason}" if beyond and lag.reason else text)


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
        Column(
            "observed",
            _TEXTS,
            "State of ids and groups, by records in the text and by their coordinators; null without both.",
        ),
        Column("not_checked", _TEXTS, "What could not be checked, and why; null without a source."),
    ),
    key=("symptom",),
    sort=(),
)


TEXT_WIDTH = 120
TEMPLATE = "explanation.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedError:
    """A pasted error, and the state of the cluster about it."""

    recognized: tuple[RecognizedSymptom, ...]  # the symptoms that were recognized; empty if the text is unknown
    named: NamedResources  # ids, groups and partitions in the text, and those of the caller
    pasted: tuple[TransactionLogRecord, ...] = ()  # the last record of each transactional id in the text
    checks: ResourceChecks | None = None  # state of them in a source; null without a source

    @property
    def symptoms(self) -> tuple[str, ...]:
        """Names of the symptoms, as in `toolkit.analysis.symptoms.recognition.SYMPTOMS`."""
        return tuple(each.symptom.name for each in self.recognized)

    def rows(self) -> list[Row]:
        """A row for each symptom, or one that says what to collect (`EXPLANATIONS`); each has the ids and findings."""
        shared = {
            "transactional_ids": list(self.named.transactional_ids),
            "groups": list(self.named.groups),
            "topics": list(self.named.topics),
            "topic_partitions": [{"topic": topic, "partition": number} for topic, number in self.named.partitions],
            "producer_ids": list(self.named.producer_ids),
            "findings": None,
        }
        if self.pasted:
            shared["observed"] = pasted_lines(self.pasted)
        if self.checks is not None:
            shared["findings"] = [{name: getattr(each, name) for name, _ in _FINDING} for each in self.checks.findings]
            shared["observed"] = [*pasted_lines(self.pasted), *(each.strip() for each in said_of_ids(self.checks))]
            shared["not_checked"] = list(self.checks.not_checked)
        if not self.recognized:
            nothing: dict[str, list[str]] = {name: [] for name in ("clients", "causes", "safe", "never", "sources")}
            unknown = {"symptom": None, "title": TITLE_OF_UNKNOWN, "checks": list(WHAT_TO_COLLECT)}
            return [{**unknown, **nothing, **shared}]
        return [
            {
                "symptom": each.symptom.name,
                "title": each.symptom.title,
                "clients": list(each.clients),
                "causes": list(each.symptom.causes),
                "checks": list(each.symptom.checks),
                "safe": list(each.symptom.safe),
                "never": list(each.symptom.never),
                "sources": list(each.symptom.sources),
                **shared,
            }
            for each in self.recognized
        ]

    def frame(self) -> pd.DataFrame:
        """`rows` as a pandas DataFrame."""
        return EXPLANATIONS.frame(self.rows())

    def findings(self) -> pd.DataFrame:
        """The findings about them (``schema.FINDINGS``); empty without a source."""
        return FINDINGS.frame(self.checks.findings if self.checks else ())

    def lines(self, *, width: int | None = None) -> list[str]:
        """The explanation as lines of text, wrapped at `width` columns."""
        paragraphs: list[list[str]] = []
        for each in self.recognized:
            title = f"{each.symptom.title} ({', '.join(each.clients)})"
            paragraphs.append(wrap(title, before=f"{each.symptom.name}: ", width=width))
            for label, sentence in answer_lines(each.symptom):
                paragraphs[-1] += wrap(sentence, before=f"  {label:<8}", width=width)
        if not self.recognized:
            paragraphs.append([f"unknown: {TITLE_OF_UNKNOWN}"])
            for index, sentence in enumerate(WHAT_TO_COLLECT):
                paragraphs[-1] += wrap(sentence, before=f"  {'collect' if index == 0 else '':<8}", width=width)
        if name := named_line(self.named):
            paragraphs.append(wrap(name, before="Named: ", width=width))
        if self.pasted:
            paragraphs.append(
                [line for each in pasted_lines(self.pasted) for line in wrap(each, before="", width=width)]
            )
        if self.checks is not None:
            paragraphs.append(checked_lines(self.checks, self.named, width=width))
        return [line for paragraph in paragraphs for line in [*paragraph, ""]][:-1]

    def __repr__(self) -> str:
        return "\n".join(self.lines(width=TEXT_WIDTH))

    def _repr_html_(self) -> str:
        """The same as HTML for a notebook, without network access."""
        return page(
            __name__.rpartition(".")[0],
            TEMPLATE,
            recognized=[(each, list(answer_lines(each.symptom))) for each in self.recognized],
            unknown=TITLE_OF_UNKNOWN,
            collect=WHAT_TO_COLLECT,
            named=named_line(self.named),
            pasted=pasted_lines(self.pasted),
            checked=checked_lines(self.checks, self.named, width=TEXT_WIDTH) if self.checks else None,
        )


def explain(
    text: str,
    source: Source | None = None,
    *,
    transactional_ids: Sequence[str] = (),
    groups: Sequence[str] = (),
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    recheck_after: float = 5.0,
) -> ExplainedError:
    """Explain a pasted error: its possible causes, what to check, what is safe, and what not to do.

    Parameters
    ----------
    text
        An error message, a stack trace, log lines, or the output of ``kafka-consumer-groups.sh``. Of more than a
        million characters the first and the last half a million are read. Nothing of it is shown but the ids, groups
        and partitions that it names.
    source
        A cluster, files or a recording to look up the named ids and partitions: the explanation includes its findings.
        If the text names nothing, these are of all partitions.
    transactional_ids, groups, topics, partitions
        Also look up these; partitions are numbers of each of `topics`.
    recheck_after
        Delay in seconds before the confirming second check of a cluster; 0 disables it.

    Returns
    -------
    ExplainedError
        Without a symptom where the text is unknown. What could not be looked up is in ``checks.not_checked``.

    Examples
    --------
    >>> explain("org.apache.kafka.common.errors.ProducerFencedException: ...").symptoms
    ('producer-fenced',)
    """
    recognized, named = recognize(text)
    named = named.with_more(transactional_ids=transactional_ids, groups=groups, topics=topics, partitions=partitions)
    checks = None if source is None else check_resources(source, named, recheck_after=recheck_after)
    return ExplainedError(recognized=recognized, named=named, pasted=pasted_records(text), checks=checks)
