"""Turn LSO holds of one partition into findings: who held it, since when, for how long, and what that blocked.

A hold that is over has the verdict `ended`. An open hold has the current finding, if there is one: only the
coordinators know what is safe to do.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER
from toolkit.analysis.history.attribution import NOT_READ, Attribution, attribute
from toolkit.analysis.history.closing import close
from toolkit.analysis.history.past_causes import past_cause
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS, Row
from toolkit.schema.durations import duration

__all__ = ["by_producer", "held_findings", "held_offsets"]

NOTHING = dict.fromkeys(FINDINGS.names)
MILLISECOND = dt.timedelta(milliseconds=1)
COPIED = ("topic", "partition", "producer_id", "producer_epoch", "records_held", "bytes_held", "broker_id", "error")
AT_LEAST = "held_at_least_since"  # evidence name of `toolkit.analysis.diagnosis.impact.held_since`
NO_FINDINGS = "the coordinators' response: there is no current finding"
NOT_IN_FINDINGS = "the coordinators' response: the current findings do not include this transaction"


def held_findings(
    holds: Iterable[Row],
    *,
    transaction_history: Mapping[int, Sequence[Row]] | None = None,
    current_findings: Sequence[Row] | None = None,
    min_held_ms: int = 0,
) -> list[Row]:
    """Current findings of one partition, and findings of earlier holds of its LSO.

    Parameters
    ----------
    holds
        Rows of ``schema.LSO_HOLDS``, with the records they blocked.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY`` by producer id; null if no coordinator's log was read.
    current_findings
        Current rows of ``schema.FINDINGS``; null without a diagnosis.
    min_held_ms
        Leave out ended transactions that are not proven to have held the LSO for that long.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``: `current_findings`, where the finding of the LSO's holder gets evidence from the
        log; one `ended` row for each hold that is over; and one `unknown` row for a transaction that is open in the log
        and missing in `current_findings`.
    """
    by_producer = {row["producer_id"]: row for row in current_findings or () if row["start_offset"] is not None}
    rows: list[Row] = []
    replaced: set[tuple[int, int]] = set()
    for hold in holds:
        attribution = (
            NOT_READ
            if transaction_history is None
            else attribute(hold, transaction_history.get(hold["producer_id"], ()))
        )
        held = _AttributedHold.of(hold, attribution)
        finding = by_producer.get(hold["producer_id"])
        same = finding is not None and finding["start_offset"] == hold["first_offset"]
        if hold["marker_offset"] is not None:
            if held.at_least_ms < min_held_ms and not same:
                continue
            rows.append(_ended(held, finding if same else None))
        elif finding is None:
            rows.append(_open(held, missing=NO_FINDINGS if current_findings is None else NOT_IN_FINDINGS))
        elif same and finding["queue_position"] == 1:
            rows.append(_current(held, finding))
        else:
            continue
        if finding is not None and same:
            replaced.add((hold["producer_id"], hold["first_offset"]))
    rows += [row for row in current_findings or () if (row["producer_id"], row["start_offset"]) not in replaced]
    return [{**NOTHING, **row} for row in rows]


def by_producer(transaction_history: Iterable[Row]) -> Mapping[int, Sequence[Row]]:
    """Rows of ``schema.TRANSACTION_HISTORY`` by current and by previous producer id."""
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in transaction_history:
        for producer_id in {row["producer_id"], row["previous_producer_id"]} - {None}:
            found[producer_id].append(row)
    return found


def held_offsets(hold: Row, *, lso: int | None = None, high_watermark: int | None = None) -> tuple[int, int] | None:
    """The first offset that a hold blocked, and the one after the last; null if the log was not read that far.

    Parameters
    ----------
    hold
        A row of ``schema.LSO_HOLDS``.
    lso, high_watermark
        Current offsets of the partition; they bound what an open transaction blocks. Null if unknown.
    """
    if hold["truncated"]:
        return None
    first, marker, end = hold["first_offset"], hold["marker_offset"], hold["log_end_offset"]
    if marker is not None:
        return first, marker
    first = max(first, first if lso is None else lso)
    stop = end if high_watermark is None else high_watermark
    return None if stop is None or end is None or stop > end else (first, max(first, stop))


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttributedHold:
    """A hold with its owner, and its times, corrected by the coordinator's."""

    row: Row
    attribution: Attribution
    held_from: dt.datetime | None
    held_ms: int | None

    @staticmethod
    def of(hold: Row, attribution: Attribution) -> _AttributedHold:
        held_from: dt.datetime | None = hold["held_from"]
        started = None if attribution.history is None else attribution.history["start_time"]
        if started is not None and hold["after_offset"] is None:
            held_from = _not_before(held_from, started)
        if held_from is None or hold["held_to"] is None:
            return _AttributedHold(row=hold, attribution=attribution, held_from=held_from, held_ms=None)
        held_from = min(held_from, hold["held_to"])
        held_ms = (hold["held_to"] - held_from) // MILLISECOND
        return _AttributedHold(row=hold, attribution=attribution, held_from=held_from, held_ms=held_ms)

    @property
    def at_least_ms(self) -> int:
        """The proven minimum of its duration."""
        return (self.row["least_ms"] or 0) if self.held_ms is None else self.held_ms

    @property
    def as_of(self) -> dt.datetime:
        """The newest time in the log."""
        row = self.row
        known: dt.datetime | None = row["as_of"] or row["held_to"] or self.held_from or row["opened_at"]
        return known or dt.datetime.fromtimestamp(0, dt.UTC)

    @property
    def opening(self) -> Row:
        history = self.attribution.history
        started = None if history is None else history["start_time"]
        if started is not None:
            return {"opened_at": started, "opened_at_clock": "coordinator"}
        return {name: self.row[name] for name in ("opened_at", "opened_at_clock")}

    @property
    def name(self) -> str:
        row, name = self.row, self.attribution.transactional_id
        producer = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
        return producer.capitalize() if name is None else f'"{name}" ({producer})'

    @property
    def columns(self) -> dict[str, object]:
        row = self.row
        return {
            **{name: row[name] for name in COPIED},
            "transactional_id": self.attribution.transactional_id,
            "start_offset": row["first_offset"],
            "evidence": list(_evidence(self)),
            **self.opening,
            "held_from": self.held_from,
            "observed_at": self.as_of,
        }


