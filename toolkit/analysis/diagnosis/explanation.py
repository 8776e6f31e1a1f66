"""Add log evidence to findings: cause, opening time, impact. It never makes a finding `hanging`."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.analysis.diagnosis.causes import cause
from toolkit.analysis.diagnosis.impact import held_back, held_since, opening_time
from toolkit.analysis.diagnosis.log_excerpts import LogEvidence, is_to_explain
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import IndexedObservation, OpenTransaction
from toolkit.analysis.diagnosis.producer_evidence import ProducerBatches
from toolkit.formats.log.headers import COMMIT
from toolkit.schema import Row

__all__ = ["explain"]


def explain(rows: Sequence[Row], observations: Sequence[Observation], log: LogEvidence) -> list[Row]:
    """Add log evidence to findings.

    Parameters
    ----------
    rows
        Rows of ``schema.FINDINGS``, from `diagnose.findings`.
    observations
        The observations that the findings are based on.
    log
        Read after the last observation. Without an excerpt of a partition, the evidence of its findings states so
        (``left_out``).

    Returns
    -------
    list of dict
        The rows with ``cause``, ``opened_at``, ``records_held``, ``bytes_held``, ``compaction_held``, ``held_from`` and
        further evidence. A `hanging` row gets another verdict if the log contradicts it, or shows that the transaction
        is committed or has ended.
    """
    transactions = {
        (txn.tp, txn.producer["producer_id"]): txn
        for observation in observations
        for found in IndexedObservation(observation).cases.values()
        for txn in found
        if txn.tp in log.excerpts
    }
    return [
        _explained(row, transactions.get(((row["topic"], row["partition"]), row["producer_id"])), log) for row in rows
    ]


def _explained(row: Row, txn: OpenTransaction | None, log: LogEvidence) -> Row:
    excerpt = log.excerpts.get((row["topic"], row["partition"]))
    if excerpt is None:
        return _left_out(row) if is_to_explain(row) else row
    row = {**row, **held_back(row, excerpt)}
    if row["queue_position"] == 1:
        groups = excerpt.groups.get(row["producer_id"])
        row = {**row, "compaction_held": excerpt.is_compacted, "groups_held": groups}
    if txn is None or txn.start is None:
        return row
    producer_batches = ProducerBatches(excerpt, txn.producer["producer_id"], txn.start)
    row = {**row, **opening_time(row, producer_batches)}
    if row["queue_position"] == 1:
        row = {**row, **held_since(row, producer_batches)}
    row = _more_careful(row, txn, producer_batches)
    if row["verdict"] == "hanging" and txn.state == "CompleteCommit" and log.unread:
        return _doubted(row, f"{log.unread[0]}: whether the completed commit includes these records (KAFKA-20734)")
    why = cause(txn, row["verdict"], log)
    if why is None:
        return row
    row = {**row, "cause": why.sentence, "evidence": [*row["evidence"], *why.evidence]}
    return _committed(row) if why.is_committed and row["verdict"] == "hanging" else row


def _committed(row: Row) -> Row:
    """The row as `stuck_ending`: an abort marker would discard records that the coordinator committed."""
    where = f"{row['topic']}-{row['partition']} from offset {row['start_offset']}"
    return {
        **row,
        "verdict": "stuck_ending",
        "reason": "Its coordinator completed the commit, but the log has no marker, and none will be written.",
        "remedy": (
            "Never an abort marker yet: these records are committed, and it would discard them. Read "
            f"{where} with read_uncommitted and keep the records of producer {row['producer_id']}; then end the "
            "transaction with kafka-transactions.sh abort, and produce them again."
        ),
    }


def _left_out(row: Row) -> Row:
    entry = {
        "source": "log",
        "broker_id": row["broker_id"],
        "observed_at": row["observed_at"],
        "name": "left_out",
        "value": "the log around it was not read for cause, opening time and impact: too many partitions are held, or "
        "too little time was left; diagnose this partition alone",
    }
    return {**row, "evidence": [*row["evidence"], entry]}


def _more_careful(row: Row, txn: OpenTransaction, producer_batches: ProducerBatches) -> Row:
    """The row; no longer `hanging` if the log contradicts that."""
    if row["verdict"] != "hanging":
        return row
    if len(producer_batches.foreign_opening):
        other = producer_batches.foreign_opening[0]
        return _doubted(
            row, f"a log that agrees: the batch at {producer_batches.start} is of producer {other['producer_id']}"
        )
    if not len(producer_batches.markers_after):
        return row
    marker = producer_batches.markers_after[0]
    marker_text = f"{'COMMIT' if marker['marker'] == COMMIT else 'ABORT'} marker at offset {marker['base_offset']}"
    ended = [*row["evidence"], producer_batches.entry("marker_after", producer_batches.markers_after)]
    if marker["base_offset"] < _high_watermark_before(txn):
        return _doubted({**row, "evidence": ended}, f"producer state that agrees: there is the {marker_text}")
    why = f"The {marker_text} has ended it in the meantime."
    return {
        **row,
        "verdict": "ending",
        "reason": why,
        "cause": None,
        "remedy": "None: it has ended.",
        "evidence": ended,
    }


def _doubted(row: Row, missing: str) -> Row:
    why = f"It would be hanging if it were proven: {row['reason'].rstrip('.')}."
    remedy = "Do not abort. Get what is missing, and diagnose again."
    return {**row, "verdict": "unknown", "reason": why, "cause": None, "remedy": remedy, "missing": [missing]}


def _high_watermark_before(txn: OpenTransaction) -> int:
    """The partition's high watermark before its producers were last read; records below it were in the log then."""
    tp = txn.tp
    before = next((row for row in txn.observation.partitions if (row["topic"], row["partition"]) == tp), {})
    known: int | None = before.get("high_watermark")
    return -1 if known is None else known
