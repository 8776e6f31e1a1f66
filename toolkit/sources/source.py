"""`Source`: the tables that a live cluster, a log directory and a recording share, with one signature each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from toolkit import schema
from toolkit.errors import UsageError
from toolkit.schema.coerce import Scope, records_of
from toolkit.schema.table import TableRow
from toolkit.sources.offset_queries.offset_spec import OffsetSpec
from toolkit.sources.source_table import (
    ARGUMENTS,
    CLUSTER,
    FILES,
    RECORDING,
    SOURCE_TABLES,
    SourceFunction,
    TableArguments,
    arrow_tables_of,
    rows_of_table,
    source_table,
)

R = TypeVar("R", bound=TableRow)
Topics = str | Sequence[str] | None
Partitions = int | Sequence[int] | Sequence[tuple[str, int]] | None
Offset = OffsetSpec | None
Time = dt.datetime | str | None

LOGS = (CLUSTER, FILES)


def tables_of(source: str) -> list[str]:
    """Names of the tables of `FILES`, `CLUSTER` or `RECORDING`."""
    return [name for name, declared in SOURCE_TABLES.items() if source in declared.of]


class Source:
    """Tables, each as a pandas DataFrame (``findings()``) and as rows (``finding_rows()``).

    ``toolkit.schema`` declares every table. What could not be read is a row with `error`, never left out. An argument
    means the same for every source and table; a source without a table or an argument raises `UsageError`. The sources
    are `Cluster`, `LogDir` and `Recording`. Each has a function for each of its tables: the method of the same name,
    decorated with `implements`.

    Attributes
    ----------
    kind
        `CLUSTER`, `FILES` or `RECORDING`.
    functions
        The functions of the source, by the name of their table.
    scope
        What the last `findings` read, and what not; null before. `Scope.text` is what an all-clear names.
    """

    scope: Scope | None = None
    kind: ClassVar[str]
    functions: ClassVar[Mapping[str, SourceFunction]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the functions of a source, and check that it has one for each of its tables."""
        super().__init_subclass__()
        own = {
            method.table_name: method.source_function
            for method in vars(cls).values()
            if hasattr(method, "source_function")
        }
        cls.functions = {**cls.functions, **own}
        if hasattr(cls, "kind") and cls.functions.keys() != {*tables_of(cls.kind)}:
            difference = cls.functions.keys() ^ {*tables_of(cls.kind)}
            raise TypeError(f"{cls.__name__} and the declarations of {cls.kind} differ by {sorted(difference)}.")

    def __dir__(self) -> list[str]:
        """What it has: no methods of tables of other sources only."""
        names: list[str] = [*super().__dir__()]
        return [
            name
            for name in names
            if getattr(getattr(type(self), name, None), "table_name", None) in {None, *self.functions}
        ]

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster; null where no broker and no file says it."""
        return None

    @property
    def principal(self) -> str | None:
        """User name of the client at the brokers; null if it has none."""
        return None

    def read(self, table: str, arguments: TableArguments) -> Any:
        """The rows or Arrow tables of a table, unsorted.

        Parameters
        ----------
        table
            Its name.
        arguments
            Its arguments.

        Raises
        ------
        NotFound
            If the source does not have the selected topic, partition or broker.
        UsageError
            If the source has no such table or argument, or an argument is invalid.
        """
        name, declared = type(self).__name__, SOURCE_TABLES[table]
        function = self.functions.get(table)
        if function is None:
            raise UsageError(f"{name} has no table {table}.", do=f"Read it from {' or '.join(declared.of)}.")
        for argument in arguments.not_default:
            if argument not in function.takes:
                raise UsageError(
                    f"{name}.{declared.spec.__name__} does not take {argument}.", means=ARGUMENTS[argument]
                )
        return function.read(self, arguments)

    def records(self, record: type[R], **arguments: Any) -> list[R]:
        """The rows of a record's table as records, in the table's order.

        Parameters
        ----------
        record
            Its class, such as ``Finding``.
        **arguments
            Those of the method that returns the frame.

        Raises
        ------
        NotFound, UsageError
            As `read`.
        """
        table = record.table
        return table.in_order(records_of(self.read(table.name, TableArguments.of(**arguments)), record))

    @source_table(schema.PARTITIONS)
    def partitions(self, *, topics: Topics = None, partitions: Partitions = None, at: Time = None) -> None:
        """Files give one row per replica, since they do not show the leader."""

    @source_table(schema.PRODUCERS)
    def producers(
        self, *, topics: Topics = None, partitions: Partitions = None, broker_id: int | None = None, at: Time = None
    ) -> None:
        """A cluster gives the leaders' state; files give each replica's newest valid snapshot and the batches after it.

        A partition without producers has no row. Brokers expire producers idle for ``producer.id.expiration.ms``
        (a day); files keep them.
        """

    @source_table(schema.TRANSACTIONS)
    def transactions(
        self,
        *,
        states: Collection[str] | None = None,
        producer_ids: Collection[int] | None = None,
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
        at: Time = None,
    ) -> None:
        """A broker that did not answer is a row without id.

        Brokers before 3.0 lack ListTransactions: their ids are read from ``__transaction_state`` in addition. A
        recording has the ids with an open transaction.
        """

    @source_table(schema.COORDINATORS)
    def coordinators(
        self, *, transactional_ids: Sequence[str] | None = None, groups: Sequence[str] | None = None, at: Time = None
    ) -> None:
        """Null selects all ids and groups that brokers list, files contain, or a sample names."""

    @source_table(schema.FINDINGS)
    def findings(
        self,
        *,
        topics: Topics = None,
        partitions: Partitions = None,
        broker_id: int | None = None,
        at: Time = None,
        recheck_after: float | None = None,
        max_transaction_timeout_ms: int | None = None,
        log_evidence: bool = True,
        min_held_ms: int | None = None,
    ) -> None:
        """A selected partition has a row even if its LSO is not held.

        Of several replicas in files the longest log is used, and the evidence names it. For a recording, the sample and
        the one before it are diagnosed by this version's rules; `Recording.history` has the recorded
        findings. A finding without topic reports failed later samples.
        """

    @source_table(schema.TRANSACTION_OWNERS)
    def transaction_owners(self, *, transactional_ids: Sequence[str] | None = None, at: Time = None) -> None:
        """From the form of the id; on a cluster also from the members of the groups that the id names.

        Brokers omit groups that this principal may not describe, so that fewer owners are ``certain``; in files and
        recordings none is.
        """

    @source_table(schema.EXPOSURE, of=LOGS)
    def exposure(self, *, kafka_version: str | None = None) -> None:
        """Features of the cluster, settings and known bugs of every broker, and each id whose client predates
        transaction version 2 (KIP-890). What could not be read, or this principal may not, is a row with `error`.
        Files have it from ``__cluster_metadata``: releases that brokers registered, and settings that were changed
        while the cluster ran.
        """

    @source_table(schema.FINDINGS, of=[RECORDING])
    def findings_over_time(
        self, *, topics: Topics = None, partitions: Partitions = None, start: Time = None, stop: Time = None
    ) -> None:
        """One for each transaction observed open, and for each verdict on a partition itself, over all samples.

        `Recording.history` has the findings of every sample.
        """

    @source_table(schema.LSO_HOLDS, of=[FILES, RECORDING])
    def lso_holds(
        self, *, topics: Topics = None, partitions: Partitions = None, start: Offset = None, stop: Offset = None
    ) -> None:
        """Past holds and the present one: who held the LSO, and from when to when; `findings` has the verdicts.

        A hold that overlaps the range is included. Of several replicas in files the longest log is read. A recording
        has holds that a sample shows; its `start` and `stop` are times.
        """

    @source_table(schema.BATCHES, of=LOGS)
    def batches(
        self,
        *,
        topics: Topics = None,
        partitions: Partitions = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
        crc: bool = False,
    ) -> None:
        """A row with `error` for every range of bytes or offsets that could not be read."""

    @source_table(schema.LOG_TRANSACTIONS, of=LOGS)
    def log_transactions(
        self,
        *,
        topics: Topics = None,
        partitions: Partitions = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
    ) -> None:
        """Rebuilt from the batches."""

    @source_table(schema.LSO_TIMELINE, of=LOGS)
    def lso_timeline(
        self,
        *,
        topics: Topics = None,
        partitions: Partitions = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
    ) -> None:
        """Rebuilt from the batches. A gap in a cluster's log raises `BrokerError`; for files, see `batches`."""

    @source_table(schema.TRANSACTION_LOG, of=LOGS)
    def transaction_log(
        self,
        *,
        transactional_ids: Collection[str] | None = None,
        partitions: Sequence[int] | None = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
    ) -> None:
        """`partitions` are those of ``__transaction_state``."""

    @source_table(schema.TRANSACTION_HISTORY, of=LOGS)
    def transaction_history(
        self,
        *,
        transactional_ids: Collection[str] | None = None,
        partitions: Sequence[int] | None = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
    ) -> None:
        """From ``__transaction_state``, as far as compaction has left it; `partitions` are those of that topic.

        Of several replicas in files the longest log is read.
        """

    @source_table(schema.OFFSETS_LOG, of=LOGS)
    def offsets_log(
        self,
        *,
        groups: Collection[str] | None = None,
        partitions: Sequence[int] | None = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
    ) -> None:
        """`partitions` are those of ``__consumer_offsets``."""

    @source_table(schema.ABORTED, of=[FILES])
    def aborted(
        self,
        *,
        topics: Topics = None,
        partitions: Partitions = None,
        start: Offset = None,
        stop: Offset = None,
        producer_id: int | None = None,
    ) -> None:
        """From ``.txnindex`` files; transactions that overlap the range are included."""

    @source_table(schema.METADATA_LOG, of=[FILES])
    def metadata_log(self) -> None:
        """What the controllers decided (KRaft): leaders, fenced brokers, settings, features, blocks of producer ids.

        A partition's record has all that holds after it. Each node's replica of the log has its own rows, the newest
        snapshot's among them where the segments before it are deleted.
        """

    @source_table(schema.CLUSTER_EVENTS, of=[FILES])
    def cluster_events(self, *, topics: Topics = None, partitions: Partitions = None) -> None:
        """Events about the selected partitions, and those about none, such as a broker that was fenced.

        From the replica of the metadata log (KRaft) that reaches furthest, and from brokers' own logs.
        """

    @source_table(schema.STATISTICS, of=[FILES])
    def statistics(
        self, *, topics: Topics = None, partitions: Partitions = None, start: Offset = None, stop: Offset = None
    ) -> None:
        """What `kafka-txn txn-stat` prints; for several logs, the last row is their total, without topic."""

    @source_table(schema.SNAPSHOTS, of=[FILES])
    def snapshots(self, *, topics: Topics = None, partitions: Partitions = None) -> None:
        """A snapshot without producers is a row without producer: no transaction was open at its offset."""

    @source_table(schema.SEGMENTS, of=[FILES])
    def segments(self, *, topics: Topics = None, partitions: Partitions = None) -> None:
        """From file names and sizes; no file is opened."""

    @source_table(schema.CHECKPOINTS, of=[FILES])
    def checkpoints(self, *, topics: Topics = None, partitions: Partitions = None) -> None:
        """With `topics` or `partitions`, lines without a partition are left out."""

    partition_rows = rows_of_table(partitions)
    producer_rows = rows_of_table(producers)
    transaction_rows = rows_of_table(transactions)
    coordinator_rows = rows_of_table(coordinators)
    finding_rows = rows_of_table(findings)
    transaction_owner_rows = rows_of_table(transaction_owners)
    exposure_rows = rows_of_table(exposure)
    finding_over_time_rows = rows_of_table(findings_over_time)
    lso_hold_rows = rows_of_table(lso_holds)
    batch_rows = rows_of_table(batches)
    batch_tables = arrow_tables_of(batches)
    log_transaction_rows = rows_of_table(log_transactions)
    log_transaction_tables = arrow_tables_of(log_transactions)
    lso_timeline_rows = rows_of_table(lso_timeline)
    transaction_log_rows = rows_of_table(transaction_log)
    transaction_history_rows = rows_of_table(transaction_history)
    offsets_log_rows = rows_of_table(offsets_log)
    aborted_rows = rows_of_table(aborted)
    metadata_log_rows = rows_of_table(metadata_log)
    cluster_event_rows = rows_of_table(cluster_events)
    statistic_rows = rows_of_table(statistics)
    snapshot_rows = rows_of_table(snapshots)
    segment_rows = rows_of_table(segments)
    checkpoint_rows = rows_of_table(checkpoints)
