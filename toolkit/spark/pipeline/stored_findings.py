"""Findings from stored tables of logs and recordings: which transaction held which LSO, and when.

Holds of the LSO and current findings are few, so the driver diagnoses them. Spark selects the rows that it needs from
the growing tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.history.findings_over_time import is_open, observation_times, over_time
from toolkit.analysis.history.resume_state import LogState
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, TRANSACTION_HISTORY
from toolkit.schema.derived import OBSERVATION_TIMES, LsoHold, ObservationTime
from toolkit.schema.live import Finding
from toolkit.schema.log import LogTransaction, PastTransaction
from toolkit.schema.recorded import RecordedSample
from toolkit.schema.table import TopicPartition
from toolkit.spark.arrow_types import spark_table, struct_type
from toolkit.spark.datasources.log_identity import LogIdentity, Origin
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState

PARTITION = ("topic", "partition")
HAS_ENDED = "row.ended not in ('open', 'stuck') and row.error is null"
BEFORE, AFTER = (  # an hour is far more than the clock difference between brokers
    f"coalesce({HAS_ENDED} and {far}, false)"
    for far in ("row.end_time < begins - interval 1 hour", "row.start_time > held_to + interval 1 hour")
)


def best_logs(states: Iterable[StoredState]) -> list[StoredState]:
    """The best replica of each partition, selected as by `toolkit.LogDir`; a topic created again is another one.

    `states`: states of logs.
    """
    best: dict[tuple[Origin, TopicPartition], StoredState] = {}
    for state in states:
        if state.topic is None or state.partition is None or state.log.endswith(IDS):
            continue
        key = LogIdentity.of(state.log).origin, TopicPartition(state.topic, state.partition)
        best[key] = min(best.get(key, state), state, key=_rank)
    return list(best.values())


def diagnosable(
    holds: Iterable[LsoHold],
    current_findings: Iterable[Finding],
    *,
    listed: Collection[tuple[str | None, int | None]] | None,
) -> list[LsoHold]:
    """The holds of ended transactions, and of open ones that can be diagnosed now.

    A partition may be deleted or not selected now. And a transaction that a running broker does not report has ended
    since its log was read.

    `holds`: by the logs.
    `current_findings`: of what is open now.
    `listed`: the partitions of a consistent copy; null for other sources.
    """
    keys = {each.key for each in current_findings}
    return [
        hold
        for hold in holds
        if hold.marker_offset is not None
        or (hold.key in keys if listed is None else (hold.topic, hold.partition) in listed)
    ]


def _rank(state: StoredState) -> tuple[object, ...]:
    """Sort key: intact first, then the highest leader epoch, the highest end offset, the lowest broker id, by name."""
    numbers = state.leader_epoch, state.log_end_offset, state.broker_id
    epoch, end, broker_id = (-1 if each is None else each for each in numbers)
    return bool(state.is_damaged), -epoch, -end, broker_id, state.log


def holds_of(states: Iterable[StoredState], *, min_held_ms: int) -> list[LsoHold]:
    """The holds of the LSO, from the states of logs.

    `states`: states of logs.
    `min_held_ms`: leave out shorter holds that have ended.
    """
    found: list[LsoHold] = []
    for state in states:
        location: Any = {"topic": state.topic, "partition": state.partition, "broker_id": state.broker_id}
        log_state = LogState.from_bytes(state.remembered or b"", **location, min_held_ms=min_held_ms)
        found += LsoHold.of_table(log_state.lso_holds())
    return found


def near_transaction_history(holds: Sequence[LsoHold], transaction_history: DataFrame) -> list[PastTransaction]:
    """History that may belong to a hold by producer id and time, and the rows directly before and after.

    `history.hold_findings.attribute` selects among them. A producer id may have millions of other rows.

    `holds`: the holds.
    `transaction_history`: rows of ``schema.TRANSACTION_HISTORY``.
    """
    if not holds:
        return []
    fields = [("hold", pa.int64()), ("of_producer", pa.int64())]
    times = [(name, pa.timestamp("us", tz="UTC")) for name in ("begins", "held_to")]
    rows = [
        {
            "hold": number,
            "of_producer": hold.producer_id,
            "begins": min((at for at in (hold.opened_at, hold.held_to) if at is not None), default=None),
            "held_to": hold.held_to,
        }
        for number, hold in enumerate(holds)
    ]
    holds_frame = transaction_history.sparkSession.createDataFrame(
        pa.Table.from_pylist(rows, schema=pa.schema([*fields, *times]))
    )
    producer_ids = sf.array_distinct(sf.array("producer_id", "previous_producer_id"))
    by_producer_id = transaction_history.select(
        sf.struct(*TRANSACTION_HISTORY.names).alias("row"), sf.explode(producer_ids).alias("of_producer")
    )
    pairs = by_producer_id.join(sf.broadcast(holds_frame), "of_producer")
    pairs = pairs.withColumns({"before": sf.expr(BEFORE), "after": sf.expr(AFTER)})
    found = pairs.groupBy("hold").agg(
        sf.collect_list(sf.when(~(sf.col("before") | sf.col("after")), sf.col("row"))).alias("near"),
        sf.max_by("row", sf.when(sf.col("before"), sf.col("row.end_time"))).alias("before"),
        sf.min_by("row", sf.when(sf.col("after"), sf.col("row.start_time"))).alias("after"),
    )
    near_rows = found.select(sf.concat("near", sf.array_compact(sf.array("before", "after"))).alias("rows")).toArrow()
    past = (PastTransaction.of(row) for each in near_rows["rows"].to_pylist() for row in each)
    return list(dict.fromkeys(past))  # one may be near several holds


def markers(findings: Iterable[Finding], log_transactions: DataFrame) -> list[LogTransaction]:
    """Transactions of the logs with a marker that are open in findings.

    `findings`: findings, open and closed.
    `log_transactions`: rows of ``schema.LOG_TRANSACTIONS``.
    """
    still_open = {each.key for each in findings if is_open(each)}
    if not still_open:
        return []
    types = "topic string, partition int, producer_id long, first_offset long"
    open_frame = log_transactions.sparkSession.createDataFrame(list(still_open), types)
    ended = log_transactions.where("marker_offset is not null").select(*LOG_TRANSACTIONS.names)
    found = ended.join(sf.broadcast(open_frame), open_frame.columns, "left_semi").toArrow()
    return LogTransaction.of_table(found)


def findings_over_time(findings: DataFrame, samples: DataFrame | None = None) -> DataFrame:
    """The findings of a recording over time, one row for each transaction.

    Parameters
    ----------
    findings
        Rows of ``schema.RECORDED["findings"]``.
    samples
        Rows of ``schema.SAMPLES``, including failed samples and samples without findings. If null, only samples with
        findings count.

    Returns
    -------
    DataFrame
        Rows of ``schema.FINDINGS`` as in `findings_over_time.over_time`: `ended` from the first sample without the
        transaction.
    """
    if samples is None:
        types = {"interval_ms": "long", "topic_gaps": "array<string>", "error": "string"}
        null_columns = {name: sf.lit(None).cast(each) for name, each in types.items()}
        samples = findings.select("sampled_at").distinct().withColumns(null_columns)
        samples = samples.withColumn("observed_at", sf.col("sampled_at"))
    # One row per sample: the samples of a year are few enough for one task.
    times = (
        samples.select("sampled_at", "observed_at", "interval_ms", "topic_gaps", "error")
        .coalesce(1)
        .mapInArrow(_observation_times, struct_type(OBSERVATION_TIMES))
    )
    sampled = findings.join(sf.broadcast(times), "sampled_at")

    def of_partition(rows: pa.Table) -> pa.Table:
        of_samples = rows.group_by(OBSERVATION_TIMES.names).aggregate([])
        found = over_time(rows, ObservationTime.of_table(of_samples))
        return spark_table(FINDINGS.arrow(found))

    return sampled.groupBy(*PARTITION).applyInArrow(of_partition, struct_type(FINDINGS))


def _observation_times(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    samples = (RecordedSample.of(row) for batch in batches for row in batch.to_pylist())
    yield from spark_table(OBSERVATION_TIMES.arrow(observation_times(samples))).to_batches()
