"""Every table once: columns, types, units, key and order.

pandas dtypes, Arrow and Spark schemas, the empty frame and the documentation derive from these declarations.
Column names are Kafka's field names in snake case. An unknown is null, never -1; times are UTC in milliseconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "COORDINATORS",
    "FINDINGS",
    "PARTITIONS",
    "PRODUCERS",
    "TABLES",
    "TRANSACTIONS",
    "Column",
    "ListOf",
    "Row",
    "StructOf",
    "Table",
    "arrow_type",
    "utc",
]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list type."""

    item: Type


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct type: names and types of its fields."""

    fields: tuple[tuple[str, Type], ...]


Type = str | ListOf | StructOf  # plain names, so that a command that only prints rows need not import Arrow

INT16, INT32, INT64, STRING, BOOL, TIME = "int16", "int32", "int64", "string", "bool", "timestamp[ms, UTC]"
TOPIC_PARTITIONS = ListOf(StructOf((("topic", STRING), ("partition", INT32))))


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a column's type."""
    import pyarrow as pa

    match type_:
        case ListOf(item):
            return pa.list_(arrow_type(item))
        case StructOf(fields):
            return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in fields])
        case "timestamp[ms, UTC]":
            return pa.timestamp("ms", tz="UTC")
    return pa.type_for_alias(type_)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Arrow type, whether it may be null, its unit and what it means."""

    name: str
    type: Type
    doc: str
    nullable: bool = True
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what one row is, its columns, the key that stands on every row and the order rows come in."""

    name: str
    row: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sort: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]

    @property
    def arrow_schema(self) -> pa.Schema:
        """The table as an Arrow schema; nullability and docs included."""
        import pyarrow as pa

        fields = [pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in self.columns]
        return pa.schema([field.with_metadata({"doc": c.doc}) for field, c in zip(fields, self.columns, strict=True)])

    @property
    def pandas_dtypes(self) -> dict[str, pd.ArrowDtype]:
        """Column name to Arrow-backed pandas dtype."""
        import pandas as pd

        return {column.name: pd.ArrowDtype(arrow_type(column.type)) for column in self.columns}

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        """Rows to an Arrow table in key order; a missing field is null.

        Raises
        ------
        KeyError
            If a row has a field that the table does not declare.
        """
        rows = list(rows)
        for row in rows:
            if not row.keys() <= set(self.names):
                raise KeyError(f"{self.name} has no column {sorted(row.keys() - set(self.names))}")
        import pyarrow as pa

        schema = self.arrow_schema
        arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in schema]
        table = pa.Table.from_arrays(arrays, schema=schema)
        return table.sort_by([(name, "ascending") for name in self.sort]) if self.sort else table

    def frame(self, rows: Iterable[Row] = ()) -> pd.DataFrame:
        """Rows to a pandas DataFrame with exactly the declared columns, dtypes and order."""
        import pandas as pd

        frame: pd.DataFrame = self.arrow(rows).to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    def rows(self, frame: pd.DataFrame) -> list[Row]:
        """A frame of this table back to rows of plain Python values; null is ``None``."""
        import pyarrow as pa

        rows: list[Row] = pa.Table.from_pandas(frame, schema=self.arrow_schema, preserve_index=False).to_pylist()
        return rows


def utc(milliseconds: int | None) -> dt.datetime | None:
    """Kafka's epoch milliseconds as a UTC time; Kafka's -1 and null are null."""
    if milliseconds is None or milliseconds < 0:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


_TOPIC = Column("topic", STRING, "Topic name.", nullable=False)
_PARTITION = Column("partition", INT32, "Partition number.", nullable=False)
_PRODUCER_ID = Column("producer_id", INT64, "Producer id (PID).")
_PRODUCER_EPOCH = Column("producer_epoch", INT16, "Producer epoch.")
_LIVE = (
    Column("broker_id", INT32, "Broker that answered, or that should have."),
    Column("observed_at", TIME, "When the answer arrived, by this machine's clock.", nullable=False),
    Column("error", STRING, "Kafka error name and text where the answer is missing; null where it is whole."),
)

PARTITIONS = Table(
    "partitions",
    "a partition as its leader answers for it",
    (
        _TOPIC,
        _PARTITION,
        Column("leader", INT32, "Broker id of the leader; null while there is none."),
        Column("leader_epoch", INT32, "Epoch of that leader."),
        Column("replicas", ListOf(INT32), "Broker ids that hold a replica."),
        Column("isr", ListOf(INT32), "Broker ids in sync."),
        Column("log_start_offset", INT64, "First offset still in the log."),
        Column("last_stable_offset", INT64, "Where read_committed consumers stop."),
        Column("high_watermark", INT64, "Where read_uncommitted consumers stop."),
        Column("log_end_offset", INT64, "Next offset the leader will write."),
        *_LIVE,
    ),
    key=("topic", "partition"),
    sort=("topic", "partition"),
)