def _ended(held: _AttributedHold, finding: Row | None) -> Row:
    """The finding of a hold that is over; its current finding becomes evidence."""
    row = held.row
    marker = f"its {row['marker']} marker" if row["marker"] else "its marker"
    columns = {
        **held.columns,
        "cause": past_cause(row, held.attribution),
        "offsets_held": row["marker_offset"] - row["first_offset"],
        "held_to": row["held_to"],
        "held_ms": held.held_ms,
    }
    if finding is not None:
        columns["transactional_id"] = columns["transactional_id"] or finding["transactional_id"]
    end = f"{held.name} held the LSO {_duration(held)} until {marker} at offset {row['marker_offset']}. "
    return close(columns, end=end + held.attribution.sentence, before=finding)


def _open(held: _AttributedHold, *, missing: str) -> Row:
    """The finding of a transaction open at the log end: the log does not show whether its coordinator will end it."""
    row = held.row
    end = row["log_end_offset"]
    return {
        **held.columns,
        "queue_position": 1,
        "verdict": "unknown",
        "reason": f"{held.name} held the LSO at the end of the log that was read. {held.attribution.sentence}",
        "remedy": "Do not abort. Get what is missing, and diagnose again.",
        "missing": [missing],
        "last_stable_offset": row["first_offset"],
        "offsets_held": None if end is None else end - row["first_offset"],
        "held_ms": _between(held.held_from, held.as_of),
    }


