"""What a recorder measures, as numbers by partition and by broker: of partitions that have something to tell only."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from toolkit.analysis.verdicts import BRIEF, VERDICTS
from toolkit.schema import Row
from toolkit.sources.recording.sample import Sample
from toolkit.sources.topology import Place

__all__ = ["PartitionSeries", "Series", "measure"]

OPEN = [verdict for verdict in VERDICTS if verdict not in {"clear", "ended", "unreplicated"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeries:
    """Numbers of one partition.

    Parameters
    ----------
    lso_lag
        Offsets from its LSO to its high watermark.
    held_seconds
        How long the transaction that holds the LSO has held it.
    open, hanging, late
        Transactions.
    """

    lso_lag: int
    held_seconds: float
    open: int
    hanging: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Numbers of the newest sample that saw something.

    Parameters
    ----------
    partitions
        Those where something waits for longer than briefly, is late, or was open in an earlier sample already.
    late_partitions
        Partitions with a late transaction, by their leader's broker id; 0 for brokers without.
    transactions
        Open transactions of the whole cluster by verdict.
    gaps
        How much is missing for the coordinators' answers to be complete.
    due, seconds
        When it was due, by the epoch; and how long it took. Null before the first.
    """

    partitions: Mapping[Place, PartitionSeries] = field(default_factory=dict)
    late_partitions: Mapping[int, int] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    gaps: int = 0
    due: float | None = None
    seconds: float | None = None


def measure(sample: Sample, before: Series) -> Series:
    """The numbers of a sample.

    Parameters
    ----------
    sample
        Where it saw nothing, nothing changes: that it did not is for the time of the last one to tell.
    before
        The numbers before. They stay for partitions that could not be read.
    """
    if sample.error is not None or sample.look is None:
        return before
    findings = sample.tables["findings"]
    late = Counter((row["topic"], row["partition"]) for row in sample.tables["late_transactions"])
    leaders = {(row["topic"], row["partition"]): row["broker_id"] for row in sample.tables["late_transactions"]}
    by_place: dict[Place, list[Row]] = {}
    for row in findings:
        if row["topic"] is not None:
            by_place.setdefault((row["topic"], row["partition"]), []).append(row)
    unread = {place for place, rows in by_place.items() if any(row["error"] for row in rows)}
    kept = {place: one for place, one in before.partitions.items() if place in unread}
    told = {
        place: _of_partition(rows, sample, late=late[place])
        for place, rows in by_place.items()
        if place not in unread and any(_has_something_to_tell(row, sample) for row in rows)
    }
    counts = Counter(leaders.values())
    verdicts = Counter(row["verdict"] for row in findings if row["producer_id"] is not None)
    return Series(
        partitions=kept | told,
        late_partitions={broker_id: counts[broker_id] for broker_id in sample.row["brokers"]},
        transactions={verdict: verdicts[verdict] for verdict in OPEN},
        gaps=len(sample.row["gaps"]),
        due=sample.due.timestamp(),
        seconds=sample.row["seconds"],
    )


def _has_something_to_tell(row: Row, sample: Sample) -> bool:
    if row["verdict"] not in BRIEF:
        return True
    first_seen = _first_seen(row, sample)
    return first_seen is not None and first_seen < row["observed_at"]


def _of_partition(rows: Iterable[Row], sample: Sample, *, late: int) -> PartitionSeries:
    rows = list(rows)
    return PartitionSeries(
        lso_lag=max(row["offsets_held"] or 0 for row in rows),
        held_seconds=max(_held_seconds(row, sample) for row in rows),
        open=sum(row["producer_id"] is not None for row in rows),
        hanging=sum(row["verdict"] == "hanging" for row in rows),
        late=late,
    )


def _held_seconds(row: Row, sample: Sample) -> float:
    """How long a transaction has held the LSO: as the log tells, else since it opened, else since it was seen."""
    if row["position"] != 1:
        return 0.0
    since: dt.datetime | None = row["held_from"] or row["opened_at"] or _first_seen(row, sample)
    return 0.0 if since is None else max(0.0, (row["observed_at"] - since).total_seconds())


def _first_seen(row: Row, sample: Sample) -> dt.datetime | None:
    return sample.first_seen.get((row["topic"], row["partition"], row["producer_id"], row["start_offset"]))
