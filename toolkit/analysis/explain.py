"""Findings with what the logs tell of them: cause, opening time, impact. A verdict only ever gets more careful."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.analysis.cases import Case, Seen
from toolkit.analysis.causes import cause
from toolkit.analysis.evidence import Look
from toolkit.analysis.excerpts import LogEvidence, is_to_explain
from toolkit.analysis.impact import held_back, held_since, opening_time
from toolkit.analysis.traces import Traces
from toolkit.formats.headers import COMMIT
from toolkit.schema import Row

__all__ = ["explain"]


def explain(rows: Sequence[Row], looks: Sequence[Look], log: LogEvidence) -> list[Row]:
    """Add what the logs tell.

    Parameters
    ----------
    rows
        Rows of ``schema.FINDINGS``, of `findings.findings`.
    looks
        The looks that they were judged by.
    log
        What was read after the last look. Of a partition without excerpt the evidence says that it was left out.

    Returns
    -------
    list of dict
        The rows with ``cause``, ``opened_at``, ``records_held``, ``bytes_held``, ``compaction_held``, ``held_from`` and
        further evidence. One that was `hanging` is so no more where the log contradicts that, or shows its end.
    """
    cases = {
        (case.tp, case.producer["producer_id"]): case
        for look in looks
        for found in Seen(look).cases.values()
        for case in found
        if case.tp in log.excerpts
    }
    return [_explained(row, cases.get(((row["topic"], row["partition"]), row["producer_id"])), log) for row in rows]


def _explained(row: Row, case: Case | None, log: LogEvidence) -> Row:
    excerpt = log.excerpts.get((row["topic"], row["partition"]))
    if excerpt is None:
        return _left_out(row) if is_to_explain(row) else row
    row = {**row, **held_back(row, excerpt)}
    if row["position"] == 1:
        groups = excerpt.groups.get(row["producer_id"])
        row = {**row, "compaction_held": excerpt.is_compacted, "groups_held": groups}
    if case is None or case.start is None:
        return row
    traces = Traces(excerpt, case.producer["producer_id"], case.start)
    row = {**row, **opening_time(row, traces)}
    if row["position"] == 1:
        row = {**row, **held_since(row, traces)}
    row = _more_careful(row, case, traces)
    why = cause(case, row["verdict"], log)
    if why is None:
        return row
    return {**row, "cause": why.sentence, "evidence": [*row["evidence"], *why.evidence]}


def _left_out(row: Row) -> Row:
    entry = {
        "source": "log",
        "broker_id": row["broker_id"],
        "observed_at": row["observed_at"],
        "name": "left_out",
        "value": "the log around it was not read for cause, opening time and impact: too many partitions are held, or "
        "too little time was left; ask for this partition alone",
    }
    return {**row, "evidence": [*row["evidence"], entry]}


def _more_careful(row: Row, case: Case, traces: Traces) -> Row:
    """No `hanging` against what the log says."""
    if row["verdict"] != "hanging":
        return row
    if len(traces.foreign_opening):
        other = traces.foreign_opening[0]
        return _doubted(row, f"a log that agrees: the batch at {traces.start} is of producer {other['producer_id']}")
    if not len(traces.markers_after):
        return row
    marker = traces.markers_after[0]
    named = f"{'COMMIT' if marker['marker'] == COMMIT else 'ABORT'} marker at offset {marker['base_offset']}"
    ended = [*row["evidence"], traces.entry("marker_after", traces.markers_after)]
    if marker["base_offset"] < _high_watermark_before(case):
        return _doubted({**row, "evidence": ended}, f"producer state that agrees: there is the {named}")
    why = f"The {named} has ended it while we looked."
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
    remedy = "Do not abort. Get what is missing and ask again."
    return {**row, "verdict": "unknown", "reason": why, "cause": None, "remedy": remedy, "missing": [missing]}


def _high_watermark_before(case: Case) -> int:
    """The partition's high watermark before it was last asked who is open: what lies below was in the log by then."""
    place = case.tp
    before = next((row for row in case.look.partitions if (row["topic"], row["partition"]) == place), {})
    known: int | None = before.get("high_watermark")
    return -1 if known is None else known
