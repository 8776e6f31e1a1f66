"""Findings as a document: how urgent each is, which are alike, and what is said of each.

In the order of ``schema.FINDINGS``: topic, partition, queue position. Each partition has a block: who holds the LSO,
why, what is safe, and what is open behind it. Partitions of which the same is to be said are one group, the most urgent
first: thousands that were not read for one reason would hide the others. The sentences are columns of the row; no
verdict is made here.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from toolkit.analysis.diagnosis.decision import CAUSES, OUTCOMES
from toolkit.analysis.diagnosis.evidence_text import NO_ANSWER, at, number
from toolkit.analysis.transaction_owners import prefix_of, shows_member
from toolkit.command_line import command_line, grant, quoted
from toolkit.errors import UsageError
from toolkit.schema import FINDINGS, Column, ListOf, Row, Table
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding, Partition
from toolkit.schema.log import LogTransaction, LsoStep
from toolkit.schema.table import STRING, Error, TransactionKey
from toolkit.schema.verdict import Verdict, cause_page, verdict_page
from toolkit.views.document import NOWHERE, Command, Connection, Field, Fields, Part, Section, Value, marked
from toolkit.views.renderers import text_lines
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from rich.text import Text


UrgencyKey: TypeAlias = tuple[bool, int, float, str, int, int]
TICK = dt.timedelta(seconds=1)
"""Files have the times at which they were copied in whole seconds: a record in them may be a little younger."""


def newest(findings: Iterable[Finding]) -> dt.datetime:
    """The brokers' time when the newest of them was observed; without it, when that was by the observer's clock."""
    found = list(findings)
    known = [each.brokers_time for each in found if each.brokers_time]
    return max(known or [each.observed_at for each in found if each.observed_at], default=dt.datetime.now(dt.UTC))


def age(finding: Finding, now: dt.datetime | None = None) -> dt.timedelta | None:
    """For how long it has held the LSO, or has been open; of an ended one, for how long it held it; null if unknown.

    `now`: by the brokers' clocks, as the times since when; by default when it was observed. It is unknown where no
        broker's time was read.
    """
    if finding.held_ms is not None:
        is_over = finding.held_to is not None or finding.verdict is Verdict.ENDED or finding.brokers_time is None
        later = dt.timedelta(0) if is_over or now is None else now - (finding.brokers_time or now)
        return dt.timedelta(milliseconds=finding.held_ms) + max(later, dt.timedelta(0))
    since, until = finding.held_from or finding.opened_at, finding.brokers_time and (now or finding.brokers_time)
    if since is None or until is None or since > until + TICK:
        return None
    return max(until - since, dt.timedelta(0))


def expires_in(finding: Finding) -> dt.timedelta | None:
    """The time left until its timeout, which is at most the timeout; null if it is over, or not known."""
    now, opened_at, expires_at = finding.brokers_time, finding.opened_at, finding.expires_at
    if now is None or expires_at is None or opened_at is None or finding.opened_at_clock != "coordinator":
        return None
    return expires_at - now if opened_at <= now < expires_at else None


def urgency_key(finding: Finding, until: dt.datetime) -> UrgencyKey:
    """What needs action or thought first, then the most urgent verdict, the oldest, by partition and queue position.

    Thousands of partitions that were not read would hide the one below them that has something to do.
    """
    length = age(finding, until) or dt.timedelta(0)
    place = finding.topic or "", finding.partition or 0, finding.queue_position or 0
    return _tier(finding) > 0, finding.verdict.urgency, -length.total_seconds(), *place


def by_urgency(findings: Iterable[Finding], now: dt.datetime | None = None) -> list[Finding]:
    """The most urgent first, as `urgency_key` ranks them.

    `findings`: the findings.
    `now`: time up to which ages are counted; that of the newest finding if null.
    """
    found = by_source(findings)
    until = now or newest(found)
    return sorted(found, key=lambda finding: urgency_key(finding, until))


def short_lines(findings: Iterable[Finding]) -> list[str]:
    """A line for each, aligned, the most urgent first: partition, start offset, verdict, id, how long, action.

    An id stands as a shell takes it; what is not known, or does not apply, is a dash. Many partitions that were not
    read for one reason have one line, the last.
    """
    found = by_urgency(findings)
    unread = [group for group in finding_groups(filter(is_unread, found)) if len(group.partitions) > 1]
    in_groups = {id(each) for group in unread for each in group.findings}
    cells = [
        (
            printable(partition_name(each)),
            "-" if each.start_offset is None else str(each.start_offset),
            str(each.verdict),
            "-" if each.transactional_id is None else quoted(each.transactional_id),
            "-" if (length := age(each)) is None else duration(length),
            each.action or "-",
        )
        for each in found
        if id(each) not in in_groups
    ]
    widths = [min(max(map(len, column)), MAX_WIDTH) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    for group in unread:
        first = group.findings[0]
        why = "; ".join(first.missing) or first.reason
        lines.append(printable(f"{len(group.partitions):,} partitions not read  {why}  {'; '.join(group.where())}"))
    return lines


MAX_ALIKE = 5  # partitions of a kind that have a block each
MAX_LINES = 20  # healthy transactions of a kind that have a line each
MAX_NAMES = 10  # topics, partitions of a topic, and ids that are named
MAX_WIDTH = 60  # of a column: a longer cell stands out of its own line only

_NAMES = re.compile(r"\(([a-z-]+(?:, [a-z-]+)*)\)$")  # at the end of a cause

Place: TypeAlias = tuple[str | None, str | None, int | None]
Rank: TypeAlias = tuple[int, *UrgencyKey]
Kind: TypeAlias = frozenset[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """The findings of one partition, or of many that are alike."""

    partitions: tuple[tuple[Finding, ...], ...]  # the most urgent first
    cluster_id: str | None = None  # where findings are of several clusters

    @property
    def name(self) -> str:
        """Its first partition."""
        name = partition_name(self.partitions[0][0])
        return name if self.cluster_id is None else f"{name} of cluster {self.cluster_id}"

    @property
    def is_healthy(self) -> bool:
        """Whether a line says it all."""
        return all(map(is_line, self.partitions[0]))

    @property
    def findings(self) -> list[Finding]:
        """The findings that it is a group for: without healthy ones behind others."""
        found = [each for partition in self.partitions for each in partition]
        return found if self.is_healthy else [each for each in found if not is_line(each)]

    @property
    def topics(self) -> dict[str, list[int]]:
        """Its partitions, by topic."""
        topics: dict[str, list[int]] = {}
        for tp in sorted(first.tp for first, *_ in self.partitions if first.tp is not None):
            topics.setdefault(tp.topic, []).append(tp.partition)
        return topics

    def where(self) -> list[str]:
        """A line for each topic with its partitions."""
        topics = self.topics
        lines = [f"{topic}: {first_names(list(map(str, numbers)))}" for topic, numbers in topics.items()]
        more = len(lines) - MAX_NAMES
        return [*lines[:MAX_NAMES], *([f"{count(more, 'more topic')}"] if more > 0 else [])]

    def common(self) -> list[str]:
        """What its partitions have in common: cluster, verdict, causes, application."""
        first = self.findings[0]
        words = [self.cluster_id and f"of cluster {self.cluster_id}", first.verdict, *cause_names(first.cause)]
        return [str(each) for each in (*words, first.owner) if each]

    def names(self) -> str:
        """Who it is: ids by name, and the number of producers."""
        ids = sorted({each.transactional_id for each in self.findings if each.transactional_id is not None})
        producers = {each.producer_id for each in self.findings if each.producer_id is not None}
        quoted = [f'"{each}"' for each in ids]
        of = count(len(producers), "producer")
        return f"{of}, {'id' if len(ids) == 1 else 'ids'} {first_names(quoted)}" if ids else f"{of} without a known id"


def partition_name(finding: Finding) -> str:
    """``orders-0``, or "all topics"."""
    return "all topics" if finding.tp is None else str(finding.tp)


def transaction_name(finding: Finding) -> str:
    """``orders-0 at offset 15``."""
    offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
    return f"{partition_name(finding)}{offset}"


def place(finding: Finding) -> Place:
    """The partition of a finding, and its cluster: two clusters may have a partition of one name."""
    return finding.cluster_id, finding.topic, finding.partition


def clusters(findings: Iterable[Finding]) -> list[str | None]:
    """The clusters of findings; null for those that do not know theirs."""
    return list(dict.fromkeys(finding.cluster_id for finding in by_source(findings)))


def by_source(findings: Iterable[Finding]) -> list[Finding]:
    """Name sources that do not know their cluster, such as dumps: two transactions are not both first in one queue."""
    found: list[Finding] = []
    known: dict[tuple[object, ...], object] = {}
    for finding in findings:
        in_queue, source = (finding.topic, finding.partition, finding.queue_position), 1
        transaction = finding.key, finding.opened_at
        if finding.cluster_id is None and finding.queue_position is not None:
            while known.setdefault((*in_queue, source), transaction) != transaction:
                source += 1
        found.append(finding if source == 1 else replace(finding, cluster_id=f"not known ({source})"))
    return found


def check_cluster(findings: Iterable[Finding], what: str) -> None:
    """Raise UsageError if findings are of several clusters, as the tables beside them do not say of which they are."""
    found = clusters(findings)
    named = [each for each in found if each is not None]
    if len(named) > 1 or any(each.startswith("not known") for each in named):
        names = ", ".join(each or "not known" for each in found)
        raise UsageError(
            f"{what} is about one cluster, and these findings are of {len(found)}: {names}.",
            do="Select one: findings[findings.cluster_id == ...], or the findings of one source.",
        )


OfReplica = TypeVar("OfReplica", LogTransaction, LsoStep, Partition)


def of_one_replica(rows: Sequence[OfReplica], findings: Iterable[Finding]) -> list[OfReplica]:
    """The rows of a partition of the replica that findings are of, and what could not be read of any.

    Without it, of the one that reaches furthest: another one may lag, and show as open what has ended. But a former
    leader may have markers that the log has lost. Samples of leaders have one row for each time.
    """
    diagnosed = {each.broker_id for each in findings} - {None}
    best: dict[dt.datetime | None, tuple[tuple[bool, int], int | None]] = {}
    for row in rows:
        reach = row.broker_id in diagnosed, _reach(row)
        best[_sampled_at(row)] = max(
            best.get(_sampled_at(row), ((False, -1), None)), (reach, row.broker_id), key=itemgetter(0)
        )
    return [row for row in rows if row.error or row.broker_id == best[_sampled_at(row)][1]]


def _sampled_at(row: LogTransaction | LsoStep | Partition) -> dt.datetime | None:
    return row.observed_at if isinstance(row, Partition) else None


def _reach(row: LogTransaction | LsoStep | Partition) -> int:
    if isinstance(row, LogTransaction):
        return max(row.marker_offset or 0, row.last_offset or 0)
    return (row.offset if isinstance(row, LsoStep) else row.high_watermark) or 0


def first_names(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """The first of many names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def finding_groups(findings: Iterable[Finding]) -> list[FindingGroup]:
    """Findings by partition, those that are alike in one group; the most urgent first, then what was not read."""
    found = by_source(findings)
    until, are_several = newest(found), len(clusters(found)) > 1
    by_partition: dict[Place, list[Finding]] = {}
    for each in found:
        by_partition.setdefault(place(each), []).append(each)
    kinds: dict[Kind, list[tuple[Rank, tuple[Finding, ...]]]] = {}
    for partition in by_partition.values():
        rank = min((_tier(each), *urgency_key(each, until)) for each in partition)
        kinds.setdefault(_kind(partition), []).append((rank, tuple(partition)))
    groups: list[tuple[Rank, FindingGroup]] = []
    for alike in kinds.values():
        alike.sort(key=itemgetter(0))
        rank, (first, *_) = alike[0]
        is_clear, cluster_id = first.verdict is Verdict.CLEAR, first.cluster_id if are_several else None
        if len(alike) > (1 if is_clear else MAX_LINES if rank[0] == LINES else MAX_ALIKE):
            groups.append((rank, FindingGroup(tuple(partition for _, partition in alike), cluster_id)))
        else:
            groups += [(rank, FindingGroup((partition,), cluster_id)) for rank, partition in alike]
    return [group for _, group in sorted(groups, key=itemgetter(0))]


