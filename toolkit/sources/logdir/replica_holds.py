"""Past and current LSO holds of partitions in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.history.hold_findings import by_producer, held_findings, held_offsets
from toolkit.analysis.history.lso_holds import lso_holds
from toolkit.analysis.log.log_transactions import log_transaction_table
from toolkit.schema.derived import LOG_TRANSACTION_COLUMNS, LsoHold
from toolkit.schema.live import Finding
from toolkit.schema.log import PastTransaction
from toolkit.sources.logdir.coordinator_state import StateTopic
from toolkit.sources.logdir.observe_files import FileObservation
from toolkit.sources.logdir.replica.replica_state import ReplicaState


def with_holds(observed: FileObservation, current_findings: Sequence[Finding], *, min_held_ms: int) -> list[Finding]:
    """Findings: current ones, and ended transactions that held the LSO long enough.

    `observed`: the observation of the current findings; the first replica of each partition was read completely.
    `current_findings`: the findings at the end of the files.
    `min_held_ms`: as for `toolkit.analysis.history.hold_findings.held_findings`.
    """
    offsets = {
        each.tp: (each.last_stable_offset, each.high_watermark)
        for each in reversed(current_findings)
        if each.last_stable_offset is not None
    }
    holds: list[LsoHold] = []
    for tp, replicas in observed.replicas.items():
        lso, high_watermark = offsets.get(tp, (None, None))
        holds += replica_holds(replicas[0], lso=lso, high_watermark=high_watermark, min_held_ms=min_held_ms)
    return held_findings(
        holds,
        transaction_history=history_of(holds, observed.state_topic),
        current_findings=current_findings,
        min_held_ms=min_held_ms,
    )


def replica_holds(
    state: ReplicaState, *, lso: int | None, high_watermark: int | None, min_held_ms: int = 0
) -> list[LsoHold]:
    """The holds in the log of a replica that was read completely, with the records and bytes that each held.

    `lso`, `high_watermark`: of its partition; null if unknown.
    `min_held_ms`: as for `toolkit.analysis.history.lso_holds.lso_holds`.
    """
    window = state.window
    ranges = [
        log_transaction_table(folded.log_transactions, **state.log.where.columns, files=window.fold.file_names).select(
            LOG_TRANSACTION_COLUMNS
        )
        for folded in window.ranges
    ]
    holds = []
    for hold in LsoHold.of_table(lso_holds(*ranges, min_held_ms=min_held_ms)):
        hold = replace(hold, log_end_offset=window.fold.log_end_offset if hold.marker_offset is None else None)
        held_range = held_offsets(hold, lso=lso, high_watermark=high_watermark)
        counted = None if held_range is None else window.counted(*held_range)
        records, size = (None, None) if counted is None else counted
        holds.append(replace(hold, records_held=records, bytes_held=size))
    return holds


def history_of(holds: Iterable[LsoHold], state_topic: StateTopic) -> Mapping[int, Sequence[PastTransaction]]:
    """History of every transactional id of the producers of holds, by producer id."""
    producer_ids = {hold.producer_id for hold in holds if hold.producer_id is not None}
    indexes = [partition.replica.window.records for partition in state_topic.partitions.values()]
    records = (each for index in indexes for each in index.records(index.ids_of(producer_ids)))
    return by_producer(transaction_history(records))
