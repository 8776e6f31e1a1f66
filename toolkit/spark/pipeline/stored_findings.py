"""Findings and LSO holds from stored tables of logs and recordings: which transaction held which LSO, and when.

Holds of the LSO and current findings are few, so the driver diagnoses them. Spark selects the rows that it needs from
the growing tables. A topic that was deleted and created again is another topic: it has its own holds and ended
transactions, and nothing of the earlier one is open any more.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.findings_over_time import (
    close_by_log,
    is_open,
    merge_findings,
    observation_times,
    observed_holds,
    over_time,
    unread,
    without_short,
)
from toolkit.analysis.hold_findings import attributed_holds, by_producer, held_findings, held_so_far, merge_holds
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, OBSERVATION_TIMES, SAMPLES, TRANSACTION_HISTORY, Row
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import Finding
from toolkit.schema.log import LogTransaction, PastTransaction
from toolkit.schema.recorded import LsoHold, ObservationTime, RecordedSample
from toolkit.schema.table import EPOCH, TopicPartition, TransactionKey
from toolkit.sources.recording.recording import failed_samples, newer_samples
from toolkit.spark.arrow_types import spark_table, struct_type
from toolkit.spark.datasources.log_reader import LogIdentity, LogListing, Origin
from toolkit.spark.pipeline.log_fold import LogState
from toolkit.spark.pipeline.log_states import FoldStates
from toolkit.spark.pipeline.stored_tables import (
    CLUSTER_ID,
    IDS,
    IS_CURRENT,
    KEPT,
    LOG,
    RECORDED_AS,
    StoredLog,
    StoredRun,
    StoredState,
    TableStore,
)

PARTITION = ("topic", "partition")
HAS_ENDED = "row.ended not in ('open', 'stuck') and row.error is null"
BEFORE, AFTER = (  # an hour is far more than the clock difference between brokers
    f"coalesce({HAS_ENDED} and {far}, false)"
    for far in ("row.end_time < begins - interval 1 hour", "row.start_time > held_to + interval 1 hour")
)


def best_logs(
    states: Iterable[StoredState], listings: Mapping[str, LogListing] = MappingProxyType({})
) -> list[StoredState]:
    """The best replica of each partition, selected as by `toolkit.LogDir`; a topic created again is another one.

    `listings`: the logs of this run. A leader has its epoch in leader-epoch-checkpoint before any batch has it: the
    longer log of one that was deposed may end in what the new leader truncates.
    """

    def rank(state: StoredState) -> tuple[object, ...]:
        """Intact first, then the highest leader epoch, the highest end offset, the lowest broker id, by name."""
        listing = listings.get(state.log)
        epochs = () if listing is None else map(int, json.loads(listing.leader_epochs or "{}"))
        epoch = max(-1 if state.leader_epoch is None else state.leader_epoch, *epochs, -1)
        end, broker_id = (-1 if each is None else each for each in (state.log_end_offset, state.broker_id))
        return bool(state.is_damaged), -epoch, -end, broker_id, state.log

    best: dict[tuple[Origin, TopicPartition], StoredState] = {}
    for state in states:
        if state.topic is None or state.partition is None or state.log.endswith(IDS):
            continue
        key = LogIdentity.of(state.log).origin, TopicPartition(state.topic, state.partition)
        best[key] = min(best.get(key, state), state, key=rank)
    return list(best.values())


def holds_of(states: Iterable[StoredState], *, min_held_ms: int) -> list[LsoHold]:
    """The holds of the LSO, from the states of logs.

    `min_held_ms`: leave out shorter holds that have ended.
    """
    found: list[LsoHold] = []
    for state in states:
        found += LsoHold.of_table(LogState.of(state, min_held_ms=min_held_ms).lso_holds())
    return found


def near_transaction_history(holds: Sequence[LsoHold], transaction_history: DataFrame) -> list[PastTransaction]:
    """History that may belong to a hold by producer id and time, and the rows directly before and after.

    `hold_findings.attribute` selects among them. A producer id may have millions of other rows.
    """
    if not holds:
        return []
    begins = [min((at for at in (hold.opened_at, hold.held_to) if at is not None), default=None) for hold in holds]
    holds_frame = transaction_history.sparkSession.createDataFrame(
        [(number, hold.producer_id, begins[number], hold.held_to) for number, hold in enumerate(holds)],
        "hold long, of_producer long, begins timestamp, held_to timestamp",
    )
    producer_ids = sf.array_distinct(sf.array("producer_id", "previous_producer_id"))
    by_producer_id = transaction_history.select(
        sf.struct(*TRANSACTION_HISTORY.names).alias("row"), sf.explode(producer_ids).alias("of_producer")
    )
    pairs = by_producer_id.join(sf.broadcast(holds_frame), "of_producer")
    pairs = pairs.withColumns({"before": sf.expr(BEFORE), "after": sf.expr(AFTER)})
    found = pairs.groupBy("hold").agg(
        sf.collect_list(sf.when(~(sf.col("before") | sf.col("after")), sf.col("row"))).alias("near"),
        sf.max_by("row", sf.when(sf.col("before"), sf.col("row.end_time"))).alias("before"),
        sf.min_by("row", sf.when(sf.col("after"), sf.col("row.start_time"))).alias("after"),
    )
    near_rows = found.select(sf.concat("near", sf.array_compact(sf.array("before", "after"))).alias("rows")).toArrow()
    past = (PastTransaction.of(row) for each in near_rows["rows"].to_pylist() for row in each)
    return list(dict.fromkeys(past))  # one may be near several holds


def markers(findings: Iterable[Finding], log_transactions: DataFrame) -> list[LogTransaction]:
    """Transactions of the logs with a marker that are open in findings."""
    still_open = {each.key for each in findings if is_open(each)}
    if not still_open:
        return []
    types = "topic string, partition int, producer_id long, first_offset long"
    open_frame = log_transactions.sparkSession.createDataFrame(list(still_open), types)
    ended = log_transactions.where("marker_offset is not null").select(*LOG_TRANSACTIONS.names)
    found = ended.join(sf.broadcast(open_frame), open_frame.columns, "left_semi").toArrow()
    return LogTransaction.of_table(found)


def findings_over_time(findings: DataFrame, samples: DataFrame) -> DataFrame:
    """The findings of a recording over time, one row for each transaction.

    Parameters
    ----------
    findings
        Rows of ``schema.RECORDED["findings"]``.
    samples
        Rows of ``schema.SAMPLES``, including failed samples and samples without findings.

    Returns
    -------
    DataFrame
        Rows of ``schema.FINDINGS`` as in `findings_over_time.over_time`: `ended` from the first sample without the
        transaction.
    """
    # One row per sample: the samples of a year are few enough for one task.
    times = (
        samples.select("sampled_at", "observed_at", "interval_ms", "topic_gaps", "error")
        .coalesce(1)
        .mapInArrow(_observation_times, struct_type(OBSERVATION_TIMES))
    )
    sampled = findings.join(sf.broadcast(times), "sampled_at")

    def of_partition(rows: pa.Table) -> pa.Table:
        of_samples = rows.group_by(OBSERVATION_TIMES.names).aggregate([])
        found = over_time(rows, ObservationTime.of_table(of_samples))
        return spark_table(FINDINGS.arrow(found))

    return sampled.groupBy(*PARTITION).applyInArrow(of_partition, struct_type(FINDINGS))


def _observation_times(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    samples = (RecordedSample.of(row) for batch in batches for row in batch.to_pylist())
    yield from spark_table(OBSERVATION_TIMES.arrow(observation_times(samples))).to_batches()


ENDED = "ended"


@dataclass(slots=True)
class _TopicResults:
    """Holds and findings of one topic, or of a cluster."""

    holds: list[LsoHold] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class LookTime(NamedTuple):
    """When a look was made: by the clock of the machine that made it, and by the brokers' clocks, null if unknown."""

    by_machine: dt.datetime | None
    by_brokers: dt.datetime | None = None

    def is_after(self, other: LookTime) -> bool:
        """Whether it is certainly later, by the brokers' clocks if both are known; no machine's clock is another's."""
        has_both = self.by_brokers is not None and other.by_brokers is not None
        time, before = (self.by_brokers, other.by_brokers) if has_both else (self.by_machine, other.by_machine)
        return time is not None and before is not None and time > before + CLOCKS_DIFFER


