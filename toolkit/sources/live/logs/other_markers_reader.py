"""Read the markers of producers on other partitions, where the coordinators' log does not prove an outcome."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolkit.analysis.diagnosis.evidence.diagnosis_context import DiagnosisContext
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, Excerpt
from toolkit.analysis.diagnosis.evidence.other_markers import OtherMarker, other_markers
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import Headers, concatenate
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, fetch_range
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.leader_producers import producer_rows
from toolkit.sources.live.state.partition_offsets import partition_rows

__all__ = ["read_other_markers"]

MAX_SEARCHED = 5_000  # partitions of a cluster; of a larger one only the topics that records name
MAX_OF_EACH = 3  # partitions of a producer: one marker of the transaction is enough
MAX_PARTITIONS = 100
MAX_OFFSETS = 20_000  # of each, from the time of the open records on


def read_other_markers(client: BrokerClient, contexts: Sequence[DiagnosisContext]) -> list[OtherMarker]:
    """Markers of the producers on the partitions that their brokers or their coordinator's records name.

    Parameters
    ----------
    contexts
        Open transactions whose outcome the coordinators' log does not prove. What cannot be read is left out: it proves
        nothing.
    """
    try:
        candidates = _candidates(client, contexts)
        metadata = read_metadata(client, {topic for topic, _ in candidates}).at(sorted(candidates))
        return [
            marker
            for row in partition_rows(client, metadata)
            if not row["error"]
            for marker in _markers(client, row, candidates[row["topic"], row["partition"]])
        ]
    except ToolkitError:
        return []


def _candidates(
    client: BrokerClient, contexts: Sequence[DiagnosisContext]
) -> Mapping[TopicPartition, list[DiagnosisContext]]:
    """The partitions on which the producers have written, according to their leaders."""
    metadata = read_metadata(client, None)
    if len(metadata.partitions) > MAX_SEARCHED:
        named = {topic for context in contexts for event in context.events for topic, _ in event.topic_partitions or ()}
        metadata = read_metadata(client, named | {context.txn.tp[0] for context in contexts})
    by_producer: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
    for row in producer_rows(client, metadata.partitions):
        if row["topic"] != STATE_TOPIC and row["producer_epoch"] is not None:
            by_producer[row["producer_id"]].append((row["producer_epoch"], (row["topic"], row["partition"])))
    known: defaultdict[TopicPartition, list[DiagnosisContext]] = defaultdict(list)
    for context in contexts:
        # A marker raises the epoch: the lowest of those that are higher have the fewest records after it.
        written = sorted(each for each in by_producer[context.txn.producer_id] if each[0] > context.txn.epoch)
        for _, tp in [each for each in written if each[1] != context.txn.tp][:MAX_OF_EACH]:
            if tp in known or len(known) < MAX_PARTITIONS:
                known[tp].append(context)
    return known


def _markers(client: BrokerClient, row: Row, contexts: Iterable[DiagnosisContext]) -> Iterator[OtherMarker]:
    contexts = list(contexts)
    since = [_opened_after(context) for context in contexts]
    begin, end = row["log_start_offset"] or 0, row["high_watermark"]
    known = [time for time in since if time is not None]
    start = max(begin, end - MAX_OFFSETS) if len(known) < len(since) else min(known)
    fetched = fetch_range(client, row, start, "high_watermark")
    headers = concatenate(list(_headers(fetched.start, fetched.chunks)))
    excerpt = Excerpt(
        headers=headers,
        start=fetched.start,
        stop=min(fetched.stop, fetched.start + MAX_OFFSETS),
        log_start_offset=begin,
        observed_at=row["observed_at"],
        broker_id=row["leader"],
    )
    tp = row["topic"], row["partition"]
    for producer_id in {context.txn.producer_id for context in contexts}:
        yield from other_markers(tp, excerpt, producer_id)


def _headers(start: int, chunks: Iterable[FetchedChunk]) -> Iterator[Headers]:
    for chunk in chunks:
        headers = chunk.scanned.headers
        yield headers
        if len(headers) and int(headers["last_offset"][-1]) >= start + MAX_OFFSETS:
            return


def _opened_after(context: DiagnosisContext) -> dt.datetime | None:
    batches = context.producer_batches
    earlier = None if batches is None else batches.brokers_time_before
    return None if earlier is None else earlier - CLOCKS_DIFFER
