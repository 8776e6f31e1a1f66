"""Convert an observation to recorded rows, and back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.analysis.diagnosis.observation import Coverage, FirstBatch, Observation
from toolkit.schema import Row

__all__ = ["AFTER", "BEFORE", "observation_of", "observation_rows"]

BEFORE, AFTER = "before", "after"  # the coordinators' responses
KEYS = {"sampled_at", "phase"}
FIRST_BATCH = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_timestamp", "log_append_time")


def observation_rows(observation: Observation, *, due: dt.datetime) -> dict[str, list[Row]]:
    """Rows by table of ``schema.RECORDED``; those of ``samples`` have only the columns of an observation.

    Times are truncated to milliseconds, as recorded, so that a repeated diagnosis uses the same values.
    """
    coverage = observation.coverage
    sample = {
        "sampled_at": due,
        "observed_at": observation.observed_at,
        "brokers": list(coverage.brokers),
        "proofs": list(coverage.proofs),
        "gaps": list(coverage.gaps),
        "topic_gaps": list(coverage.topic_gaps),
        "first_batches": [_first_batch_row(key, first_batch) for key, first_batch in observation.first_batches.items()],
        "error": None,
    }
    return {
        "partitions": _with_phase(observation.partitions, BEFORE, due)
        + _with_phase(observation.partitions_after, AFTER, due),
        "producers": _with_phase(observation.producers, BEFORE, due)
        + _with_phase(observation.producers_after, AFTER, due),
        "transactions": [{"sampled_at": due, **_truncate(row)} for row in observation.transactions],
        "samples": [_truncate(sample)],
    }


def observation_of(tables: Mapping[str, Sequence[Row]]) -> Observation | None:
    """The observation of one sample; null if the sample failed."""
    (sample,) = tables["samples"]
    if sample["error"] is not None:
        return None
    return Observation(
        partitions=_of_phase(tables["partitions"], BEFORE),
        producers=_of_phase(tables["producers"], BEFORE),
        transactions=[_without_keys(row) for row in tables["transactions"]],
        partitions_after=_of_phase(tables["partitions"], AFTER),
        producers_after=_of_phase(tables["producers"], AFTER),
        coverage=Coverage(
            brokers=sample["brokers"],
            proofs=sample["proofs"],
            gaps=sample["gaps"],
            topic_gaps=sample["topic_gaps"],
        ),
        observed_at=sample["observed_at"],
        first_batches={
            (row["topic"], row["partition"], row["start_offset"]): FirstBatch(
                **{name: row[name] for name in FIRST_BATCH}
            )
            for row in sample["first_batches"]
        },
    )


def _with_phase(rows: Sequence[Row], phase: str, due: dt.datetime) -> list[Row]:
    return [{"sampled_at": due, "phase": phase, **_truncate(row)} for row in rows]


def _of_phase(rows: Sequence[Row], phase: str) -> list[Row]:
    return [_without_keys(row) for row in rows if row["phase"] == phase]


def _without_keys(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in KEYS}


def _first_batch_row(key: tuple[str, int, int], first_batch: FirstBatch) -> Row:
    topic, partition, start_offset = key
    row: dict[str, Any] = {"topic": topic, "partition": partition, "start_offset": start_offset}
    return _truncate(row | {name: getattr(first_batch, name) for name in FIRST_BATCH})


def _truncate(row: Row) -> Row:
    return {name: _truncate_time(value) if isinstance(value, dt.datetime) else value for name, value in row.items()}


def _truncate_time(time: dt.datetime) -> dt.datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
