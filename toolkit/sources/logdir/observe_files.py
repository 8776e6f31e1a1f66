"""An observation of files (`analysis.diagnosis.observation.Observation`), with doubts about their consistency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from toolkit.analysis.diagnosis.observation import Coverage, FirstBatch, Observation
from toolkit.analysis.diagnosis.open_transactions import IndexedObservation
from toolkit.analysis.diagnosis.verdicts import rule_for
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.batches import DELETE_HORIZON, LOG_APPEND_TIME
from toolkit.schema import utc
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import (
    Contents,
    FileScope,
    ReplicaWithCheckpoints,
)
from toolkit.sources.logdir.coordinator.coordinator_state import CoordinatorState, read_coordinator_side
from toolkit.sources.logdir.files.replica_log import ReplicaLog
from toolkit.sources.logdir.state.consistency import check_consistency
from toolkit.sources.logdir.state.log_window import ReadLimit
from toolkit.sources.logdir.state.replica_state import partition_row, producer_rows

__all__ = ["FileObservation", "observe_files"]


class FileObservation(NamedTuple):
    """An observation, the replicas of each partition (the one with most of the log first), and the coordinators."""

    observation: Observation
    replicas: Mapping[TopicPartition, Sequence[ReplicaWithCheckpoints]]
    side: CoordinatorState


def observe_files(
    contents: Contents,
    logs: Sequence[ReplicaLog],
    *,
    consistent_copy: bool,
    txn_state_partitions: int | None = None,
    reach: ReadLimit = ReadLimit.OPEN,
) -> FileObservation:
    """Observe partitions and ``__transaction_state``.

    Parameters
    ----------
    contents
        All files.
    logs
        Replicas of the partitions to observe.
    consistent_copy
        Whether the caller asserts that the brokers were stopped when the files were copied, and that these replicas
        were in sync.
    txn_state_partitions
        Number of partitions of ``__transaction_state``, if the caller knows it.
    reach
        How far back the partitions are read.
    """
    requested = {(log.where.topic, log.where.partition) for log in logs}
    others = [log for log in contents.of_topic(STATE_TOPIC) if log not in logs]
    found = contents.by_place([*logs, *others], reach=reach)
    replicas = {tp: reads for tp, reads in found if tp in requested}
    side = read_coordinator_side(contents, count=txn_state_partitions)
    reads = {tp: found[0] for tp, found in replicas.items()}
    scope = contents.scope(logs)
    observed_at = scope.written_at or contents.taken_at
    partitions = [  # the replica takes the leader's role: the rules check that the same broker answered twice
        {**partition_row(read.state), "leader": read.state.log.where.broker_id, "error": read.state.error}
        for read in reads.values()
    ]
    producers = [row for read in reads.values() for row in producer_rows(read.state) if not row["error"]]
    observation = Observation(
        partitions=partitions,
        producers=producers,
        transactions=side.rows(consistent_copy=observed_at if consistent_copy else None, observed_at=observed_at),
        partitions_after=partitions,
        producers_after=producers,
        coverage=_coverage(scope, side),
        observed_at=observed_at,
        first_batches=dict(_first_batches(reads)),
        from_files=True,
        notes={tp: list(_notes(found)) for tp, found in replicas.items()},
    )
    return FileObservation(_with_doubts(observation, replicas, side, consistent_copy=consistent_copy), replicas, side)


def _with_doubts(
    observation: Observation,
    replicas: Mapping[TopicPartition, Sequence[ReplicaWithCheckpoints]],
    side: CoordinatorState,
    *,
    consistent_copy: bool,
) -> Observation:
    """The observation with doubts about transactions that would otherwise be hanging, and with what was proven."""
    doubts: dict[tuple[str, int, int], Sequence[str]] = {}
    notes = {tp: list(found) for tp, found in observation.notes.items()}
    by_log: dict[int, list[str]] = {}  # every transaction needs the changes of the coordinators' logs

    def changes(log: ReplicaLog) -> list[str]:
        if id(log) not in by_log:
            by_log[id(log)] = log.changes(appending=False)
        return by_log[id(log)]

    for tp, cases in IndexedObservation(observation).cases.items():
        hanging = [txn for txn in cases if txn.start is not None and rule_for(txn).verdict == "hanging"]
        if not hanging:
            continue
        lowest = min(start for txn in hanging if (start := txn.start) is not None)
        for txn in hanging:
            found = check_consistency(
                txn, replicas[tp][0], side, lowest=lowest, changes=changes if consistent_copy else None
            )
            if len(ids := {read.state.topic_id for read in replicas[tp]} - {None}) > 1:
                found.doubts.append(
                    f"replicas of one topic: {tp[0]} was deleted and created again; the replicas have {len(ids)} topic "
                    "ids"
                )
            doubts[*tp, txn.producer["producer_id"]] = found.doubts
            notes.setdefault(tp, []).extend(note for note in found.notes if note not in notes[tp])
    return replace(observation, doubts=doubts, notes=notes)


def _notes(replicas: Sequence[ReplicaWithCheckpoints]) -> Iterator[str]:
    state = replicas[0].state
    if len(replicas) > 1:
        where = "" if state.log.where.broker_id is None else f" of broker {state.log.where.broker_id}"
        yield (
            f"{len(replicas)} replicas: the one{where} has most of the log and was read: leader epoch "
            f"{state.leader_epoch}, log end offset {state.log_end_offset} ({state.log.name})"
        )
    yield (
        "the broker shut down cleanly and has not started since (.kafka_cleanshutdown)"
        if replicas[0].checkpoints.clean_shutdown
        else "no .kafka_cleanshutdown: the broker is running, crashed, or the file was not copied"
    )
    yield from state.snapshot_errors


def _coverage(scope: FileScope, side: CoordinatorState) -> Coverage:
    gaps = list(side.gaps)
    by_cluster: dict[str | None, list[str]] = {}  # producer ids start at 0 in every cluster
    for root in sorted(scope.roots, key=attrgetter("path")):
        by_cluster.setdefault(root.cluster_id, []).append(str(root.path))
    if len(by_cluster) > 1:
        paths_by_id = "; ".join(f"{paths[0]}: {name or 'unknown cluster'}" for name, paths in by_cluster.items())
        gaps.append(f"files of one cluster, by their meta.properties: {paths_by_id}")
    elif len(paths := by_cluster.get(None, [])) > 1:
        gaps.append(f"the meta.properties of {', '.join(paths[:3])}, to show that they belong to one cluster")
    if any(partition.read.state.log.is_text for partition in side.partitions.values()):
        gaps.append(f"the segments of {STATE_TOPIC}: output of kafka-dump-log.sh shows neither damage nor truncation")
    ids = sum(len(partition.newest) for partition in side.partitions.values())
    proofs = [] if gaps else [f"{STATE_TOPIC} was read completely: {side.count} partitions, {ids} ids"]
    return Coverage(brokers=sorted(scope.brokers), proofs=proofs, gaps=gaps)


def _first_batches(
    reads: Mapping[TopicPartition, ReplicaWithCheckpoints],
) -> Iterator[tuple[tuple[str, int, int], FirstBatch]]:
    """The first batch of each open transaction, if it still exists."""
    for tp, read in reads.items():
        for start, (header,) in read.state.window.first_batches.items():
            appended = bool(header["attributes"] & LOG_APPEND_TIME)
            # Log append time is in max_timestamp; the cleaner overwrites base_timestamp with the delete horizon.
            base = None if header["attributes"] & DELETE_HORIZON else int(header["base_timestamp"])
            yield (
                (*tp, start),
                FirstBatch(
                    base_offset=int(header["base_offset"]),
                    last_offset=int(header["last_offset"]),
                    producer_id=int(header["producer_id"]),
                    producer_epoch=int(header["producer_epoch"]),
                    base_timestamp=utc(int(header["max_timestamp"]) if appended else base),
                    log_append_time=appended,
                ),
            )
