"""`LogDir`: the tables of a live cluster, read from files, and the tables that only logs have."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.analysis.coordinator.transaction_owners import transaction_owners
from toolkit.analysis.diagnosis.clocks import BrokersTime
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.errors import NotFound, UsageError
from toolkit.formats.broker_logs import broker_log_files, time_zone_of
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log_paths import LogPath, log_path
from toolkit.schema import CLUSTER_EVENTS
from toolkit.schema.derived import LsoHold
from toolkit.schema.live import Coordinator, Exposure, Finding, IdOwner, Partition, Producer, Transaction
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.offsets import GroupLag
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import BrokerLogs, Contents
from toolkit.sources.logdir.file_assertions import FileAssertions
from toolkit.sources.logdir.log_dir_tables import LogDirTables, PartitionStats, offsets
from toolkit.sources.logdir.replica.log_dir_layout import METADATA_TOPIC, LogDirLayout, SkippedFile, discover
from toolkit.sources.logdir.replica.log_window import ReadLimit
from toolkit.sources.logdir.replica.replica_log import ReplicaLog
from toolkit.sources.logdir.replica.replica_state import partition_of, producers_of
from toolkit.sources.offset_queries.offset_spec import OffsetSpec
from toolkit.sources.offset_queries.offset_tables import OffsetTables
from toolkit.sources.source import Partitions, Source, Topics
from toolkit.sources.source_table import FILES, RowsOf, TableArguments, implements

if TYPE_CHECKING:
    from toolkit.sources.logdir.files_proof import FilesProof
    from toolkit.sources.logdir.observe_files import FileObservation
    from toolkit.sources.offset_queries.offset_reader import OffsetReader


NO_METADATA_LOG = (
    "NO_METADATA_LOG: the files have no __cluster_metadata-0, as with ZooKeeper, or it was not copied; it is on every "
    "controller and broker."
)


# Modules that a single table needs are imported in its method: this keeps short commands fast.
class LogDir(LogDirTables, OffsetTables):
    """Files of brokers, read only and listed for every call, or once within ``with``. A broker may be writing them.

    `observed_at` is the newest time that a broker wrote into the files of a row, or when they were copied. Times of
    files count for nothing, since each copy has new ones. Every replica of a partition has its own rows.

    Parameters
    ----------
    path, *more_paths
        Log directories (entries of ``log.dirs``), folders above several of them, folders of partitions, segments,
        snapshots, transaction indexes, and texts of kafka-dump-log.sh. None is needed for `cluster_events` of
        `broker_logs` alone.
    consistent_copy
        Assert that this is a consistent copy: brokers shut down cleanly, replicas in sync. Without it a transaction is
        `hanging` only if the files prove that partition and coordinator were copied at one moment
        (`consistency`), otherwise `unknown`. If the assertion is false, a healthy transaction can be reported as
        hanging.
    as_of
        When the files were copied, with its time zone: no older than that is what they say. Up to then the age of an
        open transaction counts; without it, up to the newest record of its coordinator, or to the time in the manifest
        of ``kafka-txn copy``, which this argument does not change.
    txn_state_partitions
        Number of partitions of ``__transaction_state``, if not 50.
    broker_logs
        Brokers' own logs (server.log, controller.log, state-change.log), rotated or gzip, or folders that have them:
        `cluster_events` has their lines about transactions, and findings and `transaction_history` cite them.
    broker_log_time_zone
        Zone of their times, ``"+02:00"`` or ``"Europe/Berlin"``: Kafka's default layout has local times without it.

    Raises
    ------
    NotFound
        If a path does not exist, or contains no Kafka files.
    UsageError
        If a path cannot be read, or a file has an unknown type.

    Examples
    --------
    >>> LogDir("/var/lib/kafka/data").findings(topics=["orders"])  # doctest: +SKIP
    """

    kind = FILES

    def __init__(
        self,
        path: str | os.PathLike[str] | LogPath | None = None,
        *more_paths: str | os.PathLike[str] | LogPath,
        consistent_copy: bool = False,
        as_of: dt.datetime | None = None,
        txn_state_partitions: int | None = None,
        broker_logs: Sequence[str | os.PathLike[str]] = (),
        broker_log_time_zone: str = "+00:00",
    ) -> None:
        self.assertions = FileAssertions(
            consistent_copy=consistent_copy, as_of=as_of, txn_state_partitions=txn_state_partitions
        )
        self.paths = [log_path(each) for each in (path, *more_paths) if each is not None]
        if not self.paths and not broker_logs:
            raise UsageError("No files are named.", do="Pass a log directory, or files of one.")
        self.broker_logs = BrokerLogs([Path(each) for each in broker_logs], time_zone_of(broker_log_time_zone))
        for each in self.broker_logs.paths:
            broker_log_files(each)
        self._texts: dict[tuple[str, int, int], Sequence[ReplicaLog]] = {}
        self._listed: Contents | None = None
        self._layout()

    def __enter__(self) -> LogDir:
        """Within ``with``, files are listed once, and what one table has read serves the next."""
        self._listed = self.contents()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listed = None

    def read(self, table: str, arguments: TableArguments) -> Any:
        """As `Source.read`; brokers' logs alone have no other table than `cluster_events`."""
        if not self.paths and table != CLUSTER_EVENTS.name:
            raise UsageError(f"Brokers' logs alone have no table {table}.", do="Pass the log directory, too.")
        return super().read(table, arguments)

    def __repr__(self) -> str:
        consistent_copy = ", consistent_copy=True" if self.assertions.consistent_copy else ""
        return f"LogDir({', '.join(repr(str(path)) for path in self.paths)}{consistent_copy})"

    @property
    def left_out(self) -> list[SkippedFile]:
        """Files and folders that no table, or not every table, reads, with the reason."""
        return self.contents().left_out

    def offset_readers(self, partitions: Sequence[TopicPartition]) -> list[OffsetReader]:
        """One reader per partition, of the replica with the longest log."""
        from toolkit.sources.logdir.replica_offset_reader import ReplicaOffsetReader

        contents = self.contents()
        found = contents.by_partition(contents.replica_logs(partitions=partitions))
        return [ReplicaOffsetReader(contents, replicas) for _, replicas in found]

    def group_lags(self, group: str, *, max_offsets: int = 1_000_000) -> list[GroupLag]:
        """`group_lag` as records; a partition whose log is not among the files has an error."""
        from toolkit.sources.logdir.coordinator_state import committed_in_files
        from toolkit.sources.offset_queries.group_lag import absent_lags, lag_of_group

        found = committed_in_files(self, group)
        if not found:
            is_there = any(not log.error for log in self.contents().of_topic(OFFSETS_TOPIC))
            raise NotFound(
                f"The files have no committed offset of the group {group!r}.",
                means="" if is_there else f"{OFFSETS_TOPIC} is not among them, so the group may have some.",
                do="List the groups in the files: LogDir.offsets_log()." if is_there else f"Copy {OFFSETS_TOPIC}, too.",
            )
        present = {log.where.tp for log in self.contents().named_logs()}
        committed = {tp: offset for tp, offset in found.items() if tp in present}
        lags = lag_of_group(self.offset_readers(sorted(committed)), group, committed, max_offsets=max_offsets)
        absent = {tp: offset for tp, (offset, _) in found.items() if tp not in present}
        lags += absent_lags(group, absent, taken_at=self.contents().taken_at)
        return lags

    def committing_groups(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
        """Groups that have committed offsets of some partitions, by the records of ``__consumer_offsets`` in the files.

        Raises
        ------
        NotFound
            If ``__consumer_offsets`` is not among the files.
        """
        from toolkit.sources.logdir.coordinator_state import committing_in_files

        return committing_in_files(self, partitions)

    def proof(self) -> FilesProof:
        """What the files prove, what they do not, and what to do about that."""
        from toolkit.sources.logdir.files_proof import files_proof

        return files_proof(self.contents())

    def observe(self, *, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> Observation:
        """The input of the verdicts (`observation.Observation`), with doubts about the consistency of the files."""
        arguments = TableArguments.of(topics=topics, partitions=partitions)
        return self._observe(arguments, limit=ReadLimit.OPEN).observation

    @implements(Source.partitions, without=["at"], needs_topic=True)
    def partitions(self, arguments: TableArguments) -> Iterable[Partition]:
        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        return (partition_of(contents.read(log)) for log in logs)

    @implements(Source.producers, without=["at", "broker_id"], needs_topic=True)
    def producers(self, arguments: TableArguments) -> Iterable[Producer]:
        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        return (producer for log in logs for producer in producers_of(contents.read(log)))

    @implements(
        Source.transactions, without=["at"], rows_of=RowsOf.ALL, topics=[STATE_TOPIC], also_reads=[METADATA_TOPIC]
    )
    def transactions(self, arguments: TableArguments) -> Iterable[Transaction]:
        from toolkit.sources.live.transaction_listing import TransactionFilters  # it imports Kafka's client
        from toolkit.sources.logdir import coordinator_state
        from toolkit.sources.logdir.coordinator_state import read_state_topic

        filters = TransactionFilters.of(arguments)
        contents = self.contents()
        found = coordinator_state.transactions_of(read_state_topic(contents))
        if arguments.transactional_ids is not None:
            return coordinator_state.named_transactions(found, arguments.transactional_ids, taken_at=contents.taken_at)
        return [  # `observed_at` is the time up to which its partition is proven
            each
            for each in found
            if each.error or filters.match(each, BrokersTime(time=each.observed_at, is_current=True))
        ]

    @implements(
        Source.coordinators,
        without=["at"],
        rows_of=RowsOf.ALL,
        topics=[STATE_TOPIC, OFFSETS_TOPIC],
        also_reads=[METADATA_TOPIC],
    )
    def coordinators(self, arguments: TableArguments) -> Iterable[Coordinator]:
        from toolkit.sources.logdir.coordinator_state import read_coordinators

        ids, groups = arguments.transactional_ids, arguments.groups
        return read_coordinators(self.contents(), ids, groups)

    @implements(
        Source.transaction_owners, without=["at"], rows_of=RowsOf.ALL, topics=[STATE_TOPIC], also_reads=[METADATA_TOPIC]
    )
    def transaction_owners(self, arguments: TableArguments) -> Iterable[IdOwner]:
        from toolkit.sources.logdir.coordinator_state import read_state_topic

        rows = self.transaction_rows(transactional_ids=arguments.transactional_ids)
        state_topic = read_state_topic(self.contents())
        return transaction_owners(map(Transaction.of, rows), all_ids=state_topic.all_ids)

    @implements(Source.exposure, rows_of=RowsOf.ALL, topics=[STATE_TOPIC, METADATA_TOPIC])
    def exposure(self, arguments: TableArguments) -> Iterable[Exposure]:
        from toolkit.analysis.broker_software import broker_facts, release_of
        from toolkit.analysis.exposure_rules import (
            MAX_TIMEOUT,
            VERIFICATION,
            ObservedBroker,
            ObservedCluster,
            exposure_rows,
        )
        from toolkit.formats.log.metadata_records import MetadataState
        from toolkit.sources.logdir.replica.metadata_log import MetadataEnd, furthest

        version, contents = arguments.kafka_version, self.contents()
        records = list(map(TransactionLogRecord.of, self.transaction_log_rows()))
        times = (each.timestamp for each in records if each.timestamp is not None)
        as_of = max(times, default=contents.taken_at)
        metadata = furthest(contents.metadata_ends) or MetadataEnd(MetadataState(), error=NO_METADATA_LOG)
        # The log has settings that were changed while the cluster ran: of one broker, or of all.
        changed = metadata.state.settings
        brokers = []
        for broker_id, broker in sorted(metadata.state.brokers.items()):
            resources = ("broker for all", f"broker {broker_id}")
            of_both = ((name, changed.get((each, name))) for each in resources for name in (VERIFICATION, MAX_TIMEOUT))
            observed = ObservedBroker(
                broker_id=broker_id,
                observed_at=as_of,
                release=broker_facts().releases.get(broker.max_metadata_version or 0),
                release_source="the features that it registered",
                settings={name: value for name, value in of_both if value is not None},
                settings_error=metadata.error,
            )
            brokers.append(observed)
        cluster = ObservedCluster(
            observed_at=as_of,
            features=metadata.state.features,
            features_error=metadata.error,
            brokers=brokers,
            records=records,
            records_until=as_of,
        )
        return exposure_rows(cluster, release=release_of(version) if version else None)

    @implements(
        Source.findings,
        without=["at", "broker_id", "recheck_after"],
        rows_of=RowsOf.PARTITION,
        also_reads=[STATE_TOPIC, METADATA_TOPIC],
        needs_topic=True,
    )
    def findings(self, arguments: TableArguments) -> Iterable[Finding]:
        from toolkit.analysis.diagnosis.evidence_text import scope
        from toolkit.sources.diagnose import diagnose

        min_held_ms = arguments.min_held_ms
        observed = self._observe(arguments, limit=ReadLimit.OPEN if min_held_ms is None else ReadLimit.WHOLE)
        self.scope = scope(observed.observation, len(observed.replicas))
        observed.requested = () if arguments.is_everything else list(observed.replicas)
        found = diagnose(observed, replace(arguments.diagnosis(), recheck_after=0)).findings
        if min_held_ms is None:
            return found
        from toolkit.sources.logdir.replica_holds import with_holds

        return with_holds(observed, found, min_held_ms=min_held_ms)

    @implements(Source.lso_holds, rows_of=RowsOf.ALL, also_reads=[STATE_TOPIC, METADATA_TOPIC], needs_topic=True)
    def lso_holds(self, arguments: TableArguments) -> Iterator[LsoHold]:
        from toolkit.analysis.history.hold_findings import attributed_holds
        from toolkit.sources.logdir.coordinator_state import read_state_topic
        from toolkit.sources.logdir.replica_holds import history_of, replica_holds

        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        state_topic = read_state_topic(contents)
        for tp, (state, *_) in contents.by_partition(logs, limit=ReadLimit.WHOLE):
            if state.error:
                yield LsoHold(
                    topic=tp.topic, partition=tp.partition, broker_id=state.log.where.broker_id, error=state.error
                )
            start, stop = offsets(contents, state.log, arguments)
            lso, high_watermark = state.last_stable_offset, state.high_watermark
            holds = replica_holds(state, lso=lso, high_watermark=high_watermark)
            for hold in attributed_holds(holds, history_of(holds, state_topic)):
                first, marker = hold.first_offset or 0, hold.marker_offset
                if (stop is None or first < stop) and (start is None or marker is None or marker >= start):
                    yield hold

    def figures(
        self,
        *,
        topics: Topics | None = None,
        partitions: Partitions | None = None,
        start: OffsetSpec | None = None,
        stop: OffsetSpec | None = None,
    ) -> list[PartitionStats]:
        """The data behind `statistics`, per log, and the open transactions themselves."""
        return self.statistics_by_log(TableArguments.of(topics=topics, partitions=partitions, start=start, stop=stop))

    def contents(self) -> Contents:
        """The logs as of now, or as of the start of ``with``."""
        if self._listed is not None:
            return self._listed
        layout = self._layout()
        texts = [log for path in layout.texts for log in self._in_text(path)]
        if layout.texts and not (texts or layout.replicas):
            raise UsageError(f"{layout.texts[0]} has no row of kafka-dump-log.sh that can be read.")
        return Contents(layout, texts, self.broker_logs, assertions=self.assertions)

    def _layout(self) -> LogDirLayout:
        return discover(self.paths)

    def _in_text(self, path: LogPath) -> Sequence[ReplicaLog]:
        """The logs in a text of kafka-dump-log.sh, which is read again only if it has changed."""
        from toolkit.sources.logdir.replica.dump_logs import read_texts  # most paths contain no text

        try:
            stat = path.stat()
        except OSError as exc:
            raise UsageError(f"{path} cannot be read: {exc.strerror}.") from None
        stamp = str(path), stat.st_size, stat.st_mtime_ns
        if stamp not in self._texts:
            self._texts[stamp] = read_texts(path)
        return self._texts[stamp]

    def _observe(self, arguments: TableArguments, *, limit: ReadLimit) -> FileObservation:
        from toolkit.sources.logdir.observe_files import observe_files

        contents = self.contents()
        logs = contents.named_logs(arguments.topics, arguments.partitions)
        selection = contents.selection(arguments.selection({log.where.tp for log in logs}))
        return observe_files(contents, logs, selection=selection, limit=limit)