LINES = 3  # the last tier


def _tier(finding: Finding) -> int:
    """Blocks of what needs action or thought, blocks of what was not read, live transactions, and lines."""
    if is_line(finding):
        return LINES
    return 1 if is_unread(finding) or finding.is_coordinators_only else 2 if needs_no_action(finding) else 0


def is_unread(finding: Finding) -> bool:
    """Whether its partition was not read, and its LSO is not known to be held."""
    is_partition = finding.tp is not None and finding.producer_id is None
    return finding.verdict is Verdict.UNKNOWN and is_partition and not finding.offsets_held


def needs_no_action(finding: Finding) -> bool:
    """Whether its verdict is a healthy one, no cause says otherwise, and nothing waits for a long time behind it."""
    is_long = finding.verdict is Verdict.LONG and _is_waited_for(finding)
    return finding.verdict.is_healthy and not finding.cause and not is_long


def is_healthy(finding: Finding) -> bool:
    """Whether it needs no action, and no records wait for a process of which nothing is seen.

    Within its timeout, a dead process looks like one that is at work.
    """
    is_unseen = finding.verdict.is_live and _is_waited_for(finding) and not shows_member(finding.owner)
    return needs_no_action(finding) and not is_unseen


def _is_waited_for(finding: Finding) -> bool:
    return bool(finding.offsets_held) and finding.queue_position == 1


