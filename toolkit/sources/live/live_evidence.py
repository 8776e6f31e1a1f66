"""What a live cluster gives to every diagnosis: its logs, as far as a case needs them, and the groups that wait.

What reads logs imports numpy, and late: most diagnoses read none.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.coordinator.transaction_history import CoordinatorLog
from toolkit.analysis.diagnosis.case import Case
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.evidence_source import EvidenceSource
from toolkit.sources.live.blocked_groups import with_groups
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.state.broker_configs import compacted_topics
from toolkit.sources.live.state.leaders import read_metadata
from toolkit.sources.live.state.producer_states import read_producers

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart
    from toolkit.analysis.diagnosis.markers import MarkerSearch

MAX_PARTITIONS = 50  # with an excerpt of megabytes, for cause and impact
PARTITIONS_AT_ONCE = 10  # bounds memory
TIMEOUT_S = 10.0  # the rest gets a small excerpt
SMALL_EXCERPT = 1 << 16  # bytes; enough for the outcome
SMALL_AT_ONCE = 100
SMALL_TIMEOUT_S = 20.0


class LiveEvidence(EvidenceSource):
    """The logs and groups of a cluster."""

    def __init__(self, client: BrokerClient) -> None:
        self.client = client

    @property
    def cluster_id(self) -> str | None:
        return self.client.cluster_id

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        """Large ones of the first partitions, small ones of the others."""
        from toolkit.sources.live.logs.excerpt_reader import read_excerpts

        starts = [each for each in starts if each.leader.leader is not None and each.leader.high_watermark is not None]
        compacted = compacted_topics(self.client, {each.tp.topic for each in starts})
        excerpts: dict[TopicPartition, Excerpt] = {}
        deadline = time.monotonic() + TIMEOUT_S
        for start in range(0, min(len(starts), MAX_PARTITIONS), PARTITIONS_AT_ONCE):
            if time.monotonic() < deadline:
                batch = starts[start : min(start + PARTITIONS_AT_ONCE, MAX_PARTITIONS)]
                excerpts |= read_excerpts(self.client, batch, compacted=compacted, deadline=deadline)
        deadline = time.monotonic() + SMALL_TIMEOUT_S
        others = [each for each in starts if each.tp not in excerpts]
        for start in range(0, len(others), SMALL_AT_ONCE):
            if time.monotonic() < deadline:
                batch = others[start : start + SMALL_AT_ONCE]
                excerpts |= read_excerpts(
                    self.client, batch, compacted=compacted, deadline=deadline, max_bytes=SMALL_EXCERPT
                )
        return excerpts

    def coordinator_logs(self, cases: Sequence[Case]) -> Iterator[CoordinatorLog]:
        """From the time of the open records on; then from the beginning of the log on, if that is more."""
        from toolkit.sources.live.logs.coordinator_logs import CoordinatorReader

        reader = CoordinatorReader(self.client, cases)
        yield reader.read()
        if (further := reader.read_further()) is not None:
            yield further

    def search_markers(self, cases: Sequence[Case]) -> MarkerSearch:
        from toolkit.sources.live.logs.excerpt_reader import search_markers

        return search_markers(self.client, cases)

    def ended(self, cases: Sequence[Case]) -> Collection[TransactionKey]:
        """Those that their leaders do not show open any more."""
        partitions = {each.tp for each in cases}
        metadata = read_metadata(self.client, {topic for topic, _ in partitions}).at(sorted(partitions))
        producers = read_producers(self.client, metadata, idle_producers=False)
        unread = {each.tp for each in producers if each.error}
        still_open = {(*each.tp, each.producer_id, each.current_txn_start_offset) for each in producers}
        return {each.key for each in cases if each.key not in still_open and each.tp not in unread}

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        return with_groups(self.client, findings)
