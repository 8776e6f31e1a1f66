"""The rows of a sample in a recording: from an observation, and back; the samples of a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.analysis.diagnosis.observation import Coverage, FirstBatch, Observation
from toolkit.errors import NotFound
from toolkit.schema import RECORDED, Row
from toolkit.schema.live import Partition, Producer, Transaction
from toolkit.sources.recording.recording_folder import AN_INSTANT, files_of, read, sample_times

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
        "first_batches": [
            {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                **{name: getattr(first_batch, name) for name in FIRST_BATCH},
            }
            for (topic, partition, start_offset), first_batch in observation.first_batches.items()
        ],
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSamples:
    """The newest samples up to a time; rows of ``samples``.

    Parameters
    ----------
    sample
        The newest successful one.
    before
        The successful one before it; null if there is none.
    failed
        Failed ones after `sample`, in order.
    """

    sample: Row
    before: Row | None
    failed: Sequence[Row]


def find_samples(directory: Path, *, at: dt.datetime | None = None) -> FoundSamples:
    """Find the samples of a time; null for the newest.

    Raises
    ------
    NotFound
        If there is no successful sample by then.
    """
    failed: list[Row] = []
    successful: list[Row] = []
    for row in _backwards(directory, at):
        if row["error"] is None:
            successful.append(row)
        elif not successful:
            failed.insert(0, row)
        if len(successful) == 2:
            break
    if not successful:
        when = "" if at is None else f" by {at.isoformat()}"
        raise NotFound(f"No successful sample in {directory}{when}.")
    return FoundSamples(sample=successful[0], before=successful[1] if len(successful) > 1 else None, failed=failed)


def read_sample(directory: Path, row: Row, *, idle_producers: bool = True) -> Mapping[str, list[Row]]:
    """The rows of a sample by table.

    Parameters
    ----------
    directory
        The recording.
    row
        The sample's row of ``samples``.
    idle_producers
        Include producers without an open transaction: most of the rows, and no verdict needs them.

    Raises
    ------
    NotFound
        If it expires meanwhile.
    """
    due = row["sampled_at"]
    tables = {name: read(directory, name, start=due, stop=due + AN_INSTANT) for name in RECORDED if name != "samples"}
    if not idle_producers:
        import pyarrow.compute as pc

        rows = tables["producers"]
        selected = pc.or_(pc.is_valid(rows["current_txn_start_offset"]), pc.is_valid(rows["error"]))
        tables["producers"] = rows.filter(selected)
    if not sample_times(directory, due, due + AN_INSTANT):
        raise NotFound(f"The sample of {due.isoformat()} expired while it was read.", do="Try again.")
    return {name: table.to_pylist() for name, table in tables.items()} | {"samples": [row]}


def read_observation(directory: Path, row: Row, *, idle_producers: bool = True) -> Observation:
    """The observation of a successful sample; arguments and errors as for `read_sample`."""
    observation = observation_of(read_sample(directory, row, idle_producers=idle_producers))
    assert observation is not None
    return observation


def _with_phase(answers: Sequence[Partition | Producer], phase: str, due: dt.datetime) -> list[Row]:
    return [{"sampled_at": due, "phase": phase, **each.row()} for each in answers]


def _backwards(directory: Path, at: dt.datetime | None) -> Iterator[Row]:
    """Rows of ``samples``, newest first, one file at a time, since one or two rows suffice."""
    stop = None if at is None else at + AN_INSTANT
    while files := [file for file in files_of(directory, "samples") if stop is None or file.start < stop]:
        start = files[-1].start
        yield from reversed(read(directory, "samples", start=start, stop=stop).to_pylist())
        stop = start
