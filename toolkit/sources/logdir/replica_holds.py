"""Past and current LSO holds of partitions in files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def with_holds(
    observed: FileObservation, current_findings: Iterable[Finding], *, min_held_ms: int
) -> Iterator[Finding]:
    """Findings: current ones, and ended transactions that held the LSO long enough.

    `observed`: the observation of the current findings; the first replica of each partition was read completely.
    `current_findings`: the findings at the end of the files.
    `min_held_ms`: as for `toolkit.analysis.history.hold_findings.held_findings`.
    """
    by_partition: defaultdict[tuple[str | None, int | None], list[Finding]] = defaultdict(list)
    for finding in current_findings:
        by_partition[finding.topic, finding.partition].append(finding)
    holds: dict[tuple[str | None, int | None], list[LsoHold]] = {}
    for observed_tp, replicas in observed.replicas.items():
        now = next((each for each in by_partition[observed_tp] if each.last_stable_offset is not None), None)
        lso, high_watermark = (None, None) if now is None else (now.last_stable_offset, now.high_watermark)
        holds[observed_tp] = replica_holds(replicas[0], lso=lso, high_watermark=high_watermark, min_held_ms=min_held_ms)
    past = history_of([hold for of_partition in holds.values() for hold in of_partition], observed.state_topic)
    for tp in sorted(by_partition.keys() | holds.keys(), key=str):
        yield from held_findings(
            holds.get(tp, ()), transaction_history=past, current_findings=by_partition[tp], min_held_ms=min_held_ms
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
