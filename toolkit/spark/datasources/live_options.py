"""Options and schemas of ``kafka_log_live`` and ``kafka_txn_samples``, all checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from toolkit.errors import UsageError
from toolkit.schema import RECORDED
from toolkit.spark.arrow_types import struct_fields, struct_type
from toolkit.spark.datasources.connection_options import CONNECTION, PREFIX
from toolkit.spark.datasources.reader_options import (
    MODES,
    OFFSETS,
    PARTIAL_TRANSACTIONS,
    SELECTION,
    OffsetBounds,
    Options,
    PartitionSelection,
    choice,
    ending,
    flag,
    milliseconds,
    refuse_unknown,
    seconds,
    selection,
    starting,
    whole_number,
)

OF_BATCHES = ("crc", "maxRecordsPerPartition", "minPartitions", "mode", "producerId", "table")
MAX_OFFSETS = 1_000_000  # per task: from 70 MB, if every batch has one record, to some gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesOptions:
    """Options of `KafkaBatches`.

    Parameters
    ----------
    selection
        Partitions to read.
    start, stop
        First offset, and the offset after the last one.
    max_offsets
        Maximum number of offsets per task.
    tasks
        Approximate minimum number of tasks.
    table
        ``batches`` or ``partial_transactions``.
    producer_id
        Only batches of this producer.
    crc
        Whether to verify every checksum.
    mode
        What to do with rows with `error`, one of `reader_options.MODES`.
    timeout
        Seconds, for connecting and for each round of requests.
    """

    selection: PartitionSelection
    start: OffsetBounds
    stop: OffsetBounds
    max_offsets: int
    tasks: int
    table: str
    producer_id: int | None
    crc: bool
    mode: str
    timeout: float


def batches_options(options: Options) -> BatchesOptions:
    """Parse and check the options.

    Raises
    ------
    UsageError
        For an unknown option, or an invalid value.
    """
    refuse_unknown(options, {*OF_BATCHES, *CONNECTION, *SELECTION, *OFFSETS}, source="kafka_log_live", prefix=PREFIX)
    table = choice(options, "table", ("batches", PARTIAL_TRANSACTIONS), default="batches")
    if table == PARTIAL_TRANSACTIONS and options.get("producerId") is not None:
        raise UsageError(
            "The table partial_transactions does not support producerId.",
            do="Remove producerId, and filter the transactions.",
        )
    return BatchesOptions(
        selection=selection(options),
        start=starting(options),
        stop=ending(options),
        table=table,
        max_offsets=whole_number(options, "maxRecordsPerPartition", lowest=1) or MAX_OFFSETS,
        tasks=whole_number(options, "minPartitions", lowest=1) or 1,
        producer_id=whole_number(options, "producerId"),
        crc=flag(options, "crc"),
        mode=choice(options, "mode", MODES, default="PERMISSIVE"),
        timeout=seconds(options, "timeout", default=30.0, lowest=0.1),
    )


EVERYTHING = "everything"
RECORDED_TABLES = (EVERYTHING, *RECORDED)
"""Values of the option ``table``: all recorded tables together, or one by its name in ``schema.RECORDED``."""
OF_SAMPLES = ("interval", "latePadding", "logEvidence", "recheckAfter", "maxTransactionTimeout", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """Options of `KafkaTransactions`.

    Parameters
    ----------
    table
        ``everything``, or a name in ``schema.RECORDED``.
    interval_ms
        Time between two samples of a stream.
    timeout
        Seconds, for connecting and for each round of requests.
    recheck_after
        Seconds before the confirming second check of a batch; 0 disables it.
    judging
        Other arguments of `toolkit.sources.recording.sampler.take_sample`.
    """

    table: str
    interval_ms: int
    timeout: float
    recheck_after: float
    judging: dict[str, Any]


def transactions_options(options: Options) -> TransactionsOptions:
    """Parse and check the options.

    Raises
    ------
    UsageError
        For an unknown option, or an invalid value.
    """
    refuse_unknown(options, {*OF_SAMPLES, *CONNECTION}, source="kafka_txn_samples", prefix=PREFIX)
    interval = seconds(options, "interval", default=10.0, lowest=0.1)
    durations = {
        "late_padding_ms": milliseconds(options, "latePadding"),
        "max_transaction_timeout_ms": milliseconds(options, "maxTransactionTimeout"),
    }
    return TransactionsOptions(
        table=choice(options, "table", RECORDED_TABLES, default=EVERYTHING),
        interval_ms=round(interval * 1000),
        timeout=seconds(options, "timeout", default=min(30.0, max(1.0, interval / 3)), lowest=0.1),
        recheck_after=seconds(options, "recheckAfter", default=5.0),
        judging={name: number for name, number in durations.items() if number is not None}
        | {"log_evidence": flag(options, "logEvidence", default=True)},
    )


def recorded_schema(table: str) -> StructType:
    """Spark's schema of a recorded table.

    That of ``everything`` has the time of the sample, the name of the row's table, and a struct for each table, which
    is null in the rows of all other tables.
    """
    if table != EVERYTHING:
        return struct_type(RECORDED[table])
    return StructType(
        [
            StructField("sampled_at", TimestampType(), nullable=False),
            StructField("table", StringType(), nullable=False),
            *struct_fields(RECORDED.items()),
        ]
    )