def is_line(finding: Finding) -> bool:
    """Whether a line says it all: it is healthy, or over."""
    return finding.verdict is Verdict.ENDED or is_healthy(finding)


def cause_names(cause: str | None) -> list[str]:
    """Names of the causes at the end of a finding's cause, the deciding one first."""
    match = _NAMES.search(cause or "")
    return [name for name in match[1].split(", ") if name in CAUSES] if match else []


def _kind(partition: Sequence[Finding]) -> Kind:
    """What is said of a partition, but for its name, its offsets and its times."""
    worst = [each for each in partition if not is_line(each)]
    return frozenset((each.cluster_id, *_said(each)) for each in worst or partition)


def _said(finding: Finding) -> tuple[object, ...]:
    if is_line(finding):
        return finding.verdict, _application(finding), *cause_names(finding.cause)
    if needs_no_action(finding):
        return finding.verdict, "unseen"  # of many applications, too: on a busy cluster each has some
    name = str(finding.tp)
    missing = tuple(text.replace(name, "") for text in finding.missing)
    if finding.producer_id is None:
        broker = finding.broker_id if any(Error.of(text).code in NO_ANSWER for text in finding.missing) else None
        is_held = bool(finding.offsets_held)
        return finding.verdict, is_held, finding.reason.replace(name, ""), missing, finding.remedy, broker
    if finding.is_coordinators_only:
        return finding.verdict, finding.is_coordinators_only, Error.of(finding.error or "").code
    advice = finding.advice if finding.action == "abort" else ""
    said = finding.verdict, finding.outcome, finding.action, advice, missing, bool(finding.cause)
    return *said, _application(finding), *cause_names(finding.cause)


