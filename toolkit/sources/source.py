"""`Source`: the tables that a live cluster, a log directory and a recording share, with one signature each.

A declaration gives the methods that return the frame, the rows and the Arrow tables, with their docs and checks.
`Source.read` finds the function of a source; so do ``kafka-txn scan`` and Spark's ``kafka_log_dir``, by its name.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Concatenate, ParamSpec, TypeVar, get_type_hints

from toolkit import schema
from toolkit.analysis.diagnosis.case import DEFAULTS, DiagnoseOptions
from toolkit.errors import UsageError
from toolkit.schema import Row, Table
from toolkit.schema.coerce import OffsetSpec, Scope, in_utc
from toolkit.schema.table import EVERYTHING, Selection, TableRow, TopicPartition
from toolkit.sources.offset_queries import check_offset_range, parsed_offset_spec

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


P = ParamSpec("P")
S = TypeVar("S")
D = TypeVar("D")
Rows = Iterable[TableRow] | Iterable["pa.Table"]

FILES, CLUSTER, RECORDING = "a log directory", "a cluster", "a recording"


def requested_partitions(
    topics: Sequence[str] | None, partitions: Sequence[int] | Sequence[tuple[str, int]]
) -> list[TopicPartition]:
    """The selected partitions; whether they exist is not checked.

    `partitions`: numbers, for each of `topics`; or pairs of topic and number, without `topics`.
    Raises UsageError if `partitions` are numbers without topics, or pairs with topics.
    """
    numbers = [item for item in partitions if isinstance(item, int)]
    pairs = [TopicPartition(*item) for item in partitions if not isinstance(item, int)]
    if (numbers and topics is None) or (pairs and (numbers or topics is not None)):
        raise UsageError(
            "partitions are either numbers, with topics, or pairs of topic and number, without.",
            do="For example topics=['orders'], partitions=[0, 1]; or partitions=[('orders', 0), ('payments', 3)].",
        )
    return pairs or [TopicPartition(topic, number) for topic in topics or () for number in numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableArguments:
    """The arguments of the tables; each means the same for every table and source."""

    topics: Annotated[Sequence[str] | None, "Topic names, or one; null for all, internal ones included."] = None
    partitions: Annotated[
        Sequence[int] | Sequence[tuple[str, int]] | None,
        "Numbers, or one, for each of `topics`; or pairs of topic and number, without `topics`.",
    ] = None
    start: Annotated[
        OffsetSpec | None,
        "First offset; or a time with zone, for the first record at or after it; or ``log_start``, ``lso``, "
        "``high_watermark``, ``log_end``. Batches are not split.",
    ] = None
    stop: Annotated[OffsetSpec | None, "First offset to leave out, likewise."] = None
    at: Annotated[
        dt.datetime | None, "Recording only: the newest sample at or before this time (with zone); null for the newest."
    ] = None
    broker_id: Annotated[int | None, "Cluster only: the replicas of this broker, leaders or not."] = None
    producer_id: Annotated[int | None, "Only rows of this producer, and error rows."] = None
    producer_ids: Annotated[Collection[int] | None, "Only ids with these producer ids."] = None
    transactional_ids: Annotated[
        Sequence[str] | None, "Only these ids; one that does not exist is a row with `error`. Null for all."
    ] = None
    transactional_id_pattern: Annotated[str | None, "Only ids that fully match this regular expression."] = None
    groups: Annotated[Sequence[str] | None, "Only these groups; null for all."] = None
    states: Annotated[Collection[str] | None, "Only ids in these states."] = None
    min_duration_ms: Annotated[int | None, "Only ids with a transaction open for longer than this."] = None
    crc: Annotated[bool, "Verify the checksum of every batch."] = False
    recheck_after: Annotated[
        float | None, "Cluster only: seconds before the confirming second check; 5 if null, 0 disables it."
    ] = None
    max_transaction_timeout_ms: Annotated[
        int | None, "Older live transactions are ``long``; null for the brokers' default, 15 min."
    ] = None
    log_evidence: Annotated[
        bool, "Read the log around a held LSO (a few megabytes) for cause, opening time and impact."
    ] = True
    kafka_version: Annotated[
        str | None, "Release of the brokers, as ``4.2.1``: brokers report only their minor release, and not by name."
    ] = None
    min_held_ms: Annotated[
        int | None, "Files and recordings only: also ``ended`` transactions that held the LSO at least this long."
    ] = None

    @classmethod
    def of(cls, **arguments: Any) -> TableArguments:
        """The arguments as users write them: one topic or partition, any collection of ids, a time or its text.

        Raises UsageError for an invalid range, or a time without zone.
        """
        for name, value in arguments.items():
            if isinstance(value, dt.datetime) or (name == "at" and value is not None):
                arguments[name] = in_utc(value)
            elif name in ("start", "stop"):
                arguments[name] = parsed_offset_spec(value)
            elif name in ("topics", "partitions") and isinstance(value, str | int):
                arguments[name] = [value]
            elif name in ("transactional_ids", "groups") and value is not None:
                arguments[name] = list(value)
        check_offset_range(arguments.get("start"), arguments.get("stop"))
        return cls(**arguments)

    @property
    def is_everything(self) -> bool:
        """Whether all partitions are selected."""
        return self.topics is None and self.partitions is None

    def selection(self, selected: Container[TopicPartition]) -> Selection:
        """What an observation is about. `selected`: the partitions that the arguments select."""
        if self.partitions is not None or self.broker_id is not None:
            return Selection(partitions=selected)
        return EVERYTHING if self.topics is None else Selection(topics=self.topics)

    def diagnosis(self, defaults: DiagnoseOptions = DEFAULTS) -> DiagnoseOptions:
        """How to diagnose a source; `defaults` where an argument is null, and what none says."""
        timeout_ms, recheck_after = self.max_transaction_timeout_ms, self.recheck_after
        return replace(
            defaults,
            recheck_after=defaults.recheck_after if recheck_after is None else recheck_after,
            max_transaction_timeout_ms=defaults.max_transaction_timeout_ms if timeout_ms is None else timeout_ms,
            log_evidence=self.log_evidence,
        )

    @property
    def partition_numbers(self) -> Sequence[int] | None:
        """The partitions of a table about one topic. Raises UsageError if they are pairs."""
        if self.partitions is None:
            return None
        return [number for _, number in requested_partitions([""], self.partitions)]

    @property
    def not_default(self) -> list[str]:
        """Names of the arguments that are set."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not field.default]


