"""Findings from what is kept of logs and recordings: who held which LSO from when to when, and who was behind it.

Holds of the LSO, answers and findings are few: the driver judges them. What it needs of tables that grow, Spark finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.holders import by_producer, held_findings
from toolkit.analysis.log_state import LogState
from toolkit.analysis.over_time import LOOKS, looks, over_time
from toolkit.schema import FINDINGS, HISTORIES, SPANS, Row
from toolkit.spark.source import IDS
from toolkit.spark.types import spark_table, struct_type

__all__ = ["best_logs", "findings", "findings_over_time", "holds_of", "markers", "near_histories"]

PLACE = ("topic", "partition")
IS_OVER = "row.ended not in ('open', 'stuck') and row.error is null"
BEFORE, AFTER = (  # an hour is far more than clocks of brokers differ by
    f"coalesce({IS_OVER} and {far}, false)"
    for far in ("row.end_time < begins - interval 1 hour", "row.start_time > held_to + interval 1 hour")
)


def best_logs(states: Iterable[Row]) -> list[str]:
    """Of each partition the log that has most of it, as `toolkit.LogDir` chooses it, where somebody holds or held it.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.stage.STATE`.
    """
    best: dict[tuple[str, int], Row] = {}
    for state in states:
        if state["topic"] is None or state["partition"] is None or state["log"].endswith(IDS):
            continue
        place = state["topic"], state["partition"]
        best[place] = min(best.get(place, state), state, key=_rank)
    return [state["log"] for state in best.values() if state["is_held"]]


def _rank(state: Row) -> tuple[object, ...]:
    """Sound before damaged, then the newest leader epoch, then the longest, then as they are listed."""
    names = ("leader_epoch", "log_end_offset", "broker_id")
    epoch, end, broker_id = (-1 if state[name] is None else state[name] for name in names)
    return bool(state["is_damaged"]), -epoch, -end, broker_id, state["log"]


def holds_of(states: Iterable[Row], *, min_held_ms: int) -> list[Row]:
    """Rows of `toolkit.analysis.holds.HOLDS` of logs.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.stage.STATE`.
    min_held_ms
        Leave out what has ended and was shorter.
    """
    found: list[Row] = []
    for state in states:
        place = {name: state[name] for name in (*PLACE, "broker_id")}
        found += LogState.from_bytes(state["remembered"], **place, min_held_ms=min_held_ms).holds().to_pylist()
    return found


def near_histories(holds: Sequence[Row], histories: DataFrame) -> list[Row]:
    """What coordinators tell of the producer ids of holds: all that may be of one, a row before it, and one after.

    `toolkit.analysis.behind` judges them; this leaves out what is far, for a producer id may have millions.

    Parameters
    ----------
    holds
        Rows of `toolkit.analysis.holds.HOLDS`.
    histories
        Rows of ``schema.HISTORIES``.
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
    held = histories.sparkSession.createDataFrame(pa.Table.from_pylist(rows, schema=pa.schema([*fields, *times])))
    named = sf.array_distinct(sf.array("producer_id", "previous_producer_id"))
    of_producers = histories.select(sf.struct(*HISTORIES.names).alias("row"), sf.explode(named).alias("of_producer"))
    pairs = of_producers.join(sf.broadcast(held), "of_producer")
    pairs = pairs.withColumns({"before": sf.expr(BEFORE), "after": sf.expr(AFTER)})
    found = pairs.groupBy("hold").agg(
        sf.collect_list(sf.when(~(sf.col("before") | sf.col("after")), sf.col("row"))).alias("near"),
        sf.max_by("row", sf.when(sf.col("before"), sf.col("row.end_time"))).alias("before"),
        sf.min_by("row", sf.when(sf.col("after"), sf.col("row.start_time"))).alias("after"),
    )
    of_holds = found.select(sf.concat("near", sf.array_compact(sf.array("before", "after"))).alias("rows")).toArrow()
    rows = [row for each in of_holds["rows"].to_pylist() for row in each]
    return list({repr(row): row for row in rows}.values())  # one may be near several holds


def findings(holds: Iterable[Row], *, histories: Iterable[Row], answers: Iterable[Row], min_held_ms: int) -> list[Row]:
    """Who held the LSO of each partition, before and now.

    Parameters
    ----------
    holds
        Rows of `toolkit.analysis.holds.HOLDS`, of one log of each partition.
    histories
        Rows of ``schema.HISTORIES``: they tell whose transactions they were and how they ended.
    answers
        Rows of ``schema.FINDINGS`` of now, from the same log directories or from a cluster: only the coordinators know
        what is to be done with what is open. They are rows of the result, with what the log tells of them.
    min_held_ms
        Leave out what has ended and held the LSO for less.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``. What has ended has the verdict ``ended``; what is open and in none of `answers` is
        ``unknown``.
    """
    transactions = by_producer(histories)
    places: dict[tuple[object, ...], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for which, rows in enumerate((holds, answers)):
        for row in rows:
            places[row["topic"], row["partition"]][which].append(row)
    return [
        row
        for held, now in places.values()
        for row in held_findings(held, histories=transactions, answers=now, min_held_ms=min_held_ms)
    ]


def markers(findings: Iterable[Row], spans: DataFrame) -> list[Row]:
    """Rows of ``schema.SPANS`` of transactions that findings have open, and that have ended by a log.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``.
    spans
        Rows of ``schema.SPANS``.
    """
    still_open = {
        (row["topic"], row["partition"], row["producer_id"], row["start_offset"])
        for row in findings
        if row["verdict"] != "ended" and row["start_offset"] is not None
    }
    if not still_open:
        return []
    types = "topic string, partition int, producer_id long, first_offset long"
    wanted = spans.sparkSession.createDataFrame(list(still_open), types)
    ended = spans.where("marker_offset is not null").select(*SPANS.names)
    found: list[Row] = ended.join(sf.broadcast(wanted), wanted.columns, "left_semi").toArrow().to_pylist()
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
        Rows of ``schema.FINDINGS``, as `toolkit.analysis.over_time.over_time` tells it: `ended` by the look that
        did not see it any more.
    """
    if samples is None:
        types = {"interval_ms": "long", "topic_gaps": "array<string>", "error": "string"}
        none = {name: sf.lit(None).cast(each) for name, each in types.items()}
        samples = findings.select("sample").distinct().withColumns(none)
    # A look is a row: those of a year are few enough for one task.
    looked = (
        samples.select("sample", "interval_ms", "topic_gaps", "error")
        .coalesce(1)
        .mapInArrow(_looks, struct_type(LOOKS))
    )
    sampled = findings.join(sf.broadcast(looked), "sample")

    def of_partition(rows: pa.Table) -> pa.Table:
        return spark_table(FINDINGS.arrow(over_time(rows.to_pylist())))

    return sampled.groupBy(*PLACE).applyInArrow(of_partition, struct_type(FINDINGS))


def _looks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    yield from spark_table(LOOKS.arrow(looks(rows))).to_batches()
