"""From LSO holds of one partition to findings: who held it, since when and for how long, and what it blocked.

A hold that is over has the verdict `ended`. An open one has the current finding, if there is one: only the coordinators
know what is safe to do.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence_text import duration
from toolkit.analysis.diagnosis.impact import CLOCKS_DIFFER
from toolkit.analysis.diagnosis.past_causes import past_cause
from toolkit.analysis.history.attribution import NOT_READ, Attribution, attribute
from toolkit.analysis.history.closing import close
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS, Row

__all__ = ["by_producer", "held_findings", "stretch"]

NOTHING = dict.fromkeys(FINDINGS.names)
MILLISECOND = dt.timedelta(milliseconds=1)
COPIED = ("topic", "partition", "producer_id", "producer_epoch", "records_held", "bytes_held", "broker_id", "error")
AT_LEAST = "held_at_least_since"  # as `toolkit.analysis.diagnosis.impact.held_since` calls it
NOT_ASKED = "the coordinators' answer: there is no current finding"
NOT_ANSWERED = "the coordinators' answer: the current findings do not include this transaction"


def held_findings(
    holds: Iterable[Row],
    *,
    transaction_history: Mapping[int, Sequence[Row]] | None = None,
    current_findings: Sequence[Row] | None = None,
    min_held_ms: int = 0,
) -> list[Row]:
    """Findings of one partition: the current ones, and those of earlier holds of its LSO.

    Parameters
    ----------
    holds
        Rows of ``schema.LSO_HOLDS``, with the records they blocked.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY`` by producer id; null where no coordinator's log was read.
    current_findings
        Current rows of ``schema.FINDINGS``; null without a diagnosis.
    min_held_ms
        Leave out ended transactions that are not shown to have held the LSO for as long.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``: `current_findings`, the one that holds the LSO with evidence from its log; one
        with verdict `ended` for each hold that is over; and an `unknown` one for a transaction that is open by the log
        and missing in `current_findings`.
    """
    by_producer = {row["producer_id"]: row for row in current_findings or () if row["start_offset"] is not None}
    rows: list[Row] = []
    replaced: set[tuple[int, int]] = set()
    for hold in holds:
        who = (
            NOT_READ
            if transaction_history is None
            else attribute(hold, transaction_history.get(hold["producer_id"], ()))
        )
        held = _AttributedHold.of(hold, who)
        answer = by_producer.get(hold["producer_id"])
        same = answer is not None and answer["start_offset"] == hold["first_offset"]
        if hold["marker_offset"] is not None:
            if held.at_least_ms < min_held_ms and not same:
                continue
            rows.append(_ended(held, answer if same else None))
        elif answer is None:
            rows.append(_open(held, missing=NOT_ASKED if current_findings is None else NOT_ANSWERED))
        elif same and answer["queue_position"] == 1:
            rows.append(_of_now(held, answer))
        else:
            continue
        if answer is not None and same:
            replaced.add((hold["producer_id"], hold["first_offset"]))
    rows += [row for row in current_findings or () if (row["producer_id"], row["start_offset"]) not in replaced]
    return [{**NOTHING, **row} for row in rows]


def by_producer(transaction_history: Iterable[Row]) -> Mapping[int, Sequence[Row]]:
    """Rows of ``schema.TRANSACTION_HISTORY`` by every producer id that they name."""
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in transaction_history:
        for producer_id in {row["producer_id"], row["previous_producer_id"]} - {None}:
            found[producer_id].append(row)
    return found


def stretch(hold: Row, *, lso: int | None = None, high_watermark: int | None = None) -> tuple[int, int] | None:
    """The first offset that a hold blocked, and the one after the last; null where the log was not read that far.

    Parameters
    ----------
    hold
        A row of ``schema.LSO_HOLDS``.
    lso, high_watermark
        Of the partition at present, where known; they bound what an open transaction blocks.
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
    """A hold with its transactional id, and its times with those of the coordinator."""

    row: Row
    who: Attribution
    held_from: dt.datetime | None
    held_ms: int | None

    @staticmethod
    def of(hold: Row, who: Attribution) -> _AttributedHold:
        held_from: dt.datetime | None = hold["held_from"]
        started = None if who.history is None else who.history["start_time"]
        if started is not None and hold["after_offset"] is None:
            held_from = _not_before(held_from, started)
        if held_from is None or hold["held_to"] is None:
            return _AttributedHold(row=hold, who=who, held_from=held_from, held_ms=None)
        held_from = min(held_from, hold["held_to"])
        return _AttributedHold(
            row=hold, who=who, held_from=held_from, held_ms=(hold["held_to"] - held_from) // MILLISECOND
        )

    @property
    def at_least_ms(self) -> int:
        """For how long it held the LSO at least."""
        return (self.row["least_ms"] or 0) if self.held_ms is None else self.held_ms

    @property
    def as_of(self) -> dt.datetime:
        """The newest time in its log."""
        row = self.row
        known: dt.datetime | None = row["as_of"] or row["held_to"] or self.held_from or row["opened_at"]
        return known or dt.datetime.fromtimestamp(0, dt.UTC)

    @property
    def opening(self) -> Row:
        started = None if self.who.history is None else self.who.history["start_time"]
        if started is not None:
            return {"opened_at": started, "opened_at_clock": "coordinator"}
        return {name: self.row[name] for name in ("opened_at", "opened_at_clock")}

    @property
    def name(self) -> str:
        row, name = self.row, self.who.transactional_id
        producer = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
        return producer.capitalize() if name is None else f'"{name}" ({producer})'

    @property
    def columns(self) -> dict[str, object]:
        row = self.row
        return {
            **{name: row[name] for name in COPIED},
            "transactional_id": self.who.transactional_id,
            "start_offset": row["first_offset"],
            "evidence": list(_evidence(self)),
            **self.opening,
            "held_from": self.held_from,
            "observed_at": self.as_of,
        }


