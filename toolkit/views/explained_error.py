"""`explain`: from a pasted error to the answer, as text, as HTML and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.consumer_lag import never_read
from toolkit.analysis.diagnosis.evidence_text import at, coordinator_says, number
from toolkit.analysis.symptoms import MAX_NAMED, NamedResources, RecognizedSymptom, is_over, pasted_records, recognize
from toolkit.schema import FINDINGS, Column, ListOf, Row, StructOf, Table
from toolkit.schema.live import GroupLag, Transaction
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.table import INT64, STRING, TOPIC_PARTITIONS
from toolkit.schema.verdict import symptom_page
from toolkit.sources.resource_checks import ResourceChecks, check_resources
from toolkit.views.document import NOWHERE, Connection, Field, Fields, Paragraph, Section, Value, text_values
from toolkit.views.finding_document import LINKED_FINDINGS, by_urgency, finding_parts, first_names, linked_row, summary
from toolkit.views.renderers import DocumentView, text_lines
from toolkit.views.row_formats import count

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.source import Source


TITLE_OF_UNKNOWN = "This text contains no known error of Kafka transactions."
WHAT_TO_COLLECT = (
    "The first error of the client, with its `Caused by:` lines and 20 lines before it: later errors follow from it.",
    "Name and version of the client (Java, librdkafka, franz-go, Flink ...) and of the brokers.",
    "transactional.id, group.id, topic, partition: to pass as --transactional-id, --group, --topic, --partition.",
    "What a diagnosis of the cluster says, whether any transaction holds anything at all:\nkafka-txn diagnose",
    "The logs of the coordinator and of the partition's leader at that time.",
)


def symptom_section(recognized: RecognizedSymptom) -> Section:
    """Causes, checks, what is safe and what is not."""
    symptom = recognized.symptom
    kinds = {"cause": symptom.causes, "check": symptom.checks, "safe": symptom.safe, "never": symptom.never}
    fields = (
        *(Field(label, _values(sentences)) for label, sentences in kinds.items() if sentences),
        Field("source", (", ".join(symptom.sources),)),
        Field("page", (symptom_page(symptom.name),)),
    )
    lead = f"{symptom.title} ({', '.join(recognized.clients)})"
    return Section(title=symptom.name, lead=lead, parts=(Fields(fields),))


def _values(sentences: Sequence[str]) -> tuple[Value, ...]:
    return tuple(value for sentence in sentences for value in text_values(sentence))


def _checked_section(checks: ResourceChecks, named: NamedResources, scope: str | None) -> Section:
    """Findings about the named partitions, or about all, and failed checks."""
    said = map(Paragraph, said_of_ids(checks))
    not_checked = (Paragraph(f"not checked: {each}") for each in checks.not_checked)
    total = Fields((Field("in all", (_sum(checks, named, scope),)),), indent=0)
    return Section(title="Looked up", parts=(*said, *finding_parts(checks.findings), total, *not_checked))


def said_of_ids(checks: ResourceChecks) -> list[str]:
    """Coordinator state of ids, the end of their last transactions, and the lag of groups: a sentence each."""
    are_several = len({each.transactional_id for each in checks.history}) > 1
    ended = (_ended(each, is_named=are_several) for each in checks.history)
    return [*map(_transaction, checks.transactions), *ended, *map(_lag, checks.group_lag)]


def _pasted_lines(records: Sequence[TransactionLogRecord]) -> list[str]:
    """A line for each of the first, and how many more there are."""
    more = records[MAX_NAMED:]
    still = sum(not is_over(each) for each in more)
    rest = [f"{count(len(more), 'more transactional id')} in the text, {still:,} of them open by the last record"]
    return [*map(_pasted, records[:MAX_NAMED]), *(rest if more else [])]


def _pasted(record: TransactionLogRecord) -> str:
    if record.tombstone:
        return f'transactional id "{record.transactional_id}": deleted, by its last record in the text'
    places = ", ".join(f"{topic}-{partition}" for topic, partition in record.topic_partitions or ())
    time = "" if record.last_update_time is None else f", at {at(record.last_update_time)}"
    return (
        f'transactional id "{record.transactional_id}": {record.state} by its last record in the text{time}, '
        f"producer {number(record.producer_id)} epoch {number(record.producer_epoch)}"
        + (f", on {places}" if places else "")
    )


def named_line(named: NamedResources) -> str:
    """``transactional id "payments-7", group "billing", orders-0``; empty if nothing is named."""
    parts = [f'transactional id "{each}"' for each in named.transactional_ids]
    parts += [f'group "{each}"' for each in named.groups]
    parts += [f"topic {each}" for each in named.topics]
    if named.partitions:
        parts.append(first_names([f"{topic}-{partition}" for topic, partition in named.partitions], 2 * MAX_NAMED))
    parts += [f"producer {each}" for each in named.producer_ids]
    return ", ".join(parts)


def _sum(checks: ResourceChecks, named: NamedResources, scope: str | None) -> str:
    """The last line; an all-clear names what was read."""
    if checks.findings:
        incomplete = "; not everything was checked" if checks.is_incomplete else ""
        if named:  # what else was read for them is left out, and may hang
            are_several = len({each.tp for each in checks.findings}) > 1
            scope = f"on the partition{'s' if are_several else ''} above only"
        return summary(checks.findings, scope=scope) + incomplete
    if not checks.all_partitions:
        return "no partition was checked"
    if checks.is_incomplete:
        return "nothing was found open, but not everything was checked"
    clear = "nothing of it is open on any partition" if named else "nothing hangs, and nothing holds an LSO for long"
    return f"{clear} ({scope})" if scope else clear


def _transaction(owner: Transaction) -> str:
    if owner.transactional_id is None:
        return f"transactional ids: {owner.error}"
    if owner.error:
        return f'transactional id "{owner.transactional_id}": {owner.error}'
    text = f"{coordinator_says(owner)}, producer {number(owner.producer_id)} epoch {number(owner.producer_epoch)}"
    return text + (f", since {at(owner.start_time)}" if owner.start_time else "")


def _ended(past: PastTransaction, *, is_named: bool) -> str:
    when = past.end_time or past.decided_at or past.start_time
    of_id = f'"{past.transactional_id}": ' if is_named else ""
    error = f" {past.error}" if past.error else ""
    return f"  {of_id}{past.ended or past.kind}{f' at {at(when)}' if when else ''}: {past.reason}{error}"


def _lag(lag: GroupLag) -> str:
    where = f'group "{lag.group_id}"' + ("" if lag.topic is None else f", {lag.topic}-{lag.partition}")
    if lag.error:
        return f"{where}: {lag.error}"
    if lag.lag is None and lag.committed_offset is not None:  # of a share group, on older brokers
        return f"{where}: at offset {lag.committed_offset}, its lag is not known"
    if lag.lag is None:
        return f"{where}: nothing committed"
    rest = never_read(lag)
    others = (
        "" if lag.never_read is None else f", {lag.never_read} that no consumer receives{f' ({rest})' if rest else ''}"
    )
    text = f"{where}: lag {lag.lag}, of it {lag.behind} to read, {lag.held} held{others}"
    return f"{text}. {lag.reason}" if lag.beyond_end and lag.reason else text


_LISTS = ("causes", "checks", "safe", "never", "sources")  # texts of a symptom
_TEXTS = ListOf(STRING)
_OF_FINDING = {
    *("topic", "partition", "producer_id", "producer_epoch", "transactional_id", "start_offset"),
    *("verdict", "reason", "cause", "remedy", "command"),
}
_FINDING = tuple((each.name, each.type) for each in LINKED_FINDINGS.columns if each.name in _OF_FINDING)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedError:
    """A pasted error, and the state of the cluster about it."""

    recognized: tuple[RecognizedSymptom, ...]  # the symptoms that were recognized; empty if the text is unknown
    named: NamedResources  # ids, groups and partitions in the text, and those of the caller
    pasted: tuple[TransactionLogRecord, ...] = ()  # the last record of each transactional id in the text
    checks: ResourceChecks | None = None  # state of them in a source; null without a source
    scope: str | None = None  # what was read of the source
    connection: Connection = NOWHERE  # of the commands in it

    @property
    def symptoms(self) -> tuple[str, ...]:
        """Names of the symptoms, as in `toolkit.analysis.symptoms.SYMPTOMS`."""
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
        observed = _pasted_lines(self.pasted)
        if self.pasted:
            shared["observed"] = observed
        if self.checks is not None:
            shared["findings"] = [
                {name: row[name] for name, _ in _FINDING}
                for row in (linked_row(each, self.connection) for each in by_urgency(self.checks.findings))
            ]
            shared["observed"] = [*observed, *(each.strip() for each in said_of_ids(self.checks))]
            shared["not_checked"] = list(self.checks.not_checked)
        if not self.recognized:
            unknown: Row = {"symptom": None, "title": TITLE_OF_UNKNOWN, "clients": [], **{name: [] for name in _LISTS}}
            return [{**unknown, "checks": list(WHAT_TO_COLLECT), **shared}]
        return [
            {
                "symptom": each.symptom.name,
                "title": each.symptom.title,
                "clients": list(each.clients),
                **{name: list(getattr(each.symptom, name)) for name in _LISTS},
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

    def parts(self) -> list[Section]:
        """The explanation as parts of a document."""
        sections = [symptom_section(each) for each in self.recognized]
        if not self.recognized:
            collect = Fields((Field("collect", _values(WHAT_TO_COLLECT)),))
            sections.append(Section(title="unknown", lead=TITLE_OF_UNKNOWN, parts=(collect,)))
        if name := named_line(self.named):
            sections.append(Section(title="Named", lead=name, parts=()))
        if self.pasted:
            sections.append(Section(title="In the text", parts=tuple(map(Paragraph, _pasted_lines(self.pasted)))))
        return sections if self.checks is None else [*sections, _checked_section(self.checks, self.named, self.scope)]

    def lines(self, *, width: int | None = None) -> list[str]:
        """The explanation as lines of text, wrapped at `width` columns."""
        return text_lines(self.parts(), connection=self.connection, width=width)

    def __repr__(self) -> str:
        return repr(DocumentView(tuple(self.parts()), self.connection))

    def _repr_html_(self) -> str:
        """The same as HTML for a notebook, without network access."""
        return DocumentView(tuple(self.parts()), self.connection)._repr_html_()


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
    return ExplainedError(
        recognized=recognized,
        named=named,
        pasted=pasted_records(text),
        checks=checks,
        scope=source.scope_text if source else None,
        connection=Connection.of(source),
    )
