"""A log larger than the memory of its workers: ``python -m tests.spark.large_log MEGABYTES``.

Runs in its own process, because the memory limit of workers is set when a session starts. Prints whether all
transactions were found, and the result of the naive alternative: all batches of a partition in one table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException

from toolkit.analysis.log.log_transactions import begin, finish, log_transaction_table, partial_transactions
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import COMMIT, HEADER, NO_MARKER, Headers, LogChunk, header_table
from toolkit.schema import BATCHES, LOG_TRANSACTIONS
from toolkit.schema.table import LogId
from toolkit.spark.arrow_types import spark_table, struct_type
from toolkit.spark.pipeline.log_fold import LogRead, LogState, fold_log
from toolkit.spark.pipeline.log_states import LogPlan
from toolkit.spark.spark_session import local_session

SEGMENTS, BATCHES_PER_SEGMENT = 8, 1 << 18
PRODUCERS, BATCHES_PER_TRANSACTION = 50, 20
LOG_ID = LogId(topic="large", partition=0, broker_id=1)


def large_log(start: int = 0, stop: int = SEGMENTS * BATCHES_PER_SEGMENT) -> Headers:
    """Batches of one record; producers take turns, and each of their transactions ends with a marker."""
    number = np.arange(start, stop)
    turn = number // PRODUCERS
    is_end = turn % BATCHES_PER_TRANSACTION == BATCHES_PER_TRANSACTION - 1
    headers = np.zeros(len(number), HEADER)
    headers["base_offset"] = headers["last_offset"] = number
    headers["position"], headers["size"] = (number % BATCHES_PER_SEGMENT) * 100, 100
    headers["producer_id"], headers["base_sequence"] = number % PRODUCERS, np.where(is_end, -1, turn)
    headers["base_timestamp"] = headers["max_timestamp"] = 1_760_000_000_000 + number
    headers["attributes"] = np.where(is_end, TRANSACTIONAL | CONTROL, TRANSACTIONAL)
    headers["marker"] = np.where(is_end, COMMIT, NO_MARKER)
    headers["record_count"], headers["magic"], headers["crc_ok"] = 1, 2, 1
    return headers


def file_of(segment: int) -> str:
    return f"/kafka/large-0/{segment * BATCHES_PER_SEGMENT:020d}.log"


def transactions_of_log(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the pipeline folds from the log, in one task."""

    def chunks() -> Iterator[LogChunk]:
        for segment in range(SEGMENTS):
            headers = large_log(segment * BATCHES_PER_SEGMENT, (segment + 1) * BATCHES_PER_SEGMENT)
            yield LogChunk(headers=headers, file=file_of(segment))

    for _ in batches:
        read = LogRead(chunks=chunks(), before=begin())
        for table, rows, _ in fold_log("large-0", read, LogPlan(), LogState(where=LOG_ID)):
            if table == LOG_TRANSACTIONS.name:
                yield from spark_table(rows).to_batches()


def table_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What no task has room for."""
    for _ in batches:
        yield from spark_table(header_table(large_log(), LOG_ID)).to_batches()


def main(megabytes: str) -> None:
    # Other memory pools, and one heap per thread, reserve address space that they never use.
    os.environ |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    settings = {"spark.driver.memory": "1g", "spark.executor.pyspark.memory": f"{megabytes}m"}
    one = local_session(master="local[2]", config=settings).range(1).coalesce(1)
    found = one.mapInArrow(transactions_of_log, struct_type(LOG_TRANSACTIONS)).toArrow()
    whole = log_transaction_table(finish(begin() + partial_transactions(large_log())), LOG_ID)
    order = [(name, "ascending") for name in ("first_offset", "marker_offset", "producer_id")]
    actual, expected = (each.drop_columns("file").sort_by(order).to_pylist() for each in (found, whole))
    assert actual == expected
    print("in order: all", len(actual))
    try:
        print("in one table: all", one.mapInArrow(table_of_batches, struct_type(BATCHES)).count())
    except PySparkException as exc:
        print("in one table:", "out of memory" if "MemoryError" in str(exc) or "crashed" in str(exc) else exc)


if __name__ == "__main__":
    main(*sys.argv[1:])
