"""Options of ``kafka_log_live``, all checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.errors import UsageError
from toolkit.spark.datasources.client_options import CONNECTION, PREFIX
from toolkit.spark.datasources.corrupt_rows import MODES
from toolkit.spark.datasources.offset_options import (
    OFFSETS,
    SELECTION,
    OffsetBounds,
    PartitionSelection,
    ending,
    selection,
    starting,
)
from toolkit.spark.datasources.reader_options import Options, choice, flag, refuse_unknown, seconds, whole_number

PARTIAL_TRANSACTIONS = "partial_transactions"
OWN = ("crc", "maxRecordsPerPartition", "minPartitions", "mode", "producerId", "table")
MAX_OFFSETS = 1_000_000  # per task: from 70 MB, if every batch has one record, to some gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesOptions:
    """Options of `toolkit.spark.datasources.batches.batches_source.KafkaBatches`.

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
        What to do with rows with `error`, one of `corrupt_rows.MODES`.
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
    refuse_unknown(options, {*OWN, *CONNECTION, *SELECTION, *OFFSETS}, source="kafka_log_live", prefix=PREFIX)
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
