"""Transactions of a partition as bars, and the selection of single bars: hanging ones always are."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.schema import LOG_TRANSACTIONS, Row
from toolkit.views.plots.timeline.lso_curve import LsoCurve

Key = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBar:
    """A transaction as a bar.

    Parameters
    ----------
    kind
        A key of `toolkit.views.plots.plot_theme.KINDS`.
    start, end
        From when to when it was open; an open one ends now.
    first_offset, end_offset
        Its first offset, and that of its marker; null while it is open.
    log_transaction, finding
        Its rows; without a transaction of the log, unknown columns are null.
    transactional_id
        Its transactional id, if known.
    """

    kind: str
    start: dt.datetime
    end: dt.datetime
    first_offset: int
    end_offset: int | None
    log_transaction: Row
    finding: Row | None = None
    transactional_id: str | None = None

    @property
    def length(self) -> dt.timedelta:
        return self.end - self.start

    @property
    def is_kept(self) -> bool:
        """Whether it is always drawn as a single bar."""
        return self.end_offset is None or self.finding is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedBar:
    """Many short transactions that ended in the same interval, drawn as one."""

    start: dt.datetime
    end: dt.datetime
    first_offset: int
    end_offset: int
    committed: int
    aborted: int
    others: int
    producers: Sequence[int]
    longest: dt.timedelta


def bars_of(
    log_transactions: Iterable[Row],
    findings: Iterable[Row],
    *,
    curve: LsoCurve,
    owners: dict[int | None, str | None],
    now: dt.datetime,
) -> list[TransactionBar]:
    """A bar for every transaction of the log or of a finding, by first offset.

    Parameters
    ----------
    transactions, findings
        Rows of ``schema.LOG_TRANSACTIONS`` and ``FINDINGS`` of one partition.
    curve
        The log end over time, for the times of offsets.
    owners
        Transactional id by producer id.
    now
        End of open transactions.
    """
    by_key = {(row["producer_id"], row["start_offset"]): row for row in findings if row["start_offset"] is not None}
    once = {(row["producer_id"], row["first_offset"], row["marker_offset"]): row for row in log_transactions}
    bars, keys = [], set()
    for row in once.values():
        if row["first_offset"] is None and row["marker_offset"] is None:
            continue
        key = row["producer_id"], row["first_offset"]
        keys.add(key)
        bars.append(_bar(row, by_key.get(key), curve=curve, owners=owners, now=now))
    nothing = dict.fromkeys(LOG_TRANSACTIONS.names)
    for key, finding in by_key.items():
        if key not in keys:
            fields = {name: finding[name] for name in ("topic", "partition", "producer_id", "producer_epoch")}
            row = nothing | fields | {"first_offset": finding["start_offset"], "end": finding["held_to"]}
            bars.append(_bar(row, finding, curve=curve, owners=owners, now=now))
    return sorted(bars, key=lambda bar: (bar.first_offset, bar.end))


def aggregate_bars(
    bars: Sequence[TransactionBar], *, edges: Sequence[dt.datetime], most: int
) -> tuple[list[TransactionBar], list[AggregatedBar]]:
    """The single bars, and the rest aggregated.

    All open transactions and those with a finding are single bars; of the others the longest, and some of every
    interval, up to a maximum.

    Parameters
    ----------
    bars
        From `bars_of`.
    edges
        Borders of the intervals of aggregated bars; at least two.
    most
        Maximum number of single bars, unless more are required.
    """
    kept = [bar for bar in bars if bar.is_kept]
    others = _ranked([bar for bar in bars if not bar.is_kept], edges)
    room = max(0, most - len(kept))
    sections: dict[int, list[TransactionBar]] = {}
    for bar in others[room:]:
        sections.setdefault(bisect_right(edges, bar.end), []).append(bar)
    drawn = sorted([*kept, *others[:room]], key=lambda bar: (bar.first_offset, bar.end))
    return drawn, [_aggregated(each) for _, each in sorted(sections.items())]


def _ranked(bars: Iterable[TransactionBar], edges: Sequence[dt.datetime]) -> list[TransactionBar]:
    """First the bars that are long enough to be visible, then the longest of each interval, and so on."""
    visible = edges[-1] - edges[-2]
    rank: dict[int, int] = {}
    ranked = []
    for bar in sorted(bars, key=lambda bar: bar.length, reverse=True):
        section = bisect_right(edges, bar.end)
        rank[section] = rank.get(section, 0) + 1
        ranked.append((0 if bar.length > visible else rank[section], bar))
    return [bar for _, bar in sorted(ranked, key=lambda pair: pair[0])]


def _bar(
    row: Row, finding: Row | None, *, curve: LsoCurve, owners: dict[int | None, str | None], now: dt.datetime
) -> TransactionBar:
    marker, first = row["marker_offset"], row["first_offset"]
    is_over = marker is not None or row["end"] is not None or (finding is not None and finding["verdict"] == "ended")
    end = (curve.time_at(marker + 1) if marker is not None else None) or row["end"] or now
    end = end if is_over else now
    start = _start(row, finding, curve=curve, end=end)
    end_offset = marker if marker is not None else (first if is_over else None)
    return TransactionBar(
        kind=_kind(row, finding, is_over=is_over),
        start=min(start, end),
        end=end,
        first_offset=marker if first is None else first,
        end_offset=end_offset,
        log_transaction=row,
        finding=finding,
        transactional_id=(finding or {}).get("transactional_id") or owners.get(row["producer_id"]),
    )


def _start(row: Row, finding: Row | None, *, curve: LsoCurve, end: dt.datetime) -> dt.datetime:
    """When it opened: by its finding, which has compared the clocks, or else when the log reached its offset."""
    if finding is not None and finding["opened_at"] is not None:
        opened: dt.datetime = finding["opened_at"]
        return opened
    if row["first_offset"] is None:
        return end
    reached = row["first_batch_last_offset"] if row["first_batch_last_offset"] is not None else row["first_offset"]
    return curve.time_at(reached + 1) or row["start"] or end


def _kind(row: Row, finding: Row | None, *, is_over: bool) -> str:
    if finding is not None and finding["verdict"] == "hanging":
        return "hanging"
    if row["outcome"] is not None:
        return str(row["outcome"])
    return "undecided" if is_over else "open"


def _aggregated(bars: Sequence[TransactionBar]) -> AggregatedBar:
    kinds = [bar.kind for bar in bars]
    committed, aborted = kinds.count("commit"), kinds.count("abort")
    return AggregatedBar(
        start=min(bar.start for bar in bars),
        end=max(bar.end for bar in bars),
        first_offset=min(bar.first_offset for bar in bars),
        end_offset=max(bar.first_offset if bar.end_offset is None else bar.end_offset for bar in bars),
        committed=committed,
        aborted=aborted,
        others=len(bars) - committed - aborted,
        producers=sorted(
            {bar.log_transaction["producer_id"] for bar in bars if bar.log_transaction["producer_id"] is not None}
        ),
        longest=max(bar.length for bar in bars),
    )
