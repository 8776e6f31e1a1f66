"""`EvidenceSource`: what a diagnosis needs of a cluster, a log directory, a recording or the next sample of one."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.schema.live import Finding
from toolkit.schema.log import ClusterEvent
from toolkit.schema.table import TopicPartition, TransactionKey

if TYPE_CHECKING:
    from toolkit.analysis.coordinator.transaction_history import CoordinatorLog
    from toolkit.analysis.diagnosis.case import Case
    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart
    from toolkit.analysis.diagnosis.markers import MarkerSearch


class EvidenceSource(ABC):
    """What a source gives to a diagnosis.

    Attributes
    ----------
    requested
        Partitions that get a finding even if nothing is held.
    recorded
        For a recording: the findings that were recorded with the observation; its logs cannot be read again.
    searches_in_doubt
        Whether markers are looked for even if a verdict does not need them: not where that reads a gigabyte.
    """

    requested: Collection[TopicPartition] = ()
    recorded: Sequence[Finding] = ()
    searches_in_doubt: bool = True

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, once it was observed; null if it is not known."""
        return None

    @abstractmethod
    def observations(self) -> Sequence[Observation]:
        """The observations, in order of time; the last one is diagnosed."""

    def observe_again(self, partitions: Sequence[TopicPartition]) -> Observation:
        """A later observation of some partitions; for sources that change (`recheck_after`)."""
        raise NotImplementedError

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        """The log around open transactions, by partition; for sources that have logs (`log_evidence`), as what follows.

        One that was not read is left out.
        """
        raise NotImplementedError

    def coordinator_logs(self, cases: Sequence[Case]) -> Iterator[CoordinatorLog]:
        """The coordinators' records of their owners, or of former ones, at least once; each time further back."""
        raise NotImplementedError

    def cluster_events(self, since: dt.datetime) -> Sequence[ClusterEvent]:
        """What happened to the cluster since then, in order; none if the source does not show it."""
        return ()

    def search_markers(self, cases: Sequence[Case]) -> MarkerSearch:
        """The markers of the transactions' producers on other partitions."""
        raise NotImplementedError

    def ended(self, cases: Sequence[Case]) -> Collection[TransactionKey]:
        """Those that are not open any more; none if nothing changes."""
        return ()

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """The findings with the groups that wait, as far as the source shows them."""
        return findings

    def owners(self, ids: Collection[str], observations: Sequence[Observation]) -> Mapping[str, str | None]:
        """Whose some transactional ids are, as far as the source shows it."""
        return {}
