"""The registry of the tables of sources: each is declared once, in `Source`, and each source has one function for it.

The declaration gives the methods that return the frame, the rows and the Arrow tables, with their docs and checks.
`Source.read` finds the function; so do ``kafka-txn scan`` and Spark's ``kafka_log_dir``, by the name of the table.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from toolkit.analysis.diagnosis.case import DEFAULTS, DiagnoseOptions
from toolkit.errors import UsageError
from toolkit.schema import Row, Table
from toolkit.schema.coerce import in_utc
from toolkit.schema.table import EVERYTHING, Selection, TableRow, TopicPartition
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, check_offset_range, parsed_offset_spec

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

P = ParamSpec("P")
S = TypeVar("S")
D = TypeVar("D")
Rows = Iterable[Row] | Iterable[TableRow] | Iterable["pa.Table"]

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
            if isinstance(value, dt.datetime) or (name == "at" and isinstance(value, str)):
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

    read: Callable[[Any, TableArguments], Any]  # takes the source and `TableArguments`; returns rows or Arrow tables
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
