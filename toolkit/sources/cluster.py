"""A live cluster as tables: partitions, producers, transactions, coordinators, findings."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from toolkit import schema
from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.evidence import Look
from toolkit.analysis.excerpts import is_to_explain
from toolkit.analysis.findings import findings
from toolkit.config import ClientConfig
from toolkit.errors import NotFound
from toolkit.schema import Row
from toolkit.sources.coordinators import GROUP, TRANSACTION, coordinator_rows
from toolkit.sources.groups import group_ids, with_groups
from toolkit.sources.live_logs import LiveLogs
from toolkit.sources.look import take_look
from toolkit.sources.offsets import partition_rows
from toolkit.sources.producers import producer_rows, producer_rows_at
from toolkit.sources.topology import Place, as_places, read_topology
from toolkit.sources.transactional_ids import all_ids, filtered_rows, named_rows
from toolkit.sources.transactions import Filters
from toolkit.sources.wire import Wire

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cluster"]

Partitions = Sequence[int] | Sequence[Place]

LOOK_AGAIN = {"hanging", "unknown", "unreplicated", "ending", "stuck_ending"}  # what one look may mistake


class Cluster(LiveLogs):
    """A live cluster, connected at once.

    Every table has two methods: ``partitions()`` gives a pandas DataFrame as ``toolkit.schema`` declares it,
    ``partition_rows()`` the same as a list of dicts. What could not be looked at is a row with `error`, never
    left out.

    Parameters
    ----------
    config
        ``"host:port"``, a mapping of librdkafka or Java client keys, or a `ClientConfig`.
    timeout
        Seconds that connecting, and each round of requests, may take.

    Raises
    ------
    ConnectionFailed, AuthenticationFailed
        If no broker lets this client in.

    Examples
    --------
    >>> with Cluster("localhost:9092") as cluster:  # doctest: +SKIP
    ...     cluster.findings(topics=["orders"])
    """

    def __init__(self, config: str | Mapping[str, object] | ClientConfig, *, timeout: float = 30.0) -> None:
        self.config = ClientConfig(config)
        self.timeout = timeout
        self.wire = Wire(self.config, timeout=timeout)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Self:
        """Connect as the ``client.properties`` of an application says."""
        return cls(ClientConfig.from_properties(path), timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({self.bootstrap_servers!r}, brokers={sorted(self.wire.brokers)})"

    def close(self) -> None:
        """Close every connection."""
        self.wire.close()

    @property
    def bootstrap_servers(self) -> str:
        """Where this client first knocks: ``host:port``, separated by commas."""
        return ",".join(self.config.bootstrap_servers)

    def partitions(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> pd.DataFrame:
        """Offsets of partitions by their leaders (``schema.PARTITIONS``).

        Parameters
        ----------
        topics
            Topic names; all topics, internal ones included, if null.
        partitions
            Numbers, of each of `topics`; or pairs of topic and number, without `topics`.

        Raises
        ------
        NotFound
            If the cluster does not have one of them.
        """
        return schema.PARTITIONS.frame(self.partition_rows(topics, partitions))

    def partition_rows(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> list[Row]:
        """`partitions` as rows."""
        return _sorted(schema.PARTITIONS, partition_rows(self.wire, self._bases(topics, partitions)))

    def producers(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        broker_id: int | None = None,
    ) -> pd.DataFrame:
        """Producer state of partitions (``schema.PRODUCERS``); a partition without producers gives no row.

        Parameters
        ----------
        topics, partitions
            As for `partitions`.
        broker_id
            Ask this broker's own replicas, leaders or not, instead of the leaders. Without `partitions`, those that
            it has are asked.

        Raises
        ------
        NotFound
            If the cluster does not have one of them.
        """
        return schema.PRODUCERS.frame(self.producer_rows(topics, partitions, broker_id=broker_id))

    def producer_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        broker_id: int | None = None,
    ) -> list[Row]:
        """`producers` as rows."""
        if broker_id is None:
            return _sorted(schema.PRODUCERS, producer_rows(self.wire, self._bases(topics, partitions)))
        bases = self._bases(topics, partitions, broker_id=broker_id if partitions is None else None)
        self._known(broker_id)
        return _sorted(schema.PRODUCERS, producer_rows_at(self.wire, bases, broker_id=broker_id))

    def transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """What the coordinators say of transactional ids (``schema.TRANSACTIONS``), one row per id.

        A broker that did not answer gives a row without id. One that is too old to be asked (before 3.0) has its ids
        read from ``__transaction_state`` beside that row.

        Parameters
        ----------
        states
            Only ids in these states.
        producer_ids
            Only ids with these producer ids.
        min_duration_ms
            Only ids with a transaction that has been open for longer.
        transactional_id_pattern
            Only ids that this regular expression matches as a whole.
        transactional_ids
            Exactly these ids instead; one that does not exist gives a row with `error`.
        """
        rows = self.transaction_rows(states, producer_ids, min_duration_ms, transactional_id_pattern, transactional_ids)
        return schema.TRANSACTIONS.frame(rows)

    def transaction_rows(
        self,
        states: Collection[str] | None = None,
        producer_ids: Collection[int] | None = None,
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
    ) -> list[Row]:
        """`transactions` as rows."""
        filters = Filters(
            states=states or (),
            producer_ids=producer_ids or (),
            min_duration_ms=min_duration_ms,
            pattern=transactional_id_pattern,
        )
        if transactional_ids is None:
            return _sorted(schema.TRANSACTIONS, filtered_rows(self.wire, self.config, filters))
        return _sorted(schema.TRANSACTIONS, named_rows(self.wire, self.config, transactional_ids))

    def coordinators(
        self, transactional_ids: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Who coordinates ids and groups, by hash and by FindCoordinator (``schema.COORDINATORS``).

        Parameters
        ----------
        transactional_ids, groups
            Ids; all that the brokers list if null.

        Raises
        ------
        BrokerError, ConnectionFailed
            If all are wanted and a broker does not list its own.
        """
        return schema.COORDINATORS.frame(self.coordinator_rows(transactional_ids, groups))

    def coordinator_rows(
        self, transactional_ids: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> list[Row]:
        """`coordinators` as rows."""
        if transactional_ids is None:
            transactional_ids = all_ids(self.wire, self.config)
        if groups is None:
            groups = list(group_ids(self.wire, sorted(self.wire.brokers)))
        rows = coordinator_rows(self.wire, transactional_ids, TRANSACTION)
        return _sorted(schema.COORDINATORS, rows + coordinator_rows(self.wire, groups, GROUP))

    def exposure(self) -> pd.DataFrame:
        """How far the cluster and its clients are protected from hanging transactions (``schema.EXPOSURE``; KIP-890).

        The features of the cluster, the settings of every broker, and each transactional id whose client writes as
        before transaction version 2. What may not be read is a row with `error`.
        """
        return schema.EXPOSURE.frame(self.exposure_rows())

    def exposure_rows(self) -> list[Row]:
        """`exposure` as rows."""
        from toolkit.sources.exposure import exposure_rows  # with numpy, which nothing else here needs

        return _sorted(schema.EXPOSURE, exposure_rows(self.wire))

    def look(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> Look:
        """Everything the verdicts need, seen once (`analysis.evidence.Look`)."""
        return self._look(self._bases(topics, partitions), whole_cluster=topics is None and partitions is None)

    def findings(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        broker_id: int | None = None,
        looks_apart: float = 5.0,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        log_evidence: bool = True,
    ) -> pd.DataFrame:
        """Who holds the LSO of each partition, why, and what is safe (``schema.FINDINGS``).

        Parameters
        ----------
        topics, partitions
            As for `partitions`. A partition that is asked for has a row even where nothing is held.
        broker_id
            Only partitions that this broker has a replica of.
        looks_apart
            Seconds between two looks. The second one is only taken where the first finds what one look may mistake,
            and only at those partitions; 0 is a single look.
        max_transaction_timeout_ms
            A live transaction that is open for longer is ``long``; the default is the brokers' default.
        log_evidence
            Read the log around what is held, a few megabytes at most, for its cause, opening time and impact. Where
            all is well nothing is read.

        Raises
        ------
        NotFound
            If the cluster does not have one of them.
        """
        rows = self.finding_rows(
            topics,
            partitions,
            broker_id=broker_id,
            looks_apart=looks_apart,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
            log_evidence=log_evidence,
        )
        return schema.FINDINGS.frame(rows)

    def finding_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        broker_id: int | None = None,
        looks_apart: float = 5.0,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        log_evidence: bool = True,
    ) -> list[Row]:
        """`findings` as rows."""
        bases = self._bases(topics, partitions, broker_id=broker_id)
        whole_cluster = topics is None and partitions is None and broker_id is None
        asked = () if whole_cluster else list(bases)
        looks = [self._look(bases, whole_cluster=whole_cluster)]
        rows = findings(looks, asked=asked, max_transaction_timeout_ms=max_transaction_timeout_ms)
        doubtful = {(row["topic"], row["partition"]) for row in rows if row["verdict"] in LOOK_AGAIN and row["topic"]}
        if doubtful and looks_apart > 0:
            threading.Event().wait(looks_apart)
            looks.append(self._look_again(looks[0], sorted(doubtful)))
            rows = findings(looks, asked=asked, max_transaction_timeout_ms=max_transaction_timeout_ms)
        if log_evidence and any(is_to_explain(row) for row in rows):
            from toolkit.sources.log_evidence import explained  # with numpy and Arrow, which nothing here needs

            rows = explained(self.wire, looks, rows)
        return _sorted(schema.FINDINGS, with_groups(self.wire, rows))

    def _look(self, bases: Mapping[Place, Row], *, whole_cluster: bool) -> Look:
        return take_look(self.wire, self.config, bases, whole_cluster=whole_cluster)

    def _look_again(self, first: Look, places: Iterable[Place]) -> Look:
        """A second look at some partitions, which still speaks for the scope of the first."""
        places = list(places)
        bases = read_topology(self.wire, {topic for topic, _ in places}).at(places)
        second = self._look(bases, whole_cluster=False)
        return replace(second, coverage=replace(second.coverage, topic_gaps=first.coverage.topic_gaps))

    def _bases(
        self,
        topics: Sequence[str] | None,
        partitions: Partitions | None,
        *,
        broker_id: int | None = None,
    ) -> Mapping[Place, Row]:
        """The partitions that are meant, by the metadata; only those with a replica on a broker, if one is given."""
        names = [topics] if isinstance(topics, str) else topics
        wanted: Iterable[str] | None = names
        if broker_id is not None:
            self._known(broker_id)
        if names is None and partitions is not None:
            wanted = [part[0] for part in partitions if not isinstance(part, int)]
        topology = read_topology(self.wire, None if wanted is None else set(wanted))
        bases = topology.at(as_places(topology, names, partitions))
        return {
            place: base for place, base in bases.items() if broker_id is None or broker_id in (base["replicas"] or ())
        }

    def _known(self, broker_id: int) -> None:
        read_topology(self.wire, [])  # the newest list of brokers
        if broker_id not in self.wire.brokers:
            present = ", ".join(map(str, sorted(self.wire.brokers)))
            raise NotFound(f"Broker {broker_id} is not in the cluster; it has {present}.")


def _sorted(table: schema.Table, rows: Iterable[Row]) -> list[Row]:
    """Rows in the table's own order, unknown values last."""
    return sorted(
        rows, key=lambda row: [(row[name] is None, 0 if row[name] is None else row[name]) for name in table.sort]
    )