def _application(finding: Finding) -> str | None:
    return None if finding.transactional_id is None else prefix_of(finding.transactional_id)


LINKED_FINDINGS = Table(
    "findings_with_docs",
    FINDINGS.row,
    (
        *FINDINGS.columns,
        Column("docs", STRING, "Page of the docs about its cause, or about its verdict."),
        Column("command", ListOf(STRING), "Arguments of the command that the remedy names; null if it names none."),
    ),
    FINDINGS.key,
    FINDINGS.sort,
    FINDINGS.version,
)
"""Findings with the page of the docs and the command of the remedy, for JSON and CSV."""


def remedy(finding: Finding) -> tuple[Value, ...]:
    """What is safe: sentences, and a command."""
    own = finding.command
    if own is None:
        return (marked(finding.remedy),)  # of one line: a recording, or an id in it, says what it likes
    line = command_line(own)
    return tuple(Command(own) if each == line else marked(each) for each in finding.remedy.split("\n"))


def linked_row(finding: Finding, connection: Connection) -> Row:
    """A row of `LINKED_FINDINGS`; its command runs as it stands."""
    command = None if finding.command is None else list(connection.argv(Command(finding.command)))
    return {**finding.row(), "docs": finding_page(finding.verdict, finding.cause), "command": command}


def finding_page(verdict: Verdict, cause: str | None) -> str:
    """Address of the page about a finding's deciding cause, or about its verdict if the cause has no name."""
    names = cause_names(cause)
    return cause_page(names[0]) if names else verdict_page(verdict)


def _toned(*tones: str) -> str:
    return "|".join(verdict for verdict in Verdict if verdict.tone in tones)


_LABELS = "owner|why|outcome|cause|error|where|overdue|first|missing|right|remedy|docs|next"
_STYLES = (
    (re.compile(r"^\S+(?= +LSO)", re.MULTILINE), "bold"),
    (re.compile(rf"(^  |(?<=^ {{11}}))({_toned('alarm')})\b", re.MULTILINE), "bold red"),
    (re.compile(rf"^  ({_toned('warn')})\b", re.MULTILINE), "bold yellow"),
    (re.compile(rf"\b({_toned('calm', 'muted')})(?=  producer)"), "green"),
    (re.compile(rf"^  ({_LABELS})\b", re.MULTILINE), "dim"),
    (re.compile(r"^ *kafka-(?:txn|acls\.sh|transactions\.sh) .*$", re.MULTILINE), "cyan"),
)


def finding_lines(findings: Data, *, width: int | None = None, connection: Connection = NOWHERE) -> list[str]:
    """`finding_parts` for a terminal; `width`: columns to wrap at, between words; null for no wrapping."""
    return text_lines(finding_parts(records_of(findings, Finding)), connection=connection, width=width)


def finding_parts(findings: Iterable[Finding]) -> list[Part]:
    """A section per partition, or for many that are alike; healthy partitions in a line per transaction."""
    return parts_of_groups(finding_groups(findings))


