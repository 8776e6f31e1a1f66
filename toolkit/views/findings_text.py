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
from toolkit.analysis.diagnosis.verdicts import CAUSES, OUTCOMES
from toolkit.errors import UsageError
from toolkit.schema import FINDINGS, Column, ListOf, Row, Table
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.docs_links import cause_page, verdict_page
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding
from toolkit.schema.table import STRING, Error
from toolkit.schema.verdict import Verdict
from toolkit.views.document import (
    NOWHERE,
    Bullets,
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
from toolkit.views.renderers import text_lines
from toolkit.views.row_formats import count
from toolkit.views.urgency import age, expires_in

if TYPE_CHECKING:
    from rich.text import Text

_NAMES = re.compile(r"\(([a-z-]+(?:, [a-z-]+)*)\)$")  # at the end of a cause

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


def cause_names(cause: str | None) -> list[str]:
    """Names of the causes at the end of a finding's cause, the deciding one first."""
    match = _NAMES.search(cause or "")
    return [name for name in match[1].split(", ") if name in CAUSES] if match else []


def _toned(*tones: str) -> str:
    return "|".join(verdict for verdict in Verdict if verdict.tone in tones)


MAX_UNREAD = 5  # transactions on partitions that were not read, that have a block each
MAX_TOPICS = 10  # and their topics, or partitions of a topic, that are named
_STYLES = (
    (re.compile(r"^\S+(?= +LSO)", re.MULTILINE), "bold"),
    (re.compile(rf"(^  |(?<=^ {{11}}))({_toned('alarm')})\b", re.MULTILINE), "bold red"),
    (re.compile(rf"^  ({_toned('warn')})\b", re.MULTILINE), "bold yellow"),
    (re.compile(rf"\b({_toned('calm', 'muted')})(?=  producer)"), "green"),
    (re.compile(r"^  (owner|why|outcome|cause|error|where|missing|right|remedy|docs|next)\b", re.MULTILINE), "dim"),
    (re.compile(r"^ *kafka-(?:txn|acls\.sh|transactions\.sh) .*$", re.MULTILINE), "cyan"),
)


def finding_lines(
    findings: Data, *, width: int | None = None, connection: Connection = NOWHERE, most: int | None = None
) -> list[str]:
    """`finding_parts` for a terminal; `width`: columns to wrap at, between words; null for no wrapping."""
    return text_lines(finding_parts(findings, most=most), connection=connection, width=width)


def finding_parts(findings: Data, *, most: int | None = None) -> list[Part]:
    """A section per partition, healthy partitions in a line per transaction.

    `findings`: ``schema.FINDINGS`` in its order; a null column may be missing.
    `most`: of many, only the first ones are listed; all are counted by cause.
    """
    records = records_of(findings, Finding)
    many = len(clusters(records)) > 1
    partitions = [
        (
            f"{'all topics' if topic is None else f'{topic}-{partition}'}{f' of cluster {cluster}' if many else ''}",
            list(group),
        )
        for (cluster, topic, partition), group in groupby(records[:most], key=place)
    ]
    of_coordinators = [each for _, group in partitions for each in group if each.is_coordinators_only]
    if len(of_coordinators) > MAX_UNREAD:
        partitions = [pair for pair in partitions if not any(each.is_coordinators_only for each in pair[1])]
    unread: dict[tuple[object, ...], list[Finding]] = {}
    for _, (first, *_) in partitions:
        if _is_unread(first):
            unread.setdefault(_said(first), []).append(first)
    unread = {text: group for text, group in unread.items() if len(group) > MAX_UNREAD}
    partitions = [pair for pair in partitions if not _is_unread(pair[1][0]) or _said(pair[1][0]) not in unread]
    parts: list[Part] = []
    if grouped := groups(records):
        parts.append(Section(title="By cause", parts=(Bullets(tuple(grouped)),)))
    for healthy, group in groupby(
        partitions, key=lambda pair: all(is_healthy(each) or _is_over(each) for each in pair[1])
    ):
        if healthy:
            lines = (Field(name, (_short(finding),)) for name, findings in group for finding in findings)
            parts.append(Fields(tuple(lines), indent=0))
        else:
            parts += [_section(name, findings) for name, findings in group]
    if len(of_coordinators) > MAX_UNREAD:
        parts.append(_open_unread_section(of_coordinators))
    return [*parts, *(_unread_section(group) for group in unread.values())]


MANY = 25  # findings that are read one by one


def groups(findings: Sequence[Finding]) -> list[str]:
    """What many findings have in common, a sentence each, the most frequent first; none of a few findings.

    By verdict, cause, and application; or by producer id where no application is known.
    """
    found: dict[tuple[object, ...], list[Finding]] = {}
    for each in findings:
        if not (is_healthy(each) or _is_over(each) or _is_unread(each) or each.is_coordinators_only):
            by = each.owner or (None if each.producer_id is None else f"producer {each.producer_id}")
            found.setdefault((each.verdict, ", ".join(cause_names(each.cause)), by), []).append(each)
    if sum(map(len, found.values())) <= MANY:
        return []
    by_owner = {key: group for key, group in found.items() if len(group) > 1}
    rest: dict[tuple[object, ...], list[Finding]] = {}  # alone with their owner: only the cause is common
    for (verdict, cause, _), group in ((key, group) for key, group in found.items() if key not in by_owner):
        rest.setdefault((verdict, cause, None), []).extend(group)
    lines = []
    for (verdict, cause, owner), group in sorted({**rest, **by_owner}.items(), key=lambda item: -len(item[1])):
        common = " · ".join(str(each) for each in (verdict, cause, owner) if each)
        names = list(dict.fromkeys("all topics" if each.tp is None else str(each.tp) for each in group))
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        lines.append(f"{len(group):,} {common}: {', '.join(names[:3])}{more}")
    return lines[:MAX_TOPICS] + ([f"and {len(lines) - MAX_TOPICS:,} more groups"] if len(lines) > MAX_TOPICS else [])


def place(finding: Finding) -> tuple[str | None, str | None, int | None]:
    """The partition of a finding, and its cluster: two clusters may have a partition of one name."""
    return finding.cluster_id, finding.topic, finding.partition


def clusters(findings: Iterable[Finding]) -> list[str | None]:
    """The clusters of findings; null for those that do not know theirs."""
    return list(dict.fromkeys(finding.cluster_id for finding in findings))


def check_cluster(findings: Iterable[Finding], what: str) -> None:
    """Raise UsageError if findings are of several clusters, as the tables beside them do not say of which they are."""
    found = [each for each in clusters(findings) if each is not None]
    if len(found) > 1:
        raise UsageError(
            f"{what} is about one cluster, and these findings are of {len(found)}: {', '.join(found)}.",
            do="Select one: findings[findings.cluster_id == ...].",
        )


def summary(findings: Data, *, scope: str | None = None) -> str:
    """The summary in one line: ``2 partitions hang, 1 unknown, 14 open transactions are healthy``.

    `scope`: what was read, which an all-clear names; `Source.scope`.
    """
    records = records_of(findings, Finding)
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
        unread = sum(map(_is_unread, unknown))
        is_all = unread > 1 and all(_is_unread(each) or each.topic is None for each in unknown)
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


def is_healthy(finding: Finding) -> bool:
    """Whether its verdict is a healthy one, no cause says otherwise, and nothing waits for a long time behind it."""
    waits = finding.verdict is Verdict.LONG and bool(finding.offsets_held) and finding.queue_position == 1
    return finding.verdict.is_healthy and not finding.cause and not waits


def _is_over(finding: Finding) -> bool:
    return finding.verdict is Verdict.ENDED


def _short(finding: Finding) -> str:
    line = f"{finding.verdict}  {_past(finding) if _is_over(finding) else _who(finding) or finding.reason}"
    if finding.transactional_id:
        line += f' · id "{finding.transactional_id}"'
        if finding.owner:
            line += f": {finding.owner}"
    if (left := expires_in(finding)) is not None:
        line += f" · expires in {duration(left)}"
    elif finding.expires_at and (finding.brokers_time is None or finding.brokers_time < finding.expires_at):
        line += f" · expires at {at(finding.expires_at)}"
    return line


def _section(name: str, findings: Sequence[Finding]) -> Section:
    first, *behind = (finding for finding in findings if not _is_over(finding))
    over = [_short(finding).removeprefix("ended  ") for finding in findings if _is_over(finding)]
    fields = [*_fields(first), *_field("next", _next(first, behind)), *_field("ended", over)]
    return Section(title=name, lead=_headline(first), parts=(Fields(tuple(fields)),))


def _field(label: str, values: Iterable[Value]) -> list[Field]:
    """A field; none without values."""
    values = tuple(values)
    return [Field(label, values)] if values else []


def _is_unread(finding: Finding) -> bool:
    """Whether its partition was not read, and its LSO is not known to be held."""
    is_partition = finding.tp is not None and finding.producer_id is None
    return finding.verdict is Verdict.UNKNOWN and is_partition and not finding.offsets_held


def _said(finding: Finding) -> tuple[object, ...]:
    """What a block says of a partition that was not read, but for its name and offsets."""
    return finding.cluster_id, finding.reason, finding.missing, finding.remedy, finding.error


def _topics(findings: Sequence[Finding]) -> dict[str, list[int]]:
    """The partitions of findings, by topic."""
    topics: dict[str, set[int]] = {}
    for each in findings:
        topics.setdefault(each.topic or "", set()).add(each.partition or 0)
    return {topic: sorted(numbers) for topic, numbers in sorted(topics.items())}


def _by_topic(findings: Sequence[Finding]) -> list[str]:
    names = [f"{topic}: {_numbers(numbers)}" for topic, numbers in _topics(findings).items()]
    return [*names[:MAX_TOPICS], *([f"{len(names) - MAX_TOPICS:,} more topics"] if len(names) > MAX_TOPICS else [])]


def _unread_section(findings: Sequence[Finding]) -> Section:
    """Partitions that were not read for one reason: thousands of blocks would hide what was read and is not healthy."""
    verdict, *others = _fields(findings[0], topics=list(_topics(findings)))
    fields = (verdict, Field("where", tuple(_by_topic(findings))), *others)
    return Section(title=f"{count(len(findings), 'partition')} not read", parts=(Fields(fields),))


def _open_unread_section(findings: Sequence[Finding]) -> Section:
    """Transactions on partitions that were not read: those past their timeouts first, then all, by topic.

    Most of them are healthy, and thousands of blocks would hide what was read and is not.
    """
    topics = _topics(findings)
    partitions = sum(map(len, topics.values()))
    due = [(each.expires_at, each) for each in findings if each.expires_at and each.brokers_time]
    overdue = [each for end, each in sorted(due, key=itemgetter(0)) if each.brokers_time and each.brokers_time > end]
    past = [f"{each.tp}: {_short(each).removeprefix('unknown  ')}" for each in overdue[:MAX_UNREAD]]
    if len(overdue) > MAX_UNREAD:
        past.append(f"{len(overdue) - MAX_UNREAD:,} more past their timeouts")
    logs = f", and those of {count(partitions - 1, 'more partition')}" if partitions > 1 else ""
    fields = (
        *_field("overdue", past),
        Field(Verdict.UNKNOWN, tuple(_by_topic(findings))),
        Field("missing", (f"{findings[0].missing[0]}{logs}",)),
        Field("remedy", remedy(findings[0])),
        Field("docs", (verdict_page(Verdict.UNKNOWN),)),
    )
    opened = count(len(findings), "transaction that its coordinator has", "transactions that coordinators have")
    title = f"{count(partitions, 'partition')} not read"
    return Section(title=title, lead=f"{opened} open there", parts=(Fields(fields),))


def _numbers(partitions: Sequence[int]) -> str:
    numbers = ", ".join(map(str, partitions[:MAX_TOPICS]))
    return numbers if len(partitions) <= MAX_TOPICS else f"{numbers} and {len(partitions) - MAX_TOPICS:,} more"


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
    if any(Error.of(text).code == "TOPIC_AUTHORIZATION_FAILED" for text in finding.missing):
        names = (f"--topic={topic}" for topic in (topics or [finding.topic or ""])[:MAX_TOPICS])
        grant = ("kafka-acls.sh", "--add", "--allow-principal", "User:NAME", "--operation", "READ", *names)
        yield Field("right", (Command(grant),))
    yield Field("remedy", remedy(finding))
    yield Field("docs", (finding_page(finding.verdict, finding.cause),))


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
