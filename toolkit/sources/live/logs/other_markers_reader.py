"""Read the markers of producers on other partitions, where the coordinators' log does not prove an outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolkit.analysis.diagnosis.evidence.diagnosis_context import (
    MAX_OFFSETS,
    DiagnosisContext,
    marker_partitions,
    named_topics,
    opened_after,
)
from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.evidence.other_markers import OtherMarker, other_markers
from toolkit.errors import ToolkitError
from toolkit.formats.log.headers import Headers, concatenate
from toolkit.schema import Row
from toolkit.schema.live import Producer
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, fetch_range
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.leader_producers import producer_rows
from toolkit.sources.live.state.partition_offsets import partition_rows

MAX_SEARCHED = 5_000  # partitions of a cluster; of a larger one only the topics that records name


def read_other_markers(client: BrokerClient, contexts: Sequence[DiagnosisContext]) -> list[OtherMarker]:
    """Markers of the producers on the partitions that their brokers or their coordinator's records name.

    Parameters
    ----------
    client
        The connection to the brokers.
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
            for marker in _markers(client, row, candidates[TopicPartition(row["topic"], row["partition"])])
        ]
    except ToolkitError:
        return []


def _candidates(
    client: BrokerClient, contexts: Sequence[DiagnosisContext]
) -> Mapping[TopicPartition, Sequence[DiagnosisContext]]:
    """The partitions on which the producers have written, according to their leaders."""
    metadata = read_metadata(client, None)
    if len(metadata.partitions) > MAX_SEARCHED:
        metadata = read_metadata(client, named_topics(contexts))
    return marker_partitions(contexts, map(Producer.of, producer_rows(client, metadata.partitions)))


def _markers(client: BrokerClient, row: Row, contexts: Sequence[DiagnosisContext]) -> Iterator[OtherMarker]:
    begin, end = row["log_start_offset"] or 0, row["high_watermark"]
    since = opened_after(contexts)
    fetched = fetch_range(client, row, max(begin, end - MAX_OFFSETS) if since is None else since, "high_watermark")
    headers = concatenate(list(_headers(fetched.start, fetched.chunks)))
    excerpt = Excerpt(
        headers=headers,
        start=fetched.start,
        stop=min(fetched.stop, fetched.start + MAX_OFFSETS),
        log_start_offset=begin,
        observed_at=row["observed_at"],
        broker_id=row["leader"],
    )
    tp = TopicPartition(row["topic"], row["partition"])
    for producer_id in {context.txn.producer_id for context in contexts}:
        yield from other_markers(tp, excerpt, producer_id)


def _headers(start: int, chunks: Iterable[FetchedChunk]) -> Iterator[Headers]:
    for chunk in chunks:
        headers = chunk.scanned.headers
        yield headers
        if len(headers) and int(headers["last_offset"][-1]) >= start + MAX_OFFSETS:
            return