ARGUMENTS: Mapping[str, str] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(TableArguments, include_extras=True).items()
}
"""What each argument means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table of sources: its schema, its signature, and the sources that have it."""

    table: Table
    spec: Callable[..., None]
    of: Sequence[str]

    @property
    def takes(self) -> list[str]:
        """Names of its arguments."""
        return [name for name in inspect.signature(self.spec).parameters if name != "self"]


SINGULAR = {"topic": "topics", "partition": "partitions"}
"""Other names of arguments, as the columns and the command line have them."""

SOURCE_TABLES: dict[str, DeclaredTable] = {}
"""The tables that `Source` declares, by name."""
STREAMED: set[str] = set()
"""Names of those that may be too large for memory."""


class RowsOf(Enum):
    """The logs in files that a row depends on."""

    LOG = "one log"
    PARTITION = "all replicas of a partition"
    ALL = "all logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFunction:
    """The function of a source for a table."""

    read: Callable[[Any, TableArguments], Any]  # takes the source and `TableArguments`; returns records or Arrow tables
    takes: frozenset[str]  # names of the arguments that it supports
    rows_of: RowsOf = RowsOf.LOG  # the logs that a row depends on, for tasks that share the work
    topics: Sequence[str] = ()  # the only topics whose logs it reads; empty for those selected
    also_reads: Sequence[str] = ()  # topics whose logs it reads besides, whichever are selected
    needs_topic: bool = False  # whether logs of unknown topic have no row


def source_table(
    table: Table, *, of: Sequence[str] = (CLUSTER, FILES, RECORDING)
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], pd.DataFrame]]:
    """Declare a method that returns a table as a frame; its signature has some of `TableArguments`.

    `of`: the sources that have the table, and implement it by a method of the same name with `implements`.
    """

    def declare(spec: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], pd.DataFrame]:
        SOURCE_TABLES[spec.__name__] = DeclaredTable(table=table, spec=spec, of=of)
        frame: Callable[Concatenate[S, P], pd.DataFrame] = _frame_method(spec.__name__)
        return frame

    return declare


def implements(
    declared: Callable[Concatenate[D, P], pd.DataFrame],
    *,
    without: Collection[str] = (),
    rows_of: RowsOf = RowsOf.LOG,
    topics: Sequence[str] = (),
    also_reads: Sequence[str] = (),
    needs_topic: bool = False,
) -> Callable[[Callable[[S, TableArguments], Rows]], Callable[Concatenate[S, P], pd.DataFrame]]:
    """Make a source's function for a table its method of that name, with the declared signature.

    `without`: arguments that this source does not support; they raise `UsageError`.
    `rows_of`, `topics`, `also_reads`, `needs_topic`: as for `SourceFunction`.
    """
    name = _name(declared)
    takes = frozenset(SOURCE_TABLES[name].takes)
    assert takes >= {*without}

    def implement(read: Callable[[S, TableArguments], Rows]) -> Callable[Concatenate[S, P], pd.DataFrame]:
        method: Any = _frame_method(name)
        method.source_function = SourceFunction(
            read=read,
            takes=takes.difference(without),
            rows_of=rows_of,
            topics=topics,
            also_reads=also_reads,
            needs_topic=needs_topic,
        )
        implemented: Callable[Concatenate[S, P], pd.DataFrame] = method
        return implemented

    return implement


