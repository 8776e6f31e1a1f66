"""From samples of a recording to findings: two samples in a row serve as two observations."""

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
OF_THE_VERDICT = ("cause", "evidence", "opened_at", "opened_at_clock")  # log evidence
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
        The sample's. Only its partitions get findings: a topic that is gone holds nothing.
    before
        The observation of the sample before, however long ago; null where there is none.
    requested, max_transaction_timeout_ms
        As for `diagnose.findings`.

    Returns
    -------
    list of dict
        Rows of ``schema.FINDINGS`` in its order. A transaction in one observation only is never `hanging`: it is
        `unknown` until the next sample.
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
            once = replace(once, coverage=replace(once.coverage, topic_gaps=()))  # once is enough
        found = findings([once], requested=requested - twice, max_transaction_timeout_ms=max_transaction_timeout_ms)
        rows += map(_seen_once, found)
    return sorted(rows, key=_order)


def with_recorded(rows: Iterable[Row], recorded: Iterable[Row]) -> list[Row]:
    """Findings of a sample with its recorded log evidence: the log of that time cannot be read again.

    Parameters
    ----------
    rows
        Rows of ``schema.FINDINGS``, diagnosed now.
    recorded
        Those recorded with the same sample; rows of other transactions are ignored.

    Returns
    -------
    list of dict
        The rows with recorded cause and impact. A row that was not `hanging` then, since the log contradicted it, is
        not `hanging` now.
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
        names += VERDICT + OF_THE_VERDICT
    elif row["verdict"] == recorded["verdict"]:
        names += OF_THE_VERDICT
    return {**row, **{name: recorded[name] for name in names}}


def _topic_partitions(observation: Observation) -> set[TopicPartition]:
    return {_tp(row) for row in observation.partitions}


def _tp(row: Row) -> TopicPartition:
    return row["topic"], row["partition"]


def _at(observation: Observation, topic_partitions: Collection[TopicPartition]) -> Observation:
    """The observation of some partitions only; the coordinators' rows stay."""

    def here(rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if _tp(row) in topic_partitions]

    return replace(
        observation,
        partitions=here(observation.partitions),
        producers=here(observation.producers),
        partitions_after=here(observation.partitions_after),
        producers_after=here(observation.producers_after),
    )


def _seen_once(row: Row) -> Row:
    if row["verdict"] != "hanging":
        return row
    return {
        **row,
        "verdict": "unknown",
        "reason": f"It would be hanging if it were proven: {row['reason']}",
        "cause": None,
        "remedy": "Do not abort. Get what is missing, and diagnose again.",
        "missing": ["a second sample: it was seen in one only"],
    }


def _order(row: Row) -> list[tuple[bool, object]]:
    """The declared order, unknown values last."""
    return [(row[name] is None, 0 if row[name] is None else row[name]) for name in FINDINGS.sort]
