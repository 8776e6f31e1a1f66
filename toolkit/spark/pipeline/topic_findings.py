"""The findings and LSO holds of all topics: those that are there, and earlier ones that had the same name.

A topic that was deleted and created again is another topic: it has its own holds and ended transactions, and nothing of
the earlier one is open any more.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from pyspark.sql import functions as sf
from pyspark.sql.dataframe import DataFrame

from toolkit.analysis.history.findings_over_time import close_by_log, merge_findings, observed_holds, without_short
from toolkit.analysis.history.hold_findings import attributed_holds, by_producer, held_findings, merge_holds
from toolkit.schema import Row
from toolkit.schema.derived import LsoHold
from toolkit.schema.live import Finding
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import EPOCH, TopicPartition, TransactionKey
from toolkit.spark.datasources.log_identity import LogIdentity, Origin
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.fold_states import FoldStates
from toolkit.spark.pipeline.stored_findings import (
    best_logs,
    diagnosable,
    findings_over_time,
    holds_of,
    markers,
    near_transaction_history,
)
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredLog, StoredRun, StoredState
from toolkit.spark.pipeline.tables.stored_tables import CLUSTER_ID, IS_CURRENT, KEPT, RECORDED_AS, TOPIC_ID
from toolkit.spark.pipeline.tables.table_store import TableStore

ENDED = "ended"


class StoredRecord(NamedTuple):
    """A row of ``lso_holds`` or ``logs``."""

    record: LsoHold | StoredLog
    origin: Origin

    def row(self) -> dict[str, Any]:
        """Its stored columns."""
        return {**self.record.row(), **self.origin._asdict()}


class StoredFinding(NamedTuple):
    """A row of ``findings``."""

    finding: Finding
    origin: Origin
    is_current: bool

    @staticmethod
    def of(row: Row) -> StoredFinding:
        """The finding of a stored row."""
        return StoredFinding(Finding.of(row), Origin(row[CLUSTER_ID], row[TOPIC_ID]), bool(row[IS_CURRENT]))

    def row(self) -> dict[str, Any]:
        """Its stored columns."""
        return {**self.finding.row(), **self.origin._asdict(), IS_CURRENT: self.is_current}


@dataclass(slots=True)
class _TopicResults:
    """Holds and findings of one topic, or of a cluster."""

    holds: list[LsoHold] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TopicFindings:
    """What is stored of logs and recordings."""

    store: TableStore  # the stored tables
    states: FoldStates  # the states of logs, those of this run included
    run: StoredRun  # the last diagnosis
    listings: Mapping[str, LogListing]  # the logs of this run
    is_consistent: bool  # whether they are asserted to be a consistent copy
    min_held_ms: int  # shortest hold of the LSO to keep

    def stored(self, *, with_samples: bool) -> tuple[list[StoredRecord], list[StoredFinding]]:
        """All holds and findings. `with_samples`: whether there are samples of recordings."""
        found = self._of_logs() if self.run.signature is not None else {}
        if with_samples:
            self._add_samples(found)
        since = self._since(with_samples=with_samples)
        holds: list[StoredRecord] = []
        findings: list[StoredFinding] = []
        for origin, results in found.items():
            holds += [StoredRecord(hold, origin) for hold in results.holds]
            for each in without_short(results.findings, min_held_ms=self.min_held_ms):
                is_open = each.held_to is None and each.verdict != ENDED
                is_current = is_open and (since is None or each.observed_at >= since)
                findings.append(StoredFinding(each, origin, is_current))
        return holds, findings

    @cached_property
    def _origins(self) -> Mapping[TopicPartition, Origin]:
        """The present topic of each partition; of one that is not listed now, the newest."""
        found: dict[TopicPartition, Origin] = {}
        for state in sorted(self.states.all.values(), key=lambda each: each.latest or EPOCH):
            if state.topic is not None and state.partition is not None and not state.log.endswith(IDS):
                found[TopicPartition(state.topic, state.partition)] = LogIdentity.of(state.log).origin
        for name, row in self.listings.items():
            if row.topic is not None and row.partition is not None and not name.endswith(IDS):
                found[TopicPartition(row.topic, row.partition)] = LogIdentity.of(name).origin
        return found

    @cached_property
    def _cluster(self) -> Origin:
        """The cluster of findings that are about no partition."""
        ids = {LogIdentity.of(name).cluster_id for name in self.listings}
        return Origin(ids.pop() if len(ids) == 1 else None, None)

    def _origin(self, finding: Finding) -> Origin:
        return self._cluster if finding.tp is None else self._origins.get(finding.tp, self._cluster)

    def _of_logs(self) -> dict[Origin, _TopicResults]:
        """Holds of the LSO in logs, and findings: `ended` if the log shows the end."""
        current: defaultdict[Origin, list[Finding]] = defaultdict(list)
        for finding in self.run.findings:
            current[self._origin(finding)].append(finding)
        logs: defaultdict[Origin, list[StoredState]] = defaultdict(list)
        for log in best_logs(self.states.all.values()):
            if log.is_held:
                logs[LogIdentity.of(log.log).origin].append(log)
        holds = {origin: holds_of(of_topic, min_held_ms=self.min_held_ms) for origin, of_topic in logs.items()}
        histories = self._histories(holds)
        return {
            origin: self._of_topic(
                origin,
                holds.get(origin, []),
                transaction_history=histories.get(origin.cluster_id, []),
                current_findings=current[origin],
            )
            for origin in dict.fromkeys([*holds, *current])
        }

    def _of_topic(
        self,
        origin: Origin,
        holds: list[LsoHold],
        *,
        transaction_history: list[PastTransaction],
        current_findings: list[Finding],
    ) -> _TopicResults:
        present = {tp for tp, each in self._origins.items() if each == origin}
        # Of an earlier topic, nothing is open any more.
        known = [hold for hold in holds if hold.marker_offset is not None or (hold.topic, hold.partition) in present]
        transactions = by_producer(transaction_history)
        found = held_findings(
            diagnosable(known, current_findings, listed=self._listed),
            transaction_history=transactions,
            current_findings=current_findings,
            min_held_ms=self.min_held_ms,
        )
        attributed = attributed_holds(holds, transactions)
        long = [hold for hold in attributed if hold.held_ms is None or hold.held_ms >= self.min_held_ms]
        return _TopicResults(long, found)

    def _histories(self, holds: Mapping[Origin, Iterable[LsoHold]]) -> dict[str | None, list[PastTransaction]]:
        """The history near the holds of each cluster: producer ids are those of a cluster."""
        by_cluster: defaultdict[str | None, list[LsoHold]] = defaultdict(list)
        for origin, of_topic in holds.items():
            by_cluster[origin.cluster_id] += of_topic
        stored = self.store.load("transaction_history", KEPT["transaction_history"])
        return {
            cluster: near_transaction_history(of_cluster, stored.where(sf.col(CLUSTER_ID).eqNullSafe(sf.lit(cluster))))
            for cluster, of_cluster in by_cluster.items()
        }

    @property
    def _listed(self) -> Collection[tuple[str | None, int | None]] | None:
        """The partitions of files that are asserted to be a consistent copy; null for others."""
        return {(row.topic, row.partition) for row in self.listings.values()} if self.is_consistent else None

    # Recordings, which have no topic ids: they are of the present topics, but for transactions of an earlier one.

    def _add_samples(self, found: dict[Origin, _TopicResults]) -> None:
        samples = self._stored(RECORDED_AS["samples"])
        recorded = Finding.of_table(findings_over_time(self._stored(RECORDED_AS["findings"]), samples).toArrow())
        if self.run.signature is not None:
            recorded = close_by_log(recorded, markers(recorded, self._present_transactions()))
        origins: defaultdict[TransactionKey, list[Origin]] = defaultdict(list)
        for origin, results in found.items():
            for finding in results.findings:
                origins[finding.key].append(origin)
        by_origin: defaultdict[Origin, list[Finding]] = defaultdict(list)
        for each in recorded:
            origin, known = self._origin(each), origins.get(each.key, [])
            by_origin[known[-1] if known and origin not in known else origin].append(each)
        for origin, of_topic in by_origin.items():
            results = found.setdefault(origin, _TopicResults())
            results.holds = merge_holds(results.holds, observed_holds(of_topic))
            results.findings = merge_findings(results.findings, of_topic)

    def _present_transactions(self) -> DataFrame:
        stored = self.store.load("log_transactions", KEPT["log_transactions"])
        topic_ids = sorted({each.topic_id for each in self._origins.values() if each.topic_id is not None})
        return stored.where(sf.col(TOPIC_ID).isNull() | sf.col(TOPIC_ID).isin(topic_ids))

    def _since(self, *, with_samples: bool) -> dt.datetime | None:
        """Time of the newest diagnosis or sample."""
        times = [self.run.diagnosed_at]
        if with_samples:
            stored = self._stored(RECORDED_AS["samples"]).where("error is null")
            (newest,) = stored.agg(sf.max("sampled_at").alias("sampled_at")).toArrow().to_pylist()
            times.append(newest["sampled_at"])
        return max((time for time in times if time is not None), default=None)

    def _stored(self, name: str) -> DataFrame:
        return self.store.load(name, KEPT[name]).select(*KEPT[name].names)


def log_rows(states: Iterable[StoredState]) -> list[StoredRecord]:
    """The rows of the table ``logs``.

    `states`: the states of all logs.
    """
    logs = [each for each in states if not each.log.endswith(IDS)]
    best = {each.log for each in best_logs(logs)}
    return [
        StoredRecord(
            replace(StoredLog.of_columns(each.row()), is_best=each.log in best, is_damaged=bool(each.is_damaged)),
            LogIdentity.of(each.log).origin,
        )
        for each in logs
    ]
