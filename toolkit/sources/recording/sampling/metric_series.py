"""Values of a recorder's metrics by partition, group and broker, in bounded number for any cluster."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from toolkit.analysis.diagnosis.verdicts import BRIEF, COMMIT, OUTCOMES, VERDICTS
from toolkit.schema import Row
from toolkit.schema.offsets import GroupLag
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.recording.sampling.sample import Sample

MAX_PARTITIONS = MAX_GROUPS = 1000  # with a series of their own in Prometheus
MAX_GROUP_LAGS = 1000  # series, one per group and partition
OPEN = [verdict for verdict in VERDICTS if verdict not in {"clear", "ended", "unreplicated"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeries:
    """Metrics of one partition.

    Parameters
    ----------
    lso_lag
        Offsets from its LSO to its high watermark.
    held_seconds
        How long the transaction that holds the LSO has held it.
    open, hanging, late
        Number of transactions.
    commits_without_marker
        Number of transactions that were committed, and whose marker is missing here for long or for good.
    groups_held
        Groups that the transaction that holds the LSO blocks.
    """

    lso_lag: int
    held_seconds: float
    open: int
    hanging: int
    late: int
    commits_without_marker: int = 0
    groups_held: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLagSeries:
    """Number of offsets of one group on one partition: readable now, and beyond a held LSO."""

    behind: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """Metrics of the newest successful sample.

    Parameters
    ----------
    partitions
        Partitions with a transaction that holds the LSO longer than briefly, is late, or was already open in an earlier
        sample. Hanging ones and those with a commit without its marker are first, then late ones, then by how long the
        LSO is held.
    late_partitions
        Partitions with a late transaction, by their leader's broker id; 0 for brokers without.
    transactions
        Open transactions of the cluster by verdict.
    outcomes
        The same by what was decided about their records.
    groups
        Number of partitions on which each blocked group is blocked.
    omitted
        Number of partitions beyond the `MAX_PARTITIONS` in `partitions`.
    group_lags
        By group id, topic and partition, for groups with offsets beyond a held LSO; at most `MAX_GROUP_LAGS`, those
        with most held offsets.
    group_lags_omitted
        Number of further ones.
    gaps, unread
        Number of gaps in the coordinators' responses, and of partitions that could not be read.
    due, seconds
        Due time in epoch seconds, and duration. 0 before the first sample.
    interval
        Seconds between samples; null before the first sample, successful or failed.
    """

    partitions: Mapping[TopicPartition, PartitionSeries] = field(default_factory=dict)
    late_partitions: Mapping[int, int] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    omitted: int = 0
    group_lags: Mapping[tuple[str, str, int], GroupLagSeries] = field(default_factory=dict)
    group_lags_omitted: int = 0
    gaps: int = 0
    unread: int = 0
    due: float = 0.0
    seconds: float = 0.0
    interval: float | None = None


def measure(sample: Sample, before: MetricSeries) -> MetricSeries:
    """Metrics of a sample.

    Parameters
    ----------
    sample
        If it failed, only the interval changes; the due time of the last successful one shows the failure.
    before
        The previous metrics, which are kept for partitions that could not be read.
    """
    if sample.error is not None or sample.observation is None:
        return replace(before, interval=_interval(sample))
    findings = sample.tables["findings"]
    late = Counter(TopicPartition(row["topic"], row["partition"]) for row in sample.tables["late_transactions"])
    leaders = {
        TopicPartition(row["topic"], row["partition"]): row["broker_id"] for row in sample.tables["late_transactions"]
    }
    by_partition: dict[TopicPartition, list[Row]] = {}
    for row in findings:
        if row["topic"] is not None:
            by_partition.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
    unread = {tp for tp, rows in by_partition.items() if any(row["error"] for row in rows)}
    kept = {tp: series for tp, series in before.partitions.items() if tp in unread}
    read = {
        tp: _partition_series(rows, sample, late=late[tp])
        for tp, rows in by_partition.items()
        if tp not in unread and any(_is_reported(row, sample) for row in rows)
    }
    partitions = dict(sorted((kept | read).items(), key=_by_urgency))
    groups = Counter(group for series in partitions.values() for group in series.groups_held)
    counts = Counter(leaders.values())
    verdicts = Counter(row["verdict"] for row in findings if row["producer_id"] is not None)
    outcomes = Counter(row["outcome"] for row in findings if row["producer_id"] is not None)
    group_lags, lags_omitted = before.group_lags, before.group_lags_omitted
    if sample.held_groups is not None:
        group_lags, lags_omitted = _group_lags(sample.held_groups)
    return MetricSeries(
        partitions=dict(islice(partitions.items(), MAX_PARTITIONS)),
        late_partitions={broker_id: counts[broker_id] for broker_id in sample.row["brokers"]},
        transactions={verdict: verdicts[verdict] for verdict in OPEN},
        outcomes={outcome: outcomes[outcome] for outcome in OUTCOMES},
        groups=dict(groups.most_common(MAX_GROUPS)),
        omitted=max(0, len(partitions) - MAX_PARTITIONS),
        group_lags=group_lags,
        group_lags_omitted=lags_omitted,
        gaps=len(sample.row["gaps"]),
        unread=len(unread),
        due=sample.due.timestamp(),
        seconds=sample.row["seconds"],
        interval=_interval(sample),
    )


def _interval(sample: Sample) -> float:
    return float(sample.row["interval_ms"] / 1000)


def _by_urgency(item: tuple[TopicPartition, PartitionSeries]) -> tuple[int, int, float, TopicPartition]:
    """Sort key that is stable over time, so that samples do not create new series each time."""
    tp, series = item
    return -series.hanging - series.commits_without_marker, -series.late, -series.held_seconds, tp


def _group_lags(lags: Iterable[GroupLag]) -> tuple[dict[tuple[str, str, int], GroupLagSeries], int]:
    held = sorted((each for each in lags if each.held), key=lambda each: each.held or 0, reverse=True)
    series = {
        (each.group_id, each.topic or "", each.partition or 0): GroupLagSeries(
            behind=each.behind or 0, held=each.held or 0
        )
        for each in held[:MAX_GROUP_LAGS]
    }
    return series, len(held) - len(series)


def _is_reported(row: Row, sample: Sample) -> bool:
    if row["verdict"] not in BRIEF:
        return True
    first_seen = _first_observed(row, sample)
    return first_seen is not None and first_seen < row["observed_at"]


def _partition_series(rows: Iterable[Row], sample: Sample, *, late: int) -> PartitionSeries:
    rows = list(rows)
    return PartitionSeries(
        lso_lag=max(row["offsets_held"] or 0 for row in rows),
        held_seconds=max(_held_seconds(row, sample) for row in rows),
        open=sum(row["producer_id"] is not None for row in rows),
        hanging=sum(row["verdict"] == "hanging" for row in rows),
        late=late,
        commits_without_marker=sum(row["verdict"] == "stuck_ending" and row["outcome"] == COMMIT for row in rows),
        groups_held=sorted({group for row in rows for group in row["groups_held"] or ()}),
    )


def _held_seconds(row: Row, sample: Sample) -> float:
    """How long a transaction has held the LSO: by the log, else since it opened, else since it was first observed."""
    if row["queue_position"] != 1:
        return 0.0
    since: dt.datetime | None = row["held_from"] or row["opened_at"] or _first_observed(row, sample)
    return 0.0 if since is None else max(0.0, (row["observed_at"] - since).total_seconds())


def _first_observed(row: Row, sample: Sample) -> dt.datetime | None:
    return sample.first_seen.get(
        TransactionKey(row["topic"], row["partition"], row["producer_id"], row["start_offset"])
    )