PRODUCERS = Table(
    "producers",
    "producer state on a replica (DescribeProducers, .snapshot)",
    (
        _TOPIC,
        _PARTITION,
        _PRODUCER_ID,
        Column("producer_epoch", INT16, "Newest epoch of this producer on the partition."),
        Column("last_sequence", INT32, "Last sequence number written."),
        Column("last_timestamp", TIME, "Newest record time: the producer's clock under CreateTime, only a hint."),
        Column("coordinator_epoch", INT32, "Coordinator epoch of the producer's last marker here."),
        Column("current_txn_start_offset", INT64, "First offset of the open transaction; null if none is open."),
        *_LIVE,
    ),
    key=("topic", "partition", "broker_id", "producer_id"),
    sort=("topic", "partition", "broker_id", "producer_id"),
)

TRANSACTIONS = Table(
    "transactions",
    "coordinator state of a transactional id (ListTransactions and DescribeTransactions, or __transaction_state)",
    (
        Column("transactional_id", STRING, "Transactional id; null on the error row of a whole broker or partition."),
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        Column("state", STRING, "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Dead."),
        Column("timeout_ms", INT32, "The transaction's own timeout; Int32.MAX marks two-phase commit.", unit="ms"),
        Column("start_time", TIME, "Start of the transaction by the coordinator's clock; null if none is open."),
        Column("last_update_time", TIME, "Last state change; only __transaction_state has it."),
        Column("topic_partitions", TOPIC_PARTITIONS, "Partitions whose marker is still expected."),
        Column("coordinator_id", INT32, "Broker id of the coordinator."),
        Column("txn_state_partition", INT32, "Partition of __transaction_state that holds the id."),
        Column("source", STRING, "ListTransactions, DescribeTransactions or __transaction_state.", nullable=False),
        *_LIVE,
    ),
    key=("transactional_id",),
    sort=("transactional_id", "broker_id", "txn_state_partition"),
)

COORDINATORS = Table(
    "coordinators",
    "where a transactional id or a group is coordinated, by hash and by FindCoordinator",
    (
        Column("key_type", STRING, "transaction or group.", nullable=False),
        Column("key", STRING, "The transactional id or group id.", nullable=False),
        Column("topic", STRING, "__transaction_state or __consumer_offsets.", nullable=False),
        Column("partition", INT32, "Partition of that topic, by the hash of the key."),
        Column("leader", INT32, "Leader of that partition, by metadata."),
        Column("coordinator_id", INT32, "Broker that FindCoordinator names."),
        Column("agrees", BOOL, "Whether both name the same broker; null if one of them is missing."),
        *_LIVE,
    ),
    key=("key_type", "key"),
    sort=("key_type", "key"),
)

EVIDENCE = ListOf(
    StructOf(
        (
            ("source", STRING),  # the API or log that answered
            ("broker_id", INT32),
            ("observed_at", TIME),
            ("name", STRING),
            ("value", STRING),
        )
    )
)

FINDINGS = Table(
    "findings",
    "one answer: who holds, or will hold, this partition's LSO, why, and what is safe",
    (
        Column("topic", STRING, "Topic name; null where the finding is about the whole cluster."),
        Column("partition", INT32, "Partition number; null where the finding is about the whole cluster."),
        Column("position", INT32, "1 holds the LSO now; 2 holds it once 1 has ended; null holds nothing."),
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        Column("transactional_id", STRING, "Id that owns the producer id, where the coordinator knows one."),
        Column("start_offset", INT64, "First offset of the open transaction on this partition."),
        Column("verdict", STRING, "One of analysis.verdicts.VERDICTS.", nullable=False),
        Column("reason", STRING, "Why this verdict, as a sentence.", nullable=False),
        Column("cause", STRING, "Root cause, where the log shows it."),
        Column("remedy", STRING, "What is safe to do, as a sentence.", nullable=False),
        Column("missing", ListOf(STRING), "What is missing for a verdict; empty where nothing is.", nullable=False),
        Column("evidence", EVIDENCE, "What was seen, where and when.", nullable=False),
        Column("opened_at", TIME, "When the transaction opened, by the clock that opened_by names."),
        Column("opened_by", STRING, "coordinator, broker (LogAppendTime) or producer (CreateTime)."),
        Column("expires_at", TIME, "When the coordinator aborts it by its own timeout."),
        Column("last_stable_offset", INT64, "LSO of the partition."),
        Column("high_watermark", INT64, "High watermark of the partition."),
        Column("records_held", INT64, "Offsets from the LSO to the high watermark, markers included.", unit="offsets"),
        Column("groups_held", ListOf(STRING), "Groups whose committed offset stands at the LSO; null if not asked."),
        *_LIVE,
    ),
    key=("topic", "partition", "producer_id"),
    sort=("topic", "partition", "position", "start_offset", "producer_id"),
)

TABLES: Mapping[str, Table] = {t.name: t for t in (PARTITIONS, PRODUCERS, TRANSACTIONS, COORDINATORS, FINDINGS)}
