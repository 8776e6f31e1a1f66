"""Sinks for streams of ``kafka_txn_samples``: single tables, or a recording."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from functools import partial
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.schema import RECORDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def sample_table(everything: DataFrame, table: str) -> DataFrame:
    """The rows of one table of ``kafka_txn_samples``, with its columns at top level.

    Parameters
    ----------
    everything
        The table ``everything``: a stream, a micro-batch, or a stored table.
    table
        Name of the table in ``schema.RECORDED``.

    Raises
    ------
    UsageError
        If the table does not exist.
    """
    if table not in RECORDED:
        raise UsageError(f"The table {table!r} is not recorded.", do=f"Use one of {', '.join(RECORDED)}.")
    from pyspark.sql import functions as sf

    return everything.where(sf.col("table") == table).select(f"{table}.*")


def write_recording(
    everything: DataFrame, directory: str | os.PathLike[str], *, retention: dt.timedelta | None = None
) -> DataStreamWriter:
    """Write the samples of a stream into a recording, each once, even if Spark repeats a micro-batch.

    Parameters
    ----------
    everything
        A stream of ``kafka_txn_samples`` with the table ``everything``.
    directory
        Directory of the recording, on Spark's driver; with Connect, on the server. It must have no other writer.
    retention
        Delete older samples; null to keep all.

    Returns
    -------
    DataStreamWriter
        A writer that is not started, without checkpoint and trigger.

    Raises
    ------
    UsageError
        If `everything` has other columns.

    Examples
    --------
    >>> everything = spark.readStream.format("kafka_txn_samples").options(**options).load()  # doctest: +SKIP
    >>> writer = write_recording(everything, "recording")  # doctest: +SKIP
    >>> query = writer.option("checkpointLocation", "checkpoint").start()  # doctest: +SKIP
    """
    from toolkit.spark.datasources.live_options import EVERYTHING, recorded_schema
    from toolkit.spark.packaging import self_contained_function, sent

    if everything.columns != recorded_schema(EVERYTHING).names:
        raise UsageError(
            "The stream does not have the columns of the table everything.",
            do="Load kafka_txn_samples without the option table.",
        )
    append = partial(_append, directory=os.fspath(directory), retention=retention)
    package = sent(everything.sparkSession)
    return everything.writeStream.foreachBatch(append if package is None else self_contained_function(append, package))


def _append(batch: DataFrame, batch_id: int, *, directory: str, retention: dt.timedelta | None) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from toolkit.sources.recording.sample_writer import SampleRows, SampleWriter

    found = batch.toArrow()
    samples: list[SampleRows] = []
    for due in sorted(found["sampled_at"].unique().to_pylist()):
        rows = found.filter(pc.equal(found["sampled_at"], pa.scalar(due, found["sampled_at"].type)))
        tables = {name: rows.filter(pc.equal(rows["table"], name))[name].to_pylist() for name in RECORDED}
        samples.append(SampleRows(due, tables))
    if not samples:
        return
    with SampleWriter(directory) as writer:
        for sample in samples:
            writer.write(sample)
        with contextlib.suppress(OSError):  # the files stay unchanged, and the next sample retries
            if retention is not None:
                writer.retire(before=samples[-1].due - retention)
            writer.merge(now=samples[-1].due)
