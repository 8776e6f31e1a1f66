"""A look to the rows that are recorded of it, and back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.analysis.evidence import Coverage, Look, Opening
from toolkit.schema import Row

__all__ = ["AGAIN", "FIRST", "look_of", "look_rows"]

FIRST, AGAIN = "first", "again"
KEYS = {"sample", "asked"}
OPENING = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_timestamp", "log_append_time")


def look_rows(look: Look, *, due: dt.datetime) -> dict[str, list[Row]]:
    """What one look saw, by the names of ``schema.RECORDED``; of ``samples`` what the look knows.

    Times are cut to milliseconds, as they are recorded: what is judged is then what can be judged again.
    """
    said = look.coverage
    sample = {
        "sample": due,
        "observed_at": look.observed_at,
        "brokers": list(said.brokers),
        "proofs": list(said.proofs),
        "gaps": list(said.gaps),
        "topic_gaps": list(said.topic_gaps),
        "openings": [_opening_row(key, opening) for key, opening in look.openings.items()],
        "error": None,
    }
    return {
        "partitions": _asked(look.partitions, FIRST, due) + _asked(look.partitions_after, AGAIN, due),
        "producers": _asked(look.producers, FIRST, due) + _asked(look.producers_after, AGAIN, due),
        "transactions": [{"sample": due, **_cut(row)} for row in look.transactions],
        "samples": [_cut(sample)],
    }


def look_of(tables: Mapping[str, Sequence[Row]]) -> Look | None:
    """The look that recorded rows of one sample are of; null where nothing was seen."""
    (sample,) = tables["samples"]
    if sample["error"] is not None:
        return None
    return Look(
        partitions=_those(tables["partitions"], FIRST),
        producers=_those(tables["producers"], FIRST),
        transactions=[_without_keys(row) for row in tables["transactions"]],
        partitions_after=_those(tables["partitions"], AGAIN),
        producers_after=_those(tables["producers"], AGAIN),
        coverage=Coverage(
            brokers=sample["brokers"],
            proofs=sample["proofs"],
            gaps=sample["gaps"],
            topic_gaps=sample["topic_gaps"],
        ),
        observed_at=sample["observed_at"],
        openings={
            (row["topic"], row["partition"], row["start_offset"]): Opening(**{name: row[name] for name in OPENING})
            for row in sample["openings"]
        },
    )


def _asked(rows: Sequence[Row], asked: str, due: dt.datetime) -> list[Row]:
    return [{"sample": due, "asked": asked, **_cut(row)} for row in rows]


def _those(rows: Sequence[Row], asked: str) -> list[Row]:
    return [_without_keys(row) for row in rows if row["asked"] == asked]


def _without_keys(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in KEYS}


def _opening_row(key: tuple[str, int, int], opening: Opening) -> Row:
    topic, partition, start_offset = key
    row: dict[str, Any] = {"topic": topic, "partition": partition, "start_offset": start_offset}
    return _cut(row | {name: getattr(opening, name) for name in OPENING})


def _cut(row: Row) -> Row:
    return {name: _milliseconds(value) if isinstance(value, dt.datetime) else value for name, value in row.items()}


def _milliseconds(time: dt.datetime) -> dt.datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