def parts_of_groups(groups: Iterable[FindingGroup], *, incomplete: Container[Place] = ()) -> list[Part]:
    """A section per group; healthy ones in lines. `incomplete`: partitions with others that are not among them."""
    parts: list[Part] = []
    for is_line, alike in groupby(groups, key=lambda group: group.is_healthy):
        if is_line:
            parts.append(Fields(tuple(field for group in alike for field in group_lines(group)), indent=0))
        else:
            parts += (_section(each, incomplete=incomplete) for each in alike)
    return parts


def group_lines(group: FindingGroup) -> Iterator[Field]:
    """A line per transaction; one for many that are alike."""
    first = group.partitions[0][0]
    if len(group.partitions) == 1:
        yield from (Field(group.name, (_short(each),)) for each in group.partitions[0])
        return
    who = f"{group.names()} · " if first.producer_id is not None else ""
    yield Field(count(len(group.partitions), "partition"), (f"{first.verdict}  {who}{'; '.join(group.where())}",))


def group_sentences(groups: Iterable[FindingGroup]) -> list[str]:
    """A sentence for each group of many partitions that are not healthy."""
    many = [group for group in groups if len(group.partitions) > 1 and not group.is_healthy]
    return [
        f"{count(len(group.partitions), 'partition')} {' · '.join(group.common())}: {'; '.join(group.where())}"
        for group in many
    ]


def summary(findings: Data, *, scope: str | None = None, are_selected: bool = False) -> str:
    """The summary in one line: ``2 partitions hang, 1 unknown, 14 open transactions are not overdue``.

    Within its timeout, a dead process looks like one that is at work: none is called healthy.

    `scope`: what was read, which an all-clear names; `Source.scope`. `are_selected`: whether others may have
    been left out, which may hang.
    """
    records = by_source(records_of(findings, Finding))
    hanging = len({place(finding) for finding in records if finding.verdict is Verdict.HANGING})
    undelivered = [finding for finding in records if finding.action == "complete"]  # decided, and the marker is missing
    healthy = sum(map(is_healthy, (finding for finding in records if finding.producer_id is not None)))
    rest = (finding for finding in records if finding.verdict is not Verdict.HANGING and finding.action != "complete")
    others = Counter(finding.verdict for finding in rest if not is_healthy(finding))
    parts = [count(hanging, "partition hangs", "partitions hang")] if hanging else []
    parts += [_missing_markers(undelivered)] if undelivered else []
    unknown = [each for each in records if each.verdict is Verdict.UNKNOWN]
    if not parts and (not unknown or all(each.topic is None or each.is_coordinators_only for each in unknown)):
        clear = "nothing that was read hangs" if unknown else "nothing hangs"
        parts = ["none of these hangs" if are_selected else clear]
    elif not parts and len(unknown) == len(records):
        unread = sum(map(is_unread, unknown))
        is_all = unread > 1 and all(is_unread(each) or each.topic is None for each in unknown)
        parts = [f"not known: {unread:,} partitions could not be read" if is_all else "not known"]
    parts += [f"{many:,} {verdict}" for verdict, many in sorted(others.items())]
    if healthy:
        parts.append(count(healthy, "open transaction is not overdue", "open transactions are not overdue"))
    elif not records:
        parts.append("no transaction is open")
    is_clear = not any(each.action or each.verdict.exit_code for each in records)
    return ", ".join(parts) + (f" ({scope})" if scope and is_clear else "")


def _missing_markers(findings: Sequence[Finding]) -> str:
    """What decided transactions hold: ``2 partitions are held because their COMMIT markers are missing``."""
    outcomes = {str(finding.outcome).upper() for finding in findings}
    marker = f"{min(outcomes)} marker" if len(outcomes) == 1 else "marker"
    partitions = len(set(map(place, findings)))
    return count(
        partitions,
        f"partition is held because its {marker} is missing",
        f"partitions are held because their {marker}s are missing",
    )


def paint(lines: Iterable[str]) -> Text:
    """Print lines in the colours of a terminal, if it has any."""
    from rich.text import Text

    text = Text("\n".join(lines))
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def _short(finding: Finding) -> str:
    line = (
        f"{finding.verdict}  {_past(finding) if finding.verdict is Verdict.ENDED else _who(finding) or finding.reason}"
    )
    if finding.transactional_id:
        line += f' · id "{finding.transactional_id}"'
        if finding.owner:
            line += f": {finding.owner}"
    if (left := expires_in(finding)) is not None:
        line += f" · expires in {duration(left)}"
    elif finding.expires_at and (finding.brokers_time is None or finding.brokers_time < finding.expires_at):
        line += f" · expires at {at(finding.expires_at)}"
    return line


