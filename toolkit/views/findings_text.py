"""Findings as text for a terminal.

In the order of ``schema.FINDINGS``: topic, partition, queue position. Each partition has a block: who holds the LSO,
why, what is safe, and what is open behind it. The sentences are columns of the row; no verdict is made here.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.verdicts import OUTCOMES
from toolkit.schema import FINDINGS, Column, ListOf, Row, Table
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.docs_links import cause_page, verdict_page
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding
from toolkit.schema.table import STRING, Error
from toolkit.schema.verdict import Verdict
from toolkit.views.document import (
    NOWHERE,
    Command,
    Connection,
    Field,
    Fields,
    Part,
    Section,
    Value,
    commands_in,
    with_commands,
)
from toolkit.views.finding_groups import (
    MAX_ALIKE,
    MAX_NAMES,
    FindingGroup,
    by_source,
    cause_names,
    finding_groups,
    is_healthy,
    is_unread,
    place,
)
from toolkit.views.renderers import text_lines
from toolkit.views.row_formats import count
from toolkit.views.urgency import age, expires_in

if TYPE_CHECKING:
    from rich.text import Text

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
    """What is safe: sentences and commands."""
    return tuple(with_commands(finding.remedy, own=(finding.topic, finding.transactional_id)))


def linked_row(finding: Finding, connection: Connection) -> Row:
    """A row of `LINKED_FINDINGS`; its command runs as it stands."""
    command = next((list(connection.argv(each)) for each in commands_in(remedy(finding))), None)
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
    return text_lines(finding_parts(findings), connection=connection, width=width)


def finding_parts(findings: Data) -> list[Part]:
    """A section per partition, or for many that are alike; healthy partitions in a line per transaction.

    `findings`: ``schema.FINDINGS``; a null column may be missing.
    """
    return parts_of_groups(finding_groups(records_of(findings, Finding)))


def parts_of_groups(groups: Iterable[FindingGroup]) -> list[Part]:
    """A section per group; healthy ones in lines."""
    parts: list[Part] = []
    for is_line, alike in groupby(groups, key=lambda group: group.is_healthy):
        if is_line:
            parts.append(Fields(tuple(field for group in alike for field in group_lines(group)), indent=0))
        else:
            parts += map(_section, alike)
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


def summary(findings: Data, *, scope: str | None = None) -> str:
    """The summary in one line: ``2 partitions hang, 1 unknown, 14 open transactions are healthy``.

    `scope`: what was read, which an all-clear names; `Source.scope`.
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
        parts = ["nothing that was read hangs" if unknown else "nothing hangs"]
    elif not parts and len(unknown) == len(records):
        unread = sum(map(is_unread, unknown))
        is_all = unread > 1 and all(is_unread(each) or each.topic is None for each in unknown)
        parts = [f"not known: none of {unread:,} partitions could be read" if is_all else "not known"]
    parts += [f"{number:,} {verdict}" for verdict, number in sorted(others.items())]
    if healthy:
        parts.append(count(healthy, "open transaction is healthy", "open transactions are healthy"))
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


def _section(group: FindingGroup) -> Section:
    if len(group.partitions) > 1:
        return group_section(group)
    (findings,) = group.partitions
    first, *behind = (finding for finding in findings if finding.verdict is not Verdict.ENDED)
    over = [_short(finding).removeprefix("ended  ") for finding in findings if finding.verdict is Verdict.ENDED]
    fields = [*_fields(first), *_field("next", _next(first, behind)), *_field("ended", over)]
    return Section(title=group.name, lead=_headline(first), parts=(Fields(tuple(fields)),))


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
        if field.label == "missing" and first.is_coordinators_only and partitions > 1:
            logs = f"{field.values[0]}, and those of {count(partitions - 1, 'more partition')}"
            fields.append(Field("missing", (logs, *field.values[1:])))
        elif field.label == "remedy" and commands_in(field.values):
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
    if first.action != "abort":
        yield "The others have their own commands: kafka-txn diagnose with the topic and the partition shows each."
        return
    topics = list(group.topics)
    named = [word for each in topics if len(topics) <= MAX_NAMES for word in ("--topic", each)]
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
    if holders and all(each.records_held is not None for each in holders):
        held = sum(each.records_held or 0 for each in holders)
        parts.append(count(held, "record waiting", "records waiting"))
    elif offsets := sum(each.offsets_held or 0 for each in holders):
        parts.append(count(offsets, "offset waiting", "offsets waiting"))
    if groups := sorted({group for each in findings for group in each.groups_held or ()}):
        parts.append(_groups(groups))
    return " · ".join(parts)


def _field(label: str, values: Iterable[Value]) -> list[Field]:
    """A field; none without values."""
    values = tuple(values)
    return [Field(label, values)] if values else []


