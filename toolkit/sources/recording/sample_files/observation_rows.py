"""Convert an observation to recorded rows, and back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.analysis.diagnosis.observation import Coverage, FirstBatch, Observation
from toolkit.schema import Row
from toolkit.schema.live import Partition, Producer, Transaction

BEFORE, AFTER = "before", "after"  # the coordinators' responses
FIRST_BATCH = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_timestamp", "log_append_time")


def observation_rows(observation: Observation, *, due: dt.datetime) -> dict[str, list[Row]]:
    """Rows by table of ``schema.RECORDED``; those of ``samples`` have only the columns of an observation.

    Its times are in milliseconds, as recorded, so that a repeated diagnosis uses the same values.
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
        "transactions": [{"sampled_at": due, **each.row()} for each in observation.transactions],
        "samples": [sample],
    }


def observation_of(tables: Mapping[str, Sequence[Row]]) -> Observation | None:
    """The observation of one sample; null if the sample failed."""
    (sample,) = tables["samples"]
    if sample["error"] is not None:
        return None
    return Observation(
        partitions=[Partition.of(row) for row in tables["partitions"] if row["phase"] == BEFORE],
        producers=[Producer.of(row) for row in tables["producers"] if row["phase"] == BEFORE],
        transactions=[Transaction.of(row) for row in tables["transactions"]],
        partitions_after=[Partition.of(row) for row in tables["partitions"] if row["phase"] == AFTER],
        producers_after=[Producer.of(row) for row in tables["producers"] if row["phase"] == AFTER],
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


def _with_phase(answers: Sequence[Partition | Producer], phase: str, due: dt.datetime) -> list[Row]:
    return [{"sampled_at": due, "phase": phase, **each.row()} for each in answers]


def _first_batch_row(key: tuple[str, int, int], first_batch: FirstBatch) -> Row:
    topic, partition, start_offset = key
    row: dict[str, Any] = {"topic": topic, "partition": partition, "start_offset": start_offset}
    return row | {name: getattr(first_batch, name) for name in FIRST_BATCH}