def _section(group: FindingGroup, *, incomplete: Container[Place]) -> Section:
    if len(group.partitions) > 1:
        return group_section(group)
    (findings,) = group.partitions
    first, *behind = (finding for finding in findings if finding.verdict is not Verdict.ENDED)
    over = [_short(finding).removeprefix("ended  ") for finding in findings if finding.verdict is Verdict.ENDED]
    own = finding_section(first)
    then = _next(first, behind, is_incomplete=place(first) in incomplete)
    fields = [*own.fields, *_field("next", then), *_field("ended", over)]
    return replace(own, title=group.name, parts=(Fields(tuple(fields)),))


def finding_section(finding: Finding, *, end: HoldEnd | None = None) -> Section:
    """One transaction, or a partition that could not be read: what it holds, whose it is, why, and what is safe.

    `end`: of an ended one, if more is known of it than the finding has.
    """
    lead = _headline(finding, end or hold_end(finding))
    return Section(title=transaction_name(finding), lead=lead, parts=(Fields(tuple(_fields(finding))),))


def group_section(group: FindingGroup) -> Section:
    """Many partitions that are alike: what they have in common, where they are, and the most urgent one."""
    partitions, found = len(group.partitions), group.findings
    first = found[0]
    why, *others = explained_fields(first, topics=list(group.topics))
    if first.producer_id is None:
        fields = [Field(first.verdict, why.values), Field("where", tuple(group.where())), *others]
        unread = f"{count(partitions, 'partition')} not read" if is_unread(first) else count(partitions, "partition")
        return Section(title=unread, parts=(Fields(tuple(fields)),))
    fields = [
        Field(first.verdict, (f"{count(len(found), 'transaction')} of {group.names()}",)),
        Field("where", tuple(group.where())),
        *_field("overdue", _overdue(found) if first.is_coordinators_only else ()),
        Field("first", (f"{group.name}: {_short(first).removeprefix(f'{first.verdict}  ')}",)),
        *_field("why", () if first.is_coordinators_only else why.values),
    ]
    for field in others:
        if field.label == "missing" and first.is_coordinators_only:
            logs = f"{field.values[0]}, and those of {count(partitions - 1, 'more partition')}"
            fields.append(Field("missing", (logs, *field.values[1:])))
        elif field.label == "remedy" and first.command:
            fields.append(Field("remedy", (f"Of {group.name}:", *field.values, *_for_all(group, first))))
        else:
            fields.append(field)
    if first.is_coordinators_only:
        opened = count(len(found), "transaction that its coordinator has", "transactions that coordinators have")
        title, lead = f"{count(partitions, 'partition')} not read", f"{opened} open there"
    else:
        title, lead = count(partitions, "partition"), _sum(found)
    return Section(title=title, lead=lead, parts=(Fields(tuple(fields)),))


def _for_all(group: FindingGroup, first: Finding) -> Iterator[Value]:
    """How to do the same on all of its partitions: an abort has lists."""
    topics = list(group.topics)
    named = [word for each in topics if len(topics) <= MAX_NAMES for word in ("--topic", each)]
    if first.action != "abort":
        yield "The others have commands of their own:"
        yield Command(("kafka-txn", "find-hanging", "--verdict", first.verdict, *named))
        return
    yield "All that hang there: write the list of this command to a file, hanging.csv,"
    yield Command(("kafka-txn", "find-hanging", "--verdict", first.verdict, *named, "--format", "csv"))
    yield "and abort them one after another; it stops at the first that is not as planned:"
    yield Command(("kafka-txn", "abort", "--list", "hanging.csv"))


def _overdue(findings: Sequence[Finding]) -> list[str]:
    """Those past their timeouts, the longest first: most of the others are healthy."""
    due = [(each.expires_at, each) for each in findings if each.expires_at and each.brokers_time]
    overdue = [each for end, each in sorted(due, key=itemgetter(0)) if each.brokers_time and each.brokers_time > end]
    past = [f"{each.tp}: {_short(each).removeprefix('unknown  ')}" for each in overdue[:MAX_ALIKE]]
    more = len(overdue) - MAX_ALIKE
    return [*past, *([f"{more:,} more past their timeouts"] if more > 0 else [])]


def _sum(findings: Sequence[Finding]) -> str:
    """How long they hold their LSOs, and what waits: ``held for up to 2 h · 2,115 records waiting``."""
    parts = []
    if lengths := [length for each in findings if (length := age(each)) is not None]:
        parts.append(f"open for up to {duration(max(lengths))}")
    holders = {each.tp: each for each in findings if each.queue_position == 1}.values()
    is_read = bool(holders) and all(each.records_held is not None for each in holders)
    records = sum(each.records_held or 0 for each in holders) if is_read else None
    parts += held_text(records, sum(each.offsets_held or 0 for each in holders) or None, "waiting")
    if groups := sorted({group for each in findings for group in each.groups_held or ()}):
        parts.append(groups_text(groups))
    return " · ".join(parts)


