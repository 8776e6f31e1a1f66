"""Markers of producers on other partitions of the files, where the coordinators' log does not prove an outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from toolkit.analysis.diagnosis.evidence.diagnosis_context import DiagnosisContext
from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.evidence.marker_partitions import (
    MAX_OFFSETS,
    marker_partitions,
    named_topics,
    opened_after,
)
from toolkit.analysis.diagnosis.evidence.other_markers import OtherMarker, other_markers
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import concatenate
from toolkit.schema.live import Producer
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import METADATA_TOPIC, Contents, ReplicaWithCheckpoints
from toolkit.sources.logdir.files.partition_folder import FolderLog
from toolkit.sources.logdir.state.replica_state import ReplicaState, producer_rows
from toolkit.sources.offset_queries.offset_spec import milliseconds

MAX_SEARCHED = 1 << 30  # bytes of newest segments that are read to find the producers on further partitions

Replicas = Mapping[TopicPartition, Sequence[ReplicaWithCheckpoints]]


def read_replica_markers(
    contents: Contents, replicas: Replicas, producers: Sequence[Producer], contexts: Sequence[DiagnosisContext]
) -> list[OtherMarker]:
    """Markers of the producers on the partitions that the files show them on.

    Parameters
    ----------
    contents
        The files; of other partitions, the replica with most of the log is read.
    replicas, producers
        Of the partitions that were read already.
    contexts
        Open transactions whose outcome the coordinators' log does not prove.
    """
    complete = contents.complete()
    if complete.scope(complete.logs).cluster_gaps:
        return []
    further = dict(complete.by_partition(_further_logs(complete, replicas, contexts)))
    states = {tp: found[0].state for tp, found in (*further.items(), *replicas.items())}
    elsewhere = [Producer.of(row) for tp in further for row in producer_rows(states[tp]) if not row["error"]]
    partitions = marker_partitions(contexts, [*producers, *elsewhere])
    return [marker for tp, found in partitions.items() for marker in _markers(tp, states[tp], found)]


def _further_logs(contents: Contents, replicas: Replicas, contexts: Sequence[DiagnosisContext]) -> list[FolderLog]:
    """Logs of partitions that were not read; if they are large, of the topics that records name."""
    logs = [
        log
        for log in contents.logs
        if isinstance(log, FolderLog)
        and log.where.topic not in {None, STATE_TOPIC, METADATA_TOPIC}
        and (log.where.topic, log.where.partition) not in replicas
    ]
    if sum(log.newest_size for log in logs) > MAX_SEARCHED:
        named = named_topics(contexts)
        logs = [log for log in logs if log.where.topic in named]
    sizes = accumulate(log.newest_size for log in logs)
    return [log for log, size in zip(logs, sizes, strict=True) if size <= MAX_SEARCHED]


def _markers(tp: TopicPartition, state: ReplicaState, contexts: Sequence[DiagnosisContext]) -> Iterator[OtherMarker]:
    log, begin, end = state.log, state.log_start_offset or 0, state.high_watermark
    if end is None or not isinstance(log, FolderLog):  # a marker may be a deposed leader's, a text may be incomplete
        return
    since = opened_after(contexts)
    start = max(begin, end - MAX_OFFSETS if since is None else log.offset_before(milliseconds(since)))
    stop = min(end, start + MAX_OFFSETS)
    headers = concatenate([part.scanned.headers for part in log.parts(start=start, stop=stop, crc=True)])
    excerpt = Excerpt(
        headers=headers[headers["crc_ok"] != 0],
        start=start,
        stop=stop,
        log_start_offset=state.log_start_offset,
        observed_at=state.observed_at,
        source="log",
        broker_id=log.where.broker_id,
    )
    for producer_id in {context.txn.producer_id for context in contexts}:
        yield from other_markers(tp, excerpt, producer_id)