def rows_of_table(method: Callable[Concatenate[S, P], pd.DataFrame]) -> Callable[Concatenate[S, P], list[Row]]:
    """The same table as a sorted list of dicts."""
    name = _name(method)
    rows: Callable[Concatenate[S, P], list[Row]]
    rows = _method(name, shape=SOURCE_TABLES[name].table.ordered, returns="list of Row")
    return rows


def arrow_tables_of(
    method: Callable[Concatenate[S, P], pd.DataFrame],
) -> Callable[Concatenate[S, P], Iterator[pa.Table]]:
    """The same table as a stream of Arrow tables in bounded memory, for sources that read logs."""
    STREAMED.add(_name(method))
    tables: Callable[Concatenate[S, P], Iterator[pa.Table]]
    tables = _method(_name(method), shape=iter, returns="Iterator of pyarrow.Table")
    return tables


def _frame_method(name: str) -> Any:
    return _method(name, shape=SOURCE_TABLES[name].table.frame, returns="pandas.DataFrame")


def _method(name: str, *, shape: Callable[[Any], Any], returns: str) -> Any:
    declared = SOURCE_TABLES[name]
    signature = inspect.signature(declared.spec)

    @functools.wraps(declared.spec)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        for one, many in SINGULAR.items():
            if one in kwargs and many in signature.parameters and many not in kwargs:
                kwargs[many] = kwargs.pop(one)
        try:
            arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        except TypeError as error:
            taken = ", ".join(declared.takes) or "none"
            raise UsageError(f"{type(self).__name__}.{name}: {error}.", do=f"Its arguments: {taken}.") from error
        del arguments["self"]
        return shape(self.read(name, TableArguments.of(**arguments)))

    method.__doc__ = _docstring(declared, returns)
    method.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
    method.table_name = name  # type: ignore[attr-defined]
    return method


def _name(method: Any) -> str:
    name: str = method.table_name
    return name


def _docstring(declared: DeclaredTable, returns: str) -> str:
    table = declared.table
    parameters = "".join(f"{name}\n    {ARGUMENTS[name]}\n" for name in declared.takes)
    summary = f"{table.row[0].upper()}{table.row[1:]} (``schema.{table.name.upper()}``), one row each."
    details = inspect.cleandoc(declared.spec.__doc__ or "")
    text = f"{summary}\n\n{details}\n\n" if details else f"{summary}\n\n"
    text += f"Parameters\n----------\n{parameters}\n" if parameters else ""
    text += f"Returns\n-------\n{returns}\n\nRaises\n------\nNotFound\n"
    text += "    If the source does not have the selected topic, partition or broker.\n"
    text += "UsageError\n    If this source has no such table or argument, or an argument is invalid.\n"
    return text


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
        What the last `findings` read, and what not; null before.
    no_coordinators
        Why no transaction can begin, as far as the last `findings` saw it; null if they can.
    """

    scope: Scope | None = None
    no_coordinators: str | None = None
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

    @property
    def scope_text(self) -> str | None:
        """What the last `findings` read, as an all-clear names it; null before."""
        text = None if self.scope is None else self.scope.text(self.principal)
        return f"{text}; {self.no_coordinators}" if text and self.no_coordinators else text

    def read(self, table: str, arguments: TableArguments) -> Any:
        """The records or Arrow tables of a table, unsorted.

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
            make = ("kafka-txn", "record", "--output", "DIR") if RECORDING in declared.of else ()
            do = f"Read it from {' or '.join(declared.of)}{', which this makes:' if make else '.'}"
            raise UsageError(f"{name} has no table {table}.", do=do, command=make)
        for argument in arguments.not_default:
            if argument not in function.takes:
                raise UsageError(
                    f"{name}.{declared.spec.__name__} does not take {argument}.",
                    means=ARGUMENTS[argument],
                    do="Leave it out.",
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
        found = list(self.read(record.table.name, TableArguments.of(**arguments)))
        if found and not isinstance(found[0], record):
            found = [each for table in found for each in record.of_table(table)]
        return record.table.in_order(found)

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
        """Rebuilt from the batches. From where offsets could not be read, what is open is not known."""

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
        """What `kafka-txn txn-stat` prints; for several logs, the last row is their total, without topic.

        Of several replicas of a partition, the total has the one with most of the log.
        """

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