def _field(label: str, values: Iterable[Value]) -> list[Field]:
    """A field; none without values."""
    values = tuple(values)
    return [Field(label, values)] if values else []


def _headline(finding: Finding, end: HoldEnd | None) -> str:
    """``LSO 913095344 held for 2 h 14 min · 2,115 records waiting · group "my-group" cannot move``."""
    if finding.topic is None:
        return ""
    is_over = finding.verdict is Verdict.ENDED
    lso = finding.start_offset if is_over else finding.last_stable_offset
    parts = ["LSO unknown" if lso is None else f"LSO {lso}"]
    if is_over:
        parts[0] += " was held" + _for_how_long(finding, end)
    elif finding.queue_position == 1:
        parts[0] += " held"
        length, since = age(finding), finding.held_from or finding.opened_at
        if length is not None and length >= dt.timedelta(seconds=1):
            parts[0] += f" for {duration(length)}"
        elif since and (length is not None or finding.brokers_time is None):
            parts[0] += f" since {at(since)}"  # of files that end with its records, how long is not known
    parts += held_text(finding.records_held, finding.offsets_held, "waited" if is_over else "waiting")
    if finding.groups_held:
        parts.append(groups_text(finding.groups_held, "could not move" if is_over else "cannot move"))
    return " · ".join(parts)


def held_text(records: int | None, offsets: int | None, verb: str, verb_of_many: str = "") -> list[str]:
    """``2,115 records waiting``; offsets, where the log was not read; nothing where neither is known."""
    for amount, what in ((records, "record"), (offsets, "offset")):
        if amount is not None:
            return [count(amount, f"{what} {verb}", f"{what}s {verb_of_many or verb}")]
    return []


def groups_text(groups: Sequence[str], verb: str = "cannot move") -> str:
    """``group "billing" cannot move``, or ``groups "billing", "ledger", "mail" and 2 more cannot move``."""
    if len(groups) == 1:
        return f'group "{groups[0]}" {verb}'
    names = [*(f'"{each}"' for each in groups[:3]), *([f"{len(groups) - 3:,} more"] if len(groups) > 3 else [])]
    return f"groups {', '.join(names[:-1])} and {names[-1]} {verb}"


def _fields(finding: Finding) -> Iterator[Field]:
    """Without a producer, only the reason."""
    who, position = _who(finding), finding.queue_position or 1
    if who:
        turn = f", behind {count(position - 1, 'other', 'others')}" if position > 1 else ""
        yield Field(finding.verdict, (who + turn,))
    if finding.owner and finding.transactional_id:
        yield Field("owner", (f'"{finding.transactional_id}": {finding.owner}',))
    elif finding.transactional_id and not is_line(finding) and finding.verdict.is_live:
        yield Field("owner", (f'"{finding.transactional_id}": not known; Kafka shows it only if the id names a group',))
    why, *rest = explained_fields(finding)
    yield why if who else Field(finding.verdict, why.values)
    yield from rest


def explained_fields(finding: Finding, *, topics: Sequence[str] = ()) -> Iterator[Field]:
    """Why, by which cause, what is missing, and what is safe, for every reader. `topics`: those that it stands for."""
    yield Field("why", (finding.reason,))
    is_fine = needs_no_action(finding)
    if finding.outcome and not is_fine:
        yield Field("outcome", (f"{finding.outcome}: {OUTCOMES.get(finding.outcome, '')}",))
    error = None if finding.is_coordinators_only else finding.error  # `missing` has it
    yield from (Field(label, (text,)) for label, text in (("cause", finding.cause), ("error", error)) if text)
    yield from _field("missing", (text for text in finding.missing if text != finding.error))
    yield from _field("right", right(finding, topics or [finding.topic or ""]))
    yield Field("remedy", remedy(finding))
    if not is_fine:
        yield Field("docs", (finding_page(finding.verdict, finding.cause),))


def right(finding: Finding, topics: Sequence[str]) -> Iterator[Value]:
    """The right that is missing, and the command that grants it; to all topics, where there are too many."""
    if all(Error.of(text).code != "TOPIC_AUTHORIZATION_FAILED" for text in finding.missing):
        return
    if len(topics) <= MAX_NAMES:
        yield f"READ on {count(len(topics), 'topic')}:"
        yield Command(grant("READ", "topic", topics))
    else:
        yield f"READ on {len(topics):,} topics; to all topics of the cluster:"
        yield Command(grant("READ", "topic", ["*"]))


