"""What a live cluster gives to every diagnosis: its logs, and the groups that wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.evidence_source import EvidenceSource
from toolkit.sources.live.blocked_groups import with_groups
from toolkit.sources.live.client.broker_client import BrokerClient

if TYPE_CHECKING:
    from toolkit.analysis.coordinator.coordinator_log import CoordinatorLog
    from toolkit.analysis.diagnosis.case import Case
    from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt
    from toolkit.analysis.diagnosis.evidence.log_selection import ExcerptStart, LogSelection
    from toolkit.analysis.diagnosis.evidence.other_markers import MarkerSearch


class LiveEvidence(EvidenceSource):
    """The logs and groups of a cluster; the modules that read logs are imported late, as they import numpy."""

    def __init__(self, client: BrokerClient) -> None:
        self.client = client

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        from toolkit.sources.live.logs.log_evidence import excerpts_around

        return excerpts_around(self.client, starts)

    def coordinator_logs(
        self, selection: LogSelection, excerpts: Mapping[TopicPartition, Excerpt]
    ) -> Iterator[CoordinatorLog]:
        from toolkit.sources.live.logs.log_evidence import coordinator_logs

        return coordinator_logs(self.client, selection, excerpts)

    def search_markers(self, cases: Sequence[Case]) -> MarkerSearch:
        from toolkit.sources.live.logs.excerpt_reader import search_markers

        return search_markers(self.client, cases)

    def ended(self, cases: Sequence[Case]) -> Collection[TransactionKey]:
        from toolkit.sources.live.logs.log_evidence import ended

        return ended(self.client, cases)

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        return with_groups(self.client, findings)