NO_LOOK = LookTime(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestLooks:
    """What the newest diagnosis and the newest sample have: each shows what the other has not looked at since."""

    diagnosed_at: LookTime  # when the diagnosis was made; null if it has no findings
    diagnosed: Collection[TransactionKey]  # what it has
    logs: Collection[tuple[str | None, int | None]]  # the partitions that it has read
    sampled_at: LookTime = NO_LOOK  # when the sample was due; null without any
    latest: dt.datetime | None = None  # the latest time of the sample's clock of a broker in any sample
    sampled: Collection[TransactionKey] = ()  # what it has
    read: Collection[tuple[str | None, int | None]] = ()  # the partitions that it has read, if it is the newer one

    def show(self, finding: Finding) -> bool:
        """Whether a finding, which has not ended by either, is one of now."""
        place = finding.tp
        if finding.key in self.sampled:
            is_older = self.diagnosed_at.is_after(self.sampled_at)
            return not is_older or finding.key in self.diagnosed or (place is not None and place not in self.logs)
        if finding.key not in self.diagnosed:
            return False
        is_older = self.sampled_at.is_after(LookTime(finding.observed_at, finding.brokers_time))
        return not is_older or (place is not None and place not in self.read)


@dataclass(frozen=True, kw_only=True)
class TopicFindings:
    """What is stored of logs and recordings."""

    store: TableStore  # the stored tables
    states: FoldStates  # the states of logs, those of this run included
    run: StoredRun  # the last diagnosis
    listings: Mapping[str, LogListing]  # the logs of this run
    is_consistent: bool  # whether they are asserted to be a consistent copy
    min_held_ms: int  # shortest hold of the LSO to keep

    def stored(self, *, with_samples: bool) -> tuple[list[Row], list[Row]]:
        """All holds and findings, with the columns of the pipeline.

        `with_samples`: whether there are samples of recordings.
        """
        found = self._of_logs() if self.run.signature is not None else {}
        of_logs = [each for results in found.values() for each in results.findings if each.verdict != ENDED]
        since, listed = self.run.diagnosed_at, self.listings.values()
        unread_partitions = {each.tp for each in of_logs if unread([each]) is not None}
        of_run = (each for each in self.run.findings if since is None or each.observed_at >= since)
        times = [each.brokers_time for each in of_run if each.brokers_time is not None]
        known = {each.key for each in self.run.findings}  # also of an earlier run, of topics that this one has not read
        looks = NewestLooks(
            diagnosed_at=LookTime(since, min(times, default=None)),
            diagnosed={each.key for each in of_logs if since is None or each.observed_at >= since or each.key in known},
            logs=({(each.topic, each.partition) for each in listed} or {*self._present}) - unread_partitions,
        )
        holds: list[Row] = []
        findings: list[Row] = []
        if with_samples:
            looks = self._add_samples(found, looks)
            unreachable = [{**each.row(), **self._cluster._asdict()} for each in self._unreachable(looks)]
            findings += [{**each, IS_CURRENT: True} for each in unreachable]
        for origin, results in found.items():
            holds += [{**hold.row(), **origin._asdict()} for hold in results.holds]
            # Of the verdicts on a partition itself, as that it could not be read, the newest is one of now.
            of_partition = [each for each in results.findings if each.start_offset is None]
            newest = {each.key: each.observed_at for each in sorted(of_partition, key=lambda each: each.observed_at)}
            for each in without_short(results.findings, min_held_ms=self.min_held_ms):
                is_current = each.held_to is None and each.verdict != ENDED and looks.show(each)
                is_current = is_current and each.observed_at >= newest.get(each.key, each.observed_at)
                findings.append({**each.row(), **origin._asdict(), IS_CURRENT: is_current})
        return holds, findings

    @cached_property
    def _origins(self) -> Mapping[tuple[str | None, TopicPartition], Origin]:
        """The present topic of each partition of a cluster; of one that is not listed now, the newest."""
        found: dict[tuple[str | None, TopicPartition], Origin] = {}
        states = sorted(self.states.all.values(), key=lambda each: each.latest or EPOCH)
        named: list[tuple[str, StoredState | LogListing]] = [(each.log, each) for each in states]
        for name, each in (*named, *self.listings.items()):
            if each.topic is not None and each.partition is not None and not name.endswith(IDS):
                origin, tp = LogIdentity.of(name).origin, TopicPartition(each.topic, each.partition)
                found.pop((origin.cluster_id, tp), None)
                found[origin.cluster_id, tp] = origin
        return found

    @cached_property
    def _present(self) -> Mapping[TopicPartition, Origin]:
        """The topic of each partition, in the cluster that was read last."""
        return {tp: origin for (_, tp), origin in self._origins.items()}

    @cached_property
    def _cluster(self) -> Origin:
        """The cluster of findings that are about no partition."""
        ids = {LogIdentity.of(name).cluster_id for name in self.listings}
        return Origin(ids.pop() if len(ids) == 1 else None, None)

    def _origin(self, finding: Finding) -> Origin:
        if finding.tp is None:
            return self._cluster if finding.cluster_id is None else Origin(finding.cluster_id, None)
        own = self._origins.get((finding.cluster_id, finding.tp))
        return own or self._present.get(finding.tp, self._cluster)

    def _of_logs(self) -> dict[Origin, _TopicResults]:
        """Holds of the LSO in logs, and findings: `ended` if the log shows the end."""
        current: defaultdict[Origin, list[Finding]] = defaultdict(list)
        clusters: defaultdict[tuple[str | None, int | None], set[str | None]] = defaultdict(set)
        for name, row in self.listings.items():
            clusters[row.topic, row.partition].add(LogIdentity.of(name).cluster_id)
        for finding in self.run.findings:
            of_several = clusters.get((finding.topic, finding.partition), ()) if finding.cluster_id is None else ()
            named = [replace(finding, cluster_id=each) for each in of_several] if len(of_several) > 1 else [finding]
            for each in named:
                current[self._origin(each)].append(each)
        logs: defaultdict[Origin, list[StoredState]] = defaultdict(list)
        best = best_logs(self.states.all.values(), self.listings)
        for log in best:
            if log.is_held:
                logs[LogIdentity.of(log.log).origin].append(log)
        unread_holds = self._unread_holds({each.log for each in best if each.is_damaged})
        holds = {origin: holds_of(of_topic, min_held_ms=self.min_held_ms) for origin, of_topic in logs.items()}
        histories = self._histories(holds)
        found = {
            origin: self._of_topic(
                origin,
                holds.get(origin, []),
                transaction_history=histories.get(origin.cluster_id, []),
                current_findings=current[origin],
            )
            for origin in dict.fromkeys([*holds, *current])
        }
        for origin, hold in unread_holds:
            found.setdefault(origin, _TopicResults()).holds.append(hold)
        return found

    def _unread_holds(self, logs: Collection[str]) -> list[tuple[Origin, LsoHold]]:
        """Of each damaged log, what could not be read first: where it was, another hold may be."""
        if not logs:
            return []
        stored = self.store.load("log_transactions", KEPT["log_transactions"])
        errors = stored.where("error is not null and producer_id is null and error not like 'TORN_TAIL%'")
        columns = sf.struct("topic", "partition", "broker_id", "file", "error")
        by_log = (
            errors.where(sf.col(LOG).isin(list(logs)))
            .groupBy(LOG)
            .agg(sf.min_by(columns, sf.struct("file", "position", "error")).alias("row"))
        )
        rows = by_log.toArrow().to_pylist()
        return [(LogIdentity.of(each[LOG]).origin, LsoHold(**each["row"])) for each in rows]

    def _of_topic(
        self,
        origin: Origin,
        holds: list[LsoHold],
        *,
        transaction_history: list[PastTransaction],
        current_findings: list[Finding],
    ) -> _TopicResults:
        present = {tp for (_, tp), each in self._origins.items() if each == origin}
        listed, keys = (
            {(row.topic, row.partition) for row in self.listings.values()},
            {each.key for each in current_findings},
        )

        def is_known(hold: LsoHold) -> bool:
            """Whether it has ended, or can be diagnosed now: its partition may be deleted or not selected.

            Of an earlier topic, nothing is open any more. And a transaction that a running broker does not report has
            ended since its log was read, unless the files are a consistent copy.
            """
            place = (hold.topic, hold.partition)
            can_be_open = place in listed if self.is_consistent else hold.key in keys
            return hold.marker_offset is not None or (place in present and can_be_open)

        transactions = by_producer(transaction_history)
        found = held_findings(
            list(filter(is_known, holds)),
            transaction_history=transactions,
            current_findings=current_findings,
            min_held_ms=self.min_held_ms,
        )
        so_far = {each.key: each.held_ms for each in found}
        attributed = [held_so_far(hold, so_far.get(hold.key)) for hold in attributed_holds(holds, transactions)]
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

    # Recordings, which have no topic ids: they are of the present topics, but for transactions of an earlier one.

    def _add_samples(self, found: dict[Origin, _TopicResults], looks: NewestLooks) -> NewestLooks:
        samples = self._stored(RECORDED_AS["samples"])
        recorded = Finding.of_table(findings_over_time(self._stored(RECORDED_AS["findings"]), samples).toArrow())
        if self.run.signature is not None:
            recorded = close_by_log(recorded, markers(recorded, self._best_transactions()))
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
            results.findings = merge_findings(results.findings, of_topic)
            still_open = {each.key for each in results.findings if is_open(each)}
            results.holds = merge_holds(results.holds, observed_holds(of_topic), still_open=still_open)
        at, latest = sf.max("sampled_at").alias("at"), sf.max("brokers_time").alias("latest")
        of_newest_sample = sf.max_by("brokers_time", "sampled_at").alias("brokers_time")
        of_clocks = samples.where("error is null").groupBy("brokers_clock").agg(at, of_newest_sample, latest).toArrow()
        if not of_clocks.num_rows:
            return looks
        last = max(of_clocks.to_pylist(), key=lambda each: each["at"])
        newest, sampled_at = last["at"], LookTime(last["at"], last["brokers_time"])
        sampled = {each.key for each in recorded if each.verdict != ENDED and each.observed_at >= newest}
        is_newer = looks.diagnosed and (
            looks.diagnosed_at.by_machine is None or sampled_at.is_after(looks.diagnosed_at)
        )
        of_newest = [each for each in recorded if each.observed_at >= newest]
        read = self._read_at(newest).difference(each.tp for each in of_newest if unread([each])) if is_newer else ()
        return replace(looks, sampled_at=sampled_at, latest=last["latest"], sampled=sampled, read=read)

    def _unreachable(self, looks: NewestLooks) -> Sequence[Finding]:
        """That the newest samples failed, and no later diagnosis has succeeded; or that newer ones may be older."""
        samples, newest = self._stored(RECORDED_AS["samples"]).where("error is not null"), looks.sampled_at.by_machine
        if newest is not None:
            samples = samples.where(sf.col("sampled_at") > sf.lit(newest))
        failed = SAMPLES.in_order(RecordedSample.of_table(samples.toArrow()))
        is_past = failed and looks.diagnosed_at.is_after(LookTime(failed[-1].observed_at))
        brokers_time = looks.sampled_at.by_brokers
        newer = [] if newest is None else newer_samples(newest, brokers_time=brokers_time, latest=looks.latest)
        return [*newer, *([] if is_past else failed_samples(failed))]

    def _read_at(self, sampled_at: dt.datetime) -> set[tuple[str | None, int | None]]:
        """The partitions whose offsets a sample has read."""
        rows = self._stored(RECORDED_AS["partitions"]).where(sf.col("sampled_at") == sf.lit(sampled_at))
        found = rows.groupBy(*PARTITION).agg(sf.count("error").alias("errors")).where("errors = 0").toArrow()
        return set(zip(found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True))

    def _best_transactions(self) -> DataFrame:
        """Those of the best replica of each present topic: another one may have a marker that its new leader lost."""
        present = {*self._origins.values()}
        best = [each.log for each in best_logs(self.states.all.values(), self.listings)]
        of_present = [(name,) for name in best if LogIdentity.of(name).origin in present]
        names = self.store.spark.createDataFrame(of_present, f"{LOG} string")
        stored = self.store.load("log_transactions", KEPT["log_transactions"])
        return stored.join(sf.broadcast(names), LOG, "left_semi")

    def _stored(self, name: str) -> DataFrame:
        return self.store.load(name, KEPT[name]).select(*KEPT[name].names)


def log_rows(states: Iterable[StoredState], listings: Mapping[str, LogListing]) -> list[Row]:
    """The rows of the table ``logs``. `listings`: as for `best_logs`."""
    logs = [each for each in states if not each.log.endswith(IDS)]
    best = {each.log for each in best_logs(logs, listings)}
    found: list[Row] = []
    for each in logs:
        row = StoredLog.of_record(each, is_best=each.log in best, is_damaged=bool(each.is_damaged)).row()
        found.append({**row, **LogIdentity.of(each.log).origin._asdict()})
    return found
