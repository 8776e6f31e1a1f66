"""Past and current LSO holds of partitions in files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.history.hold_findings import by_producer, held_findings, held_offsets
from toolkit.analysis.history.lso_holds import lso_holds
from toolkit.analysis.log.log_transactions import log_transaction_table
from toolkit.schema import Row
from toolkit.schema.derived import LOG_TRANSACTION_COLUMNS
from toolkit.sources.logdir.coordinator.coordinator_state import CoordinatorState
from toolkit.sources.logdir.observe_files import FileObservation
from toolkit.sources.logdir.state.replica_state import ReplicaState

__all__ = ["with_holds"]


def with_holds(observed: FileObservation, current_findings: Iterable[Row], *, min_held_ms: int) -> Iterator[Row]:
    """Rows of ``schema.FINDINGS``: current ones, and ended transactions that held the LSO long enough.

    Parameters
    ----------
    observed
        The observation of the current findings; the first replica of each partition was read completely.
    current_findings
        The findings at the end of the files.
    min_held_ms
        As for `toolkit.analysis.history.hold_findings.held_findings`.
    """
    by_partition: defaultdict[tuple[str | None, int | None], list[Row]] = defaultdict(list)
    for row in current_findings:
        by_partition[row["topic"], row["partition"]].append(row)
    found = {
        tp: _holds(replicas[0].state, by_partition[tp], min_held_ms=min_held_ms)
        for tp, replicas in observed.replicas.items()
    }
    past = _transaction_history(observed.side, {row["producer_id"] for rows in found.values() for row in rows})
    for tp in sorted(by_partition.keys() | found.keys(), key=str):
        rows, current = found.get(tp, ()), by_partition[tp]  # type: ignore[arg-type]
        yield from held_findings(rows, transaction_history=past, current_findings=current, min_held_ms=min_held_ms)


def _holds(state: ReplicaState, current_findings: Sequence[Row], *, min_held_ms: int) -> list[Row]:
    """Rows of ``schema.LSO_HOLDS``, with the records and bytes that each held."""
    window = state.window
    log_transactions = log_transaction_table(
        window.log_transactions, **state.log.where.columns, files=window.files
    ).select(LOG_TRANSACTION_COLUMNS)
    now: Row = next((row for row in current_findings if row["last_stable_offset"] is not None), {})
    bounds = {"lso": now.get("last_stable_offset"), "high_watermark": now.get("high_watermark")}
    rows = []
    for hold in lso_holds(log_transactions, min_held_ms=min_held_ms).to_pylist():
        hold["log_end_offset"] = window.log_end_offset if hold["marker_offset"] is None else None
        held_range = held_offsets(hold, **bounds)
        counted = None if held_range is None else window.totals.between(*held_range)
        hold["records_held"], hold["bytes_held"] = (None, None) if counted is None else counted
        rows.append(hold)
    return rows


def _transaction_history(side: CoordinatorState, producer_ids: Collection[int]) -> Mapping[int, Sequence[Row]]:
    """History of every id with one of these producer ids, by producer id."""
    indexes = [partition.read.state.window.records for partition in side.partitions.values()]
    return by_producer(
        transaction_history(row for index in indexes for row in index.records(index.ids_of(producer_ids)))
    )