def _headline(finding: Finding) -> str:
    """``LSO 913095344 held for 2 h 14 min · 2,115 records waiting · group my-group cannot move``."""
    if finding.topic is None:
        return ""
    parts = ["LSO unknown" if finding.last_stable_offset is None else f"LSO {finding.last_stable_offset}"]
    if finding.queue_position == 1:
        parts[0] += " held"
        if (length := age(finding)) is not None:
            parts[0] += f" for {duration(length)}"
        elif finding.brokers_time is None and (since := finding.held_from or finding.opened_at):
            parts[0] += f" since {at(since)}"
    if finding.records_held is not None:
        parts.append(count(finding.records_held, "record waiting", "records waiting"))
    elif finding.offsets_held is not None:
        parts.append(count(finding.offsets_held, "offset waiting", "offsets waiting"))
    if finding.groups_held:
        parts.append(_groups(finding.groups_held))
    return " · ".join(parts)


def _groups(groups: Sequence[str]) -> str:
    if len(groups) == 1:
        return f"group {groups[0]} cannot move"
    names = [*groups[:3], *([f"{len(groups) - 3:,} more"] if len(groups) > 3 else [])]
    return f"groups {', '.join(names[:-1])} and {names[-1]} cannot move"


def _fields(finding: Finding, *, topics: Sequence[str] = ()) -> Iterator[Field]:
    """Without a producer, only the reason. `topics`: those that it stands for."""
    who, position = _who(finding), finding.queue_position or 1
    if who:
        turn = f", behind {count(position - 1, 'other', 'others')}" if position > 1 else ""
        yield Field(finding.verdict, (who + turn,))
    if finding.owner and finding.transactional_id:
        yield Field("owner", (f'"{finding.transactional_id}": {finding.owner}',))
    why, *rest = explained_fields(finding, topics=topics)
    yield why if who else Field(finding.verdict, why.values)
    left_out = {"outcome", "docs"} if is_healthy(finding) else set()
    yield from (each for each in rest if each.label not in left_out)


def explained_fields(finding: Finding, *, topics: Sequence[str] = ()) -> Iterator[Field]:
    """Why, by which cause, what is missing, and what is safe, for every reader. `topics`: those that it stands for."""
    yield Field("why", (finding.reason,))
    if finding.outcome:
        yield Field("outcome", (f"{finding.outcome}: {OUTCOMES.get(finding.outcome, '')}",))
    error = None if finding.is_coordinators_only else finding.error  # `missing` has it
    yield from (Field(label, (text,)) for label, text in (("cause", finding.cause), ("error", error)) if text)
    yield from _field("missing", (text for text in finding.missing if text != finding.error))
    yield from _field("right", right(finding, topics or [finding.topic or ""]))
    yield Field("remedy", remedy(finding))
    yield Field("docs", (finding_page(finding.verdict, finding.cause),))


def right(finding: Finding, topics: Sequence[str]) -> Iterator[Value]:
    """The right that is missing, and the command that grants it; to all topics, where there are too many."""
    if all(Error.of(text).code != "TOPIC_AUTHORIZATION_FAILED" for text in finding.missing):
        return
    grant = ("kafka-acls.sh", "--add", "--allow-principal", "User:NAME", "--operation", "READ")
    if len(topics) <= MAX_NAMES:
        yield f"READ on {count(len(topics), 'topic')}:"
        yield Command((*grant, *(f"--topic={topic}" for topic in topics)))
    else:
        yield f"READ on {len(topics):,} topics; to all topics of the cluster:"
        yield Command((*grant, "--topic=*"))


def _next(first: Finding, behind: Sequence[Finding]) -> Iterator[Value]:
    """The next LSO once the first transaction has ended, and what is open then."""
    then = min((finding.start_offset for finding in behind if finding.start_offset is not None), default=None)
    if first.queue_position is not None:
        goes = "the LSO goes to the high watermark" if then is None else f"the LSO goes to {then}"
        yield goes if behind else f"{goes}: nothing else is open"
    for finding in behind:
        yield f"{finding.verdict}  {_who(finding) or finding.reason}"
        if not is_healthy(finding):
            yield finding.reason
            yield from remedy(finding)


def _who(finding: Finding) -> str:
    """``producer 171100 epoch 1, open since 2026-11-21 09:58:11 UTC at offset 913095344``."""
    if finding.producer_id is None:
        return ""
    epoch = "unknown" if finding.producer_epoch is None else finding.producer_epoch
    since = f" since {at(finding.opened_at)}" if finding.opened_at else ""
    clock = " by the producer's clock" if since and finding.opened_at_clock == "producer" else ""
    where = ", nothing written here yet" if finding.start_offset is None else f" at offset {finding.start_offset}"
    if finding.is_coordinators_only:
        where = " for its coordinator"
    return f"producer {finding.producer_id} epoch {epoch}, open{since}{clock}{where}"


def _past(finding: Finding) -> str:
    """``producer 171100 epoch 1 held the LSO for 2 min until 2026-11-21 09:58:11 UTC, 2,115 records behind it``."""
    epoch = "unknown" if finding.producer_epoch is None else finding.producer_epoch
    text = f"producer {finding.producer_id} epoch {epoch} held the LSO"
    if finding.held_ms is not None:
        text += f" for {duration(dt.timedelta(milliseconds=finding.held_ms))}"
    if finding.held_to:
        text += f" until {at(finding.held_to)}"
    if finding.records_held:
        text += f", {count(finding.records_held, 'record', 'records')} behind it"
    return text