def _ended(held: _AttributedHold, answer: Row | None) -> Row:
    """The finding of a hold that is over; an earlier finding becomes evidence."""
    row = held.row
    marker = f"its {row['marker']} marker" if row["marker"] else "its marker"
    columns = {
        **held.columns,
        "cause": past_cause(row, held.who),
        "offsets_held": row["marker_offset"] - row["first_offset"],
        "held_to": row["held_to"],
        "held_ms": held.held_ms,
    }
    if answer is not None:
        columns["transactional_id"] = columns["transactional_id"] or answer["transactional_id"]
    end = f"{held.name} held the LSO {_for(held)} until {marker} at offset {row['marker_offset']}. {held.who.sentence}"
    return close(columns, end=end, before=answer)


def _open(held: _AttributedHold, *, missing: str) -> Row:
    """The finding of a transaction open at the log end; a log does not show whether a coordinator will end it."""
    row = held.row
    end = row["log_end_offset"]
    return {
        **held.columns,
        "queue_position": 1,
        "verdict": "unknown",
        "reason": f"{held.name} held the LSO where the log that was read ends. {held.who.sentence}",
        "remedy": "Do not abort. Get what is missing, and diagnose again.",
        "missing": [missing],
        "last_stable_offset": row["first_offset"],
        "offsets_held": None if end is None else end - row["first_offset"],
        "held_ms": _between(held.held_from, held.as_of),
    }


def _of_now(held: _AttributedHold, answer: Row) -> Row:
    """A current finding with evidence from the whole log: at most an excerpt around the LSO was read for it before."""
    row = held.row
    counted = {name: row[name] if answer[name] is None else answer[name] for name in ("records_held", "bytes_held")}
    at_least = any(entry["name"] == AT_LEAST for entry in answer["evidence"])
    held_from = _held_from_by_now(row, answer)
    if held_from is None or (answer["held_from"] is not None and not at_least):
        return {**answer, **counted}
    evidence = [entry for entry in answer["evidence"] if entry["name"] != AT_LEAST]
    return {
        **answer,
        **counted,
        "evidence": [*evidence, *_since(held)],
        "held_from": held_from,
        "held_ms": _between(held_from, answer["observed_at"]),
    }


def _held_from_by_now(row: Row, answer: Row) -> dt.datetime | None:
    held_from: dt.datetime | None = row["held_from"]
    if row["after_offset"] is not None:
        return held_from
    if (
        held_from is not None
        and held_from > answer["observed_at"] + CLOCKS_DIFFER
        and row["opened_at_clock"] == "producer"
    ):
        held_from = row["not_before"]
    return _not_before(held_from, answer["opened_at"]) if answer["opened_at_clock"] == "coordinator" else held_from


def _for(held: _AttributedHold) -> str:
    if held.held_ms is not None:
        return f"for {duration(held.held_ms * MILLISECOND)}"
    least = held.at_least_ms
    return f"for at least {duration(least * MILLISECOND)}" if least else "for a time that does not show,"


def _evidence(held: _AttributedHold) -> Iterator[Row]:
    """The batches and records that are its evidence."""
    row, history = held.row, held.who.history
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
        by_producer = {"broker_id": history["broker_id"], "observed_at": history["end_time"] or history["start_time"]}
        yield _entry(held, STATE_TOPIC, "records", text) | by_producer


def _since(held: _AttributedHold) -> Iterator[Row]:
    offset = held.row["after_offset"]
    if offset is not None:
        text = f"offset {offset}: marker of the transaction that held it until then, {_time(held.row['held_from'])}"
        yield _entry(held, "log", "held_since", text)


def _entry(held: _AttributedHold, source: str, name: str, value: str) -> dict[str, object]:
    return {
        "source": source,
        "broker_id": held.row["broker_id"],
        "observed_at": held.as_of,
        "name": name,
        "value": value,
    }


def _not_before(by_producer: dt.datetime | None, started: dt.datetime) -> dt.datetime:
    """The time of the first batch, unless the coordinator's start time, which is earlier, contradicts it."""
    return started if by_producer is None or by_producer < started - CLOCKS_DIFFER else by_producer


def _between(start: dt.datetime | None, end: dt.datetime) -> int | None:
    if start is None or start > end + CLOCKS_DIFFER:
        return None
    return max((end - start) // MILLISECOND, 0)


def _time(time: dt.datetime | None) -> str:
    return "time unknown" if time is None else time.astimezone(dt.UTC).isoformat(timespec="milliseconds")
