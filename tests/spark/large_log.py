"""A log too large for its workers: ``python -m tests.spark.large_log FOLDER MEGABYTES``.

In a process of its own, for what workers may have is said when a session starts. Prints whether the transactions were
all found, and what became of the plain way: all batches of a partition in one group.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.errors import PySparkException

from tests.inverse import headers_of, spans_of
from toolkit.analysis.spans import EMPTY, Spans, begin, finish, piece, span_table
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.header_table import header_table
from toolkit.formats.headers import COMMIT, HEADER, NO_MARKER, Headers, Scanned
from toolkit.lab.session import local_session
from toolkit.schema import SPANS
from toolkit.sources.log_tables import Part, Where
from toolkit.spark.log_fold import fold
from toolkit.spark.pieces import PIECES, piece_batches
from toolkit.spark.stage import rows_of
from toolkit.spark.types import spark_table, struct_type

SEGMENTS, IN_EACH = 8, 1 << 18
PRODUCERS, IN_TRANSACTION = 50, 20
WHERE = Where(topic="large", partition=0, broker_id=1)


def large_log(start: int = 0, stop: int = SEGMENTS * IN_EACH) -> Headers:
    """Batches of one record; producers take turns, and each of their transactions ends with a marker."""
    number = np.arange(start, stop)
    turn = number // PRODUCERS
    ends = turn % IN_TRANSACTION == IN_TRANSACTION - 1
    headers = np.zeros(len(number), HEADER)
    headers["base_offset"] = headers["last_offset"] = number
    headers["position"], headers["size"] = (number % IN_EACH) * 100, 100
    headers["producer_id"], headers["base_sequence"] = number % PRODUCERS, np.where(ends, -1, turn)
    headers["base_timestamp"] = headers["max_timestamp"] = 1_760_000_000_000 + number
    headers["attributes"] = np.where(ends, TRANSACTIONAL | CONTROL, TRANSACTIONAL)
    headers["marker"] = np.where(ends, COMMIT, NO_MARKER)
    headers["record_count"], headers["magic"] = 1, 2
    return headers


def file_of(segment: int) -> str:
    return f"/kafka/large-0/{segment * IN_EACH:020d}.log"


def write(headers: Headers, folder: Path) -> None:
    for segment in range(SEGMENTS):
        part = headers[segment * IN_EACH : (segment + 1) * IN_EACH]
        table = spark_table(header_table(part, topic="large", partition=0, broker_id=1, file=file_of(segment)))
        pa.parquet.write_table(table, folder / f"{SEGMENTS - segment}.parquet")


def in_order(found: Spans) -> Spans:
    return found[np.lexsort((found["producer_id"], found["marker_offset"], found["first_offset"]))]


def in_one_group(batches: pa.Table) -> pa.Table:
    found = finish(begin() + piece(headers_of(batches.sort_by("base_offset"))))
    return spark_table(span_table(found, topic="large", partition=0))


def pieces(segments: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the tasks that read these segments give."""
    for segment in (number for batch in segments for number in batch["id"].to_pylist()):
        headers = large_log(segment * IN_EACH, (segment + 1) * IN_EACH)
        part = Part(Scanned(headers=headers, end=0), file_of(segment))
        before = begin() if segment == 0 else EMPTY
        yield from piece_batches([part], WHERE, log="1:/kafka/large-0/", section=segment, before=before)


def main(folder: str, megabytes: str) -> None:
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve addresses that they never use
    small = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    spark = local_session(master="local[2]", config={**small, "spark.executor.pyspark.memory": f"{megabytes}m"})
    headers = large_log()
    write(headers, Path(folder))
    staged = fold(spark.range(SEGMENTS).mapInArrow(pieces, PIECES), min_held_ms=0)
    found = in_order(spans_of(rows_of(staged, "spans").select(*SPANS.names).toArrow()))
    expected = in_order(finish(begin() + piece(headers)))
    found["file"] = expected["file"] = 0
    assert found.tolist() == expected.tolist()
    print("in pieces: all", len(found))
    batches = spark.read.parquet(folder)
    try:
        grouped = batches.groupBy("topic", "partition").applyInArrow(in_one_group, struct_type(SPANS))
        print("in one group: all", grouped.count())
    except PySparkException as exc:
        print("in one group:", "out of memory" if "MemoryError" in str(exc) or "crashed" in str(exc) else exc)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
