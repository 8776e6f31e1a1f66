"""Findings from stored tables of logs and recordings: who held which LSO, and from when to when.

Holds of the LSO, answers and findings are few: the driver judges them. What it needs of tables that grow, Spark finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.history.findings_over_time import (
    observation_times,
    over_time,
)
from toolkit.analysis.history.hold_findings import by_producer, held_findings
from toolkit.analysis.log.resume_state import LogState
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, TRANSACTION_HISTORY, Row
from toolkit.schema.derived import OBSERVATION_TIMES
from toolkit.spark.datasources.arrow_types import spark_table, struct_type
from toolkit.spark.pipeline.pipeline_source import IDS

__all__ = ["best_logs", "findings", "findings_over_time", "holds_of", "markers", "near_transaction_history"]

PLACE = ("topic", "partition")
IS_OVER = "row.ended not in ('open', 'stuck') and row.error is null"
BEFORE, AFTER = (  # an hour is far more than clocks of brokers differ by
    f"coalesce({IS_OVER} and {far}, false)"
    for far in ("row.end_time < begins - interval 1 hour", "row.start_time > held_to + interval 1 hour")
)


def best_logs(states: Iterable[Row]) -> list[str]:
    """Of each partition with a hold the replica that has most of its log, as `toolkit.LogDir` chooses it.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.pipeline.staging_table.STATE`.
    """
    best: dict[tuple[str, int], Row] = {}
    for state in states:
        if state["topic"] is None or state["partition"] is None or state["log"].endswith(IDS):
            continue
        tp = state["topic"], state["partition"]
        best[tp] = min(best.get(tp, state), state, key=_rank)
    return [state["log"] for state in best.values() if state["is_held"]]


def _rank(state: Row) -> tuple[object, ...]:
    """Intact before damaged, then the newest leader epoch, then the longest, then as listed."""
    names = ("leader_epoch", "log_end_offset", "broker_id")
    epoch, end, broker_id = (-1 if state[name] is None else state[name] for name in names)
    return bool(state["is_damaged"]), -epoch, -end, broker_id, state["log"]


def holds_of(states: Iterable[Row], *, min_held_ms: int) -> list[Row]:
    """Rows of ``schema.LSO_HOLDS`` of logs.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.pipeline.staging_table.STATE`.
    min_held_ms
        Leave out what has ended and was shorter.
    """
    found: list[Row] = []
    for state in states:
        tp = {name: state[name] for name in (*PLACE, "broker_id")}
        found += LogState.from_bytes(state["remembered"], **tp, min_held_ms=min_held_ms).lso_holds().to_pylist()
    return found


def near_transaction_history(holds: Sequence[Row], transaction_history: DataFrame) -> list[Row]:
    """Transaction history of the producer ids of holds: the rows that may be of one, a row before it, and one after.

    `history.attribution` decides among them; a producer id may have millions of others.

    Parameters
    ----------
    holds
        Rows of ``schema.LSO_HOLDS``.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY``.
    """
    if not holds:
        return []
    fields = [("hold", pa.int64()), ("of_producer", pa.int64())]
    times = [(name, pa.timestamp("us", tz="UTC")) for name in ("begins", "held_to")]
    rows = [
        {
            "hold": number,
            "of_producer": hold["producer_id"],
            "begins": min((at for at in (hold["opened_at"], hold["held_to"]) if at is not None), default=None),
            "held_to": hold["held_to"],
        }
        for number, hold in enumerate(holds)
    ]
    holds_frame = transaction_history.sparkSession.createDataFrame(
        pa.Table.from_pylist(rows, schema=pa.schema([*fields, *times]))
    )
    producer_ids = sf.array_distinct(sf.array("producer_id", "previous_producer_id"))
    of_producers = transaction_history.select(
        sf.struct(*TRANSACTION_HISTORY.names).alias("row"), sf.explode(producer_ids).alias("of_producer")
    )
    pairs = of_producers.join(sf.broadcast(holds_frame), "of_producer")
    pairs = pairs.withColumns({"before": sf.expr(BEFORE), "after": sf.expr(AFTER)})
    found = pairs.groupBy("hold").agg(
        sf.collect_list(sf.when(~(sf.col("before") | sf.col("after")), sf.col("row"))).alias("near"),
        sf.max_by("row", sf.when(sf.col("before"), sf.col("row.end_time"))).alias("before"),
        sf.min_by("row", sf.when(sf.col("after"), sf.col("row.start_time"))).alias("after"),
    )
    of_holds = found.select(sf.concat("near", sf.array_compact(sf.array("before", "after"))).alias("rows")).toArrow()
    rows = [row for each in of_holds["rows"].to_pylist() for row in each]
    return list({repr(row): row for row in rows}.values())  # one may be near several holds


def findings(
    holds: Iterable[Row], *, transaction_history: Iterable[Row], current_findings: Iterable[Row], min_held_ms: int
) -> list[Row]:
    """Findings of each partition: current ones, and past holds of its LSO.

    Parameters
    ----------
    holds
        Rows of ``schema.LSO_HOLDS``, of one log of each partition.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY``, for transactional ids and endings.
    current_findings
        Current rows of ``schema.FINDINGS`` of the same log directories or of a cluster: only coordinators know what is
        safe for an open transaction. The result includes them, with evidence from the log.
    min_held_ms
        Leave out ended transactions that held the LSO for less.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``. Ended transactions have the verdict ``ended``; open ones that are not in
        `current_findings` are ``unknown``.
    """
    transactions = by_producer(transaction_history)
    by_partition: dict[tuple[object, ...], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for which, rows in enumerate((holds, current_findings)):
        for row in rows:
            by_partition[row["topic"], row["partition"]][which].append(row)
    return [
        row
        for holds_frame, now in by_partition.values()
        for row in held_findings(
            holds_frame, transaction_history=transactions, current_findings=now, min_held_ms=min_held_ms
        )
    ]


def markers(findings: Iterable[Row], log_transactions: DataFrame) -> list[Row]:
    """Rows of ``schema.LOG_TRANSACTIONS`` of transactions that findings have open, and that have ended by a log.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``.
    transactions
        Rows of ``schema.LOG_TRANSACTIONS``.
    """
    still_open = {
        (row["topic"], row["partition"], row["producer_id"], row["start_offset"])
        for row in findings
        if row["verdict"] != "ended" and row["start_offset"] is not None
    }
    if not still_open:
        return []
    types = "topic string, partition int, producer_id long, first_offset long"
    open_frame = log_transactions.sparkSession.createDataFrame(list(still_open), types)
    ended = log_transactions.where("marker_offset is not null").select(*LOG_TRANSACTIONS.names)
    found: list[Row] = ended.join(sf.broadcast(open_frame), open_frame.columns, "left_semi").toArrow().to_pylist()
    return found


def findings_over_time(findings: DataFrame, samples: DataFrame | None = None) -> DataFrame:
    """What a recording has seen of each transaction, from when to when.

    Parameters
    ----------
    findings
        Rows of ``schema.RECORDED["findings"]``.
    samples
        Rows of ``schema.SAMPLES``: looks that failed, and looks that found nothing at all. Without them there is a look
        only where it found something.

    Returns
    -------
    DataFrame
        Rows of ``schema.FINDINGS`` as of `findings_over_time.over_time`: `ended` from the first sample without
        the transaction.
    """
    if samples is None:
        types = {"interval_ms": "long", "topic_gaps": "array<string>", "error": "string"}
        none = {name: sf.lit(None).cast(each) for name, each in types.items()}
        samples = findings.select("sampled_at").distinct().withColumns(none)
    # A sample is a row: those of a year are few enough for one task.
    times = (
        samples.select("sampled_at", "interval_ms", "topic_gaps", "error")
        .coalesce(1)
        .mapInArrow(_observation_times, struct_type(OBSERVATION_TIMES))
    )
    sampled = findings.join(sf.broadcast(times), "sampled_at")

    def of_partition(rows: pa.Table) -> pa.Table:
        return spark_table(FINDINGS.arrow(over_time(rows.to_pylist())))

    return sampled.groupBy(*PLACE).applyInArrow(of_partition, struct_type(FINDINGS))


def _observation_times(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    yield from spark_table(OBSERVATION_TIMES.arrow(observation_times(rows))).to_batches()
