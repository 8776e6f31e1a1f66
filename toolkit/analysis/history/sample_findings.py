"""Diagnose the samples of a recording: two successive samples serve as two observations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from toolkit.analysis.diagnosis.diagnose import findings
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import (
    MAX_TRANSACTION_TIMEOUT_MS,
)
from toolkit.schema import FINDINGS, Row
from toolkit.schema.table import TopicPartition

__all__ = ["diagnose_sample", "with_recorded"]

VERDICT = ("verdict", "reason", "remedy", "missing")
LOG_EVIDENCE = ("cause", "evidence", "opened_at", "opened_at_clock")
IMPACT = (
    *("records_held", "bytes_held", "groups_held", "compaction_held"),
    *("held_from", "held_to", "held_ms"),
)


def diagnose_sample(
    observation: Observation,
    before: Observation | None = None,
    *,
    requested: Iterable[TopicPartition] = (),
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[Row]:
    """Diagnose one sample, together with the one before it.

    Parameters
    ----------
    observation
        The sample's observation. Only its partitions get findings: a deleted topic holds nothing.
    before
        The previous sample's observation, however old; null if there is none.
    requested, max_transaction_timeout_ms
        As for `diagnose.findings`.

    Returns
    -------
    list of dict
        Sorted rows of ``schema.FINDINGS``. A transaction in one observation only is `unknown`, never `hanging`, until
        the next sample.
    """
    requested = set(requested)
    topic_partitions = _topic_partitions(observation)
    twice = topic_partitions & _topic_partitions(before) if before else set()
    rows: list[Row] = []
    if before and twice:
        observations = [_at(before, twice), _at(observation, twice)]
        rows += findings(
            observations, requested=requested & twice, max_transaction_timeout_ms=max_transaction_timeout_ms
        )
    if topic_partitions - twice or not topic_partitions:
        once = _at(observation, topic_partitions - twice)
        if twice:
            once = replace(once, coverage=replace(once.coverage, topic_gaps=()))  # reported by the findings above
        found = findings([once], requested=requested - twice, max_transaction_timeout_ms=max_transaction_timeout_ms)
        rows += map(_in_one_sample, found)
    return sorted(rows, key=_order)


def with_recorded(rows: Iterable[Row], recorded: Iterable[Row]) -> list[Row]:
    """Add the recorded log evidence to a sample's findings: the log of that time cannot be read again.

    Parameters
    ----------
    rows
        New rows of ``schema.FINDINGS``.
    recorded
        Rows recorded with the same sample; rows of other transactions are ignored.

    Returns
    -------
    list of dict
        The new rows with recorded cause and impact. A `hanging` row that was recorded with another verdict, because the
        log contradicted it, gets the recorded verdict.
    """
    known = {_transaction(row): row for row in recorded}
    return [_with(row, known.get(_transaction(row))) for row in rows]


def _transaction(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("topic", "partition", "producer_id", "producer_epoch", "start_offset"))


def _with(row: Row, recorded: Row | None) -> Row:
    if recorded is None:
        return row
    names: tuple[str, ...] = IMPACT
    if row["verdict"] == "hanging" != recorded["verdict"]:
        names += VERDICT + LOG_EVIDENCE
    elif row["verdict"] == recorded["verdict"]:
        names += LOG_EVIDENCE
    return {**row, **{name: recorded[name] for name in names}}


def _topic_partitions(observation: Observation) -> set[TopicPartition]:
    return {_tp(row) for row in observation.partitions}


def _tp(row: Row) -> TopicPartition:
    return row["topic"], row["partition"]


def _at(observation: Observation, topic_partitions: Collection[TopicPartition]) -> Observation:
    """The observation of some partitions only, with all rows of coordinators."""

    def selected(rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if _tp(row) in topic_partitions]

    return replace(
        observation,
        partitions=selected(observation.partitions),
        producers=selected(observation.producers),
        partitions_after=selected(observation.partitions_after),
        producers_after=selected(observation.producers_after),
    )


def _in_one_sample(row: Row) -> Row:
    if row["verdict"] != "hanging":
        return row
    return {
        **row,
        "verdict": "unknown",
        "reason": f"Not proven to be hanging: {row['reason']}",
        "cause": None,
        "remedy": "Do not abort. Get what is missing, and diagnose again.",
        "missing": ["a second sample: it was seen in one only"],
    }


def _order(row: Row) -> list[tuple[bool, object]]:
    """The declared order, unknown values last."""
    return [(row[name] is None, 0 if row[name] is None else row[name]) for name in FINDINGS.sort]
