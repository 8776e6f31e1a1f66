"""Findings in groups: partitions of which the same is to be said, the most urgent first.

Thousands of partitions that were not read for one reason, or hundreds that hang for one cause, would hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeAlias

from toolkit.analysis.coordinator.transaction_owners import prefix_of
from toolkit.analysis.diagnosis.evidence_text import NO_ANSWER
from toolkit.analysis.diagnosis.verdicts import CAUSES
from toolkit.errors import UsageError
from toolkit.schema.live import Finding
from toolkit.schema.table import Error
from toolkit.schema.verdict import Verdict
from toolkit.views.row_formats import count
from toolkit.views.urgency import UrgencyKey, newest, urgency_key

MAX_ALIKE = 5  # partitions of a kind that have a block each
MAX_LINES = 20  # healthy transactions of a kind that have a line each
MAX_NAMES = 10  # topics, partitions of a topic, and ids that are named

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
        first = self.partitions[0][0]
        name = "all topics" if first.tp is None else str(first.tp)
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


def place(finding: Finding) -> Place:
    """The partition of a finding, and its cluster: two clusters may have a partition of one name."""
    return finding.cluster_id, finding.topic, finding.partition


def clusters(findings: Iterable[Finding]) -> list[str | None]:
    """The clusters of findings; null for those that do not know theirs."""
    return list(dict.fromkeys(finding.cluster_id for finding in findings))


def by_source(findings: Iterable[Finding]) -> list[Finding]:
    """Name sources that do not know their cluster, such as dumps: two transactions are not both first in one queue."""
    found: list[Finding] = []
    known: dict[tuple[object, ...], object] = {}
    for finding in findings:
        in_queue, number = (finding.topic, finding.partition, finding.queue_position), 1
        transaction = finding.key, finding.opened_at
        if finding.cluster_id is None and finding.queue_position is not None:
            while known.setdefault((*in_queue, number), transaction) != transaction:
                number += 1
        found.append(finding if number == 1 else replace(finding, cluster_id=f"not known ({number})"))
    return found


def check_cluster(findings: Iterable[Finding], what: str) -> None:
    """Raise UsageError if findings are of several clusters, as the tables beside them do not say of which they are."""
    found = clusters(by_source(findings))
    named = [each for each in found if each is not None]
    if len(named) > 1 or any(each.startswith("not known") for each in named):
        names = ", ".join(each or "not known" for each in found)
        raise UsageError(
            f"{what} is about one cluster, and these findings are of {len(found)}: {names}.",
            do="Select one: findings[findings.cluster_id == ...], or the findings of one source.",
        )


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
        if len(alike) > (1 if is_clear else MAX_LINES if rank[0] == 2 else MAX_ALIKE):
            groups.append((rank, FindingGroup(tuple(partition for _, partition in alike), cluster_id)))
        else:
            groups += [(rank, FindingGroup((partition,), cluster_id)) for rank, partition in alike]
    return [group for _, group in sorted(groups, key=itemgetter(0))]


def _tier(finding: Finding) -> int:
    """Blocks of what was read, blocks of what was not, and lines: most of what was not read is healthy."""
    return 2 if is_line(finding) else 1 if is_unread(finding) or finding.is_coordinators_only else 0


def is_unread(finding: Finding) -> bool:
    """Whether its partition was not read, and its LSO is not known to be held."""
    is_partition = finding.tp is not None and finding.producer_id is None
    return finding.verdict is Verdict.UNKNOWN and is_partition and not finding.offsets_held


def is_healthy(finding: Finding) -> bool:
    """Whether its verdict is a healthy one, no cause says otherwise, and nothing waits for a long time behind it."""
    waits = finding.verdict is Verdict.LONG and bool(finding.offsets_held) and finding.queue_position == 1
    return finding.verdict.is_healthy and not finding.cause and not waits


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
    name = str(finding.tp)
    missing = tuple(text.replace(name, "") for text in finding.missing)
    if finding.producer_id is None:
        broker = finding.broker_id if any(Error.of(text).code in NO_ANSWER for text in finding.missing) else None
        is_held = bool(finding.offsets_held)
        return finding.verdict, is_held, finding.reason.replace(name, ""), missing, finding.remedy, broker
    if finding.is_coordinators_only:
        return finding.verdict, finding.is_coordinators_only, Error.of(finding.error or "").code
    advice = finding.remedy.partition("kafka-txn ")[0] if finding.action == "abort" else ""
    said = finding.verdict, finding.outcome, finding.action, advice, missing, bool(finding.cause)
    return *said, _application(finding), *cause_names(finding.cause)


def _application(finding: Finding) -> str | None:
    return None if finding.transactional_id is None else prefix_of(finding.transactional_id)