def _next(first: Finding, behind: Sequence[Finding], *, is_incomplete: bool) -> Iterator[Value]:
    """The next LSO once the first transaction has ended, and what is open then."""
    then = min((finding.start_offset for finding in behind if finding.start_offset is not None), default=None)
    is_next_shown = not (is_incomplete and behind) or any(each.queue_position == 2 for each in behind)
    if first.queue_position == 1 and is_next_shown:  # before another one may be others, which are not shown
        goes = "the LSO goes to the high watermark" if then is None else f"the LSO goes to {then}"
        alone = ", if nothing else is open" if is_incomplete else ": nothing else is open"
        yield goes if behind else goes + alone
    for finding in behind:
        yield f"{finding.verdict}  {_who(finding) or finding.reason}"
        if not is_healthy(finding):
            yield from (finding.reason,) if _who(finding) else ()
            yield from remedy(finding)


def _who(finding: Finding) -> str:
    """``producer 171100 epoch 1, open since 2026-11-21 09:58:11 UTC at offset 913095344``."""
    if finding.producer_id is None:
        return ""
    epoch = number(finding.producer_epoch)
    since = f" since {at(finding.opened_at)}" if finding.opened_at else ""
    if finding.verdict is Verdict.ENDED:
        of = "" if finding.transactional_id is None else f' of "{finding.transactional_id}"'
        return (
            f"producer {finding.producer_id} epoch {epoch}{of}, which was open{since} at offset {finding.start_offset}"
        )
    clock = " by the producer's clock" if since and finding.opened_at_clock == "producer" else ""
    where = ", nothing written here yet" if finding.start_offset is None else f" at offset {finding.start_offset}"
    if finding.is_coordinators_only:
        where = " for its coordinator"
    return f"producer {finding.producer_id} epoch {epoch}, open{since}{clock}{where}"


_BY_MARKER = re.compile(r"Its (?:\w+ )?marker is at offset \d+ of the log\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEnd:
    """The end of a hold."""

    # time of the marker; or of the first sample without the transaction, and the marker was written before
    time: dt.datetime
    marker: str | None = None  # what is known of the marker, as a sentence; null if no log was read that has it
    last_seen: dt.datetime | None = None  # when it was last seen open, if the end is that of a sample and that is known


def hold_end(finding: Finding, log_transactions: Iterable[LogTransaction] = ()) -> HoldEnd | None:
    """When a finding stopped holding the LSO; null if it still holds it, or that is not known.

    `log_transactions`: transactions around it.
    """
    if finding.held_to is None:
        return None
    for txn in log_transactions:
        if transaction_key(txn) == finding.key and txn.marker_offset is not None and txn.end is not None:
            kind = f"{txn.marker} marker" if txn.marker else "marker"
            return HoldEnd(time=txn.end, marker=f"its {kind} at offset {txn.marker_offset} ended it")
    names = {entry.name for entry in finding.evidence or ()}
    if "marker" in names or _BY_MARKER.match(finding.reason or ""):
        return HoldEnd(time=finding.held_to, marker="its marker ended it")
    seen = [entry.observed_at for entry in finding.evidence or () if entry.name == "verdict_before"]
    return HoldEnd(time=finding.held_to, last_seen=next(iter(seen), None))


def transaction_key(txn: LogTransaction) -> TransactionKey:
    """The key of a transaction of a log, as findings have it."""
    return TransactionKey(txn.topic, txn.partition, txn.producer_id, txn.first_offset)


def _for_how_long(finding: Finding, end: HoldEnd | None) -> str:
    """Of an ended one; an end that only a sample shows is that of the first one without it."""
    if end is None or end.marker is None:
        length = None if finding.held_ms is None else dt.timedelta(milliseconds=finding.held_ms)
    else:
        length = max(end.time - finding.held_from, dt.timedelta()) if finding.held_from else None
    text = "" if length is None else f" for {up_to(end)}{duration(length)}"
    return text if end is None else f"{text} until {'' if end.marker else 'before '}{at(end.time)}"


def up_to(end: HoldEnd | None) -> str:
    """``at most``, for an end that is only the first sample without it."""
    return "at most " if end is not None and end.marker is None else ""


def _past(finding: Finding) -> str:
    """``producer 171100 epoch 1 held the LSO for 2 min until 2026-11-21 09:58:11 UTC, 2,115 records behind it``."""
    who = f"producer {finding.producer_id} epoch {number(finding.producer_epoch)}"
    text = f"{who} held the LSO{_for_how_long(finding, hold_end(finding))}"
    if finding.records_held:
        text += f", {count(finding.records_held, 'record', 'records')} behind it"
    return text
