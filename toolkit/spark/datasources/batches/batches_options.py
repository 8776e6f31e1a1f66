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

__all__ = ["PIECES", "BatchesOptions", "batches_options"]

PIECES = "pieces"
OWN = ("crc", "maxRecordsPerPartition", "minPartitions", "mode", "producerId", "table")
MAX_OFFSETS = 1_000_000  # of one task: from 70 MB, if every record is a batch, to some gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesOptions:
    """Options of `toolkit.spark.datasources.batches.batches_source.KafkaBatches`.

    Parameters
    ----------
    selection
        Which partitions.
    start, stop
        From where to before where.
    max_offsets
        Offsets that one task may have.
    tasks
        How many tasks there should be, at least.
    table
        ``batches`` or ``pieces``.
    producer_id
        Only its batches.
    crc
        Whether every checksum is checked.
    mode
        What becomes of rows with `error`.
    timeout
        Seconds that connecting, and each round of requests, may take.
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
    table = choice(options, "table", ("batches", PIECES), default="batches")
    if table == PIECES and options.get("producerId") is not None:
        raise UsageError("pieces are of all producers.", do="Leave producerId out, and filter the transactions.")
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