def _current(held: _AttributedHold, finding: Row) -> Row:
    """A current finding, which rests on an excerpt around the LSO at most, with evidence from the complete log."""
    row = held.row
    counted = {name: row[name] if finding[name] is None else finding[name] for name in ("records_held", "bytes_held")}
    at_least = any(entry["name"] == AT_LEAST for entry in finding["evidence"])
    held_from = _current_held_from(row, finding)
    if held_from is None or (finding["held_from"] is not None and not at_least):
        return {**finding, **counted}
    evidence = [entry for entry in finding["evidence"] if entry["name"] != AT_LEAST]
    return {
        **finding,
        **counted,
        "evidence": [*evidence, *_since(held)],
        "held_from": held_from,
        "held_ms": _between(held_from, finding["observed_at"]),
    }


def _current_held_from(row: Row, finding: Row) -> dt.datetime | None:
    held_from: dt.datetime | None = row["held_from"]
    if row["after_offset"] is not None:
        return held_from
    if (
        held_from is not None
        and held_from > finding["observed_at"] + CLOCKS_DIFFER
        and row["opened_at_clock"] == "producer"
    ):
        held_from = row["not_before"]
    return _not_before(held_from, finding["opened_at"]) if finding["opened_at_clock"] == "coordinator" else held_from


def _duration(held: _AttributedHold) -> str:
    if held.held_ms is not None:
        return f"for {duration(held.held_ms * MILLISECOND)}"
    least = held.at_least_ms
    return f"for at least {duration(least * MILLISECOND)}" if least else "for an unknown time"


def _evidence(held: _AttributedHold) -> Iterator[Row]:
    """Evidence: batches of the log and records of the coordinator."""
    row, history = held.row, held.attribution.history
    if not row["truncated"]:
        clock = f" by the {row['start_clock']}'s clock" if row["start"] is not None and row["start_clock"] else ""
        text = f"offset {row['first_offset']}: epoch {row['first_epoch']}, sequence {row['first_sequence']}"
        yield _entry(held, "log", "first_batch", f"{text}, {_time(row['start'])}{clock}")
    yield from _since(held)
    if row["marker_offset"] is not None:
        text = f"offset {row['marker_offset']}: {row['marker'] or 'not read'}, epoch {row['marker_epoch']}"
        text += f", coordinator epoch {row['coordinator_epoch']}, {_time(row['held_to'])}"
        yield _entry(held, "log", "marker", text)
    if history is not None:
        text = f"{STATE_TOPIC}-{history['txn_state_partition']} offsets {history['first_offset']}.."
        text += f"{history['last_offset']}: {history['state']}, started {_time(history['start_time'])}, "
        text += f"decided {_time(history['decided_at'])}, ended {_time(history['end_time'])}"
        source = {"broker_id": history["broker_id"], "observed_at": history["end_time"] or history["start_time"]}
        yield _entry(held, STATE_TOPIC, "records", text) | source


def _since(held: _AttributedHold) -> Iterator[Row]:
    offset = held.row["after_offset"]
    if offset is not None:
        text = f"offset {offset}: marker of the transaction that held the LSO before, {_time(held.row['held_from'])}"
        yield _entry(held, "log", "held_since", text)


def _entry(held: _AttributedHold, source: str, name: str, value: str) -> dict[str, object]:
    return {
        "source": source,
        "broker_id": held.row["broker_id"],
        "observed_at": held.as_of,
        "name": name,
        "value": value,
    }


def _not_before(first_batch: dt.datetime | None, started: dt.datetime) -> dt.datetime:
    """The time of the first batch, or the coordinator's start time if the first batch's time precedes it."""
    return started if first_batch is None or first_batch < started - CLOCKS_DIFFER else first_batch


def _between(start: dt.datetime | None, end: dt.datetime) -> int | None:
    if start is None or start > end + CLOCKS_DIFFER:
        return None
    return max((end - start) // MILLISECOND, 0)


def _time(time: dt.datetime | None) -> str:
    return "time unknown" if time is None else time.astimezone(dt.UTC).isoformat(timespec="milliseconds")
