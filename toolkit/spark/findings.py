"""Findings from logs and recordings: who held which LSO from when to when, what waited, and who was behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.closing import close_by_log, without_short
from toolkit.analysis.holders import by_producer, held_findings
from toolkit.analysis.joined import joined
from toolkit.analysis.over_time import LOOKS, looks, over_time
from toolkit.schema import FINDINGS, HISTORIES, Row
from toolkit.spark.types import spark_table, struct_type

__all__ = [
    "closed_findings",
    "findings",
    "findings_over_time",
    "joined_findings",
    "without_short_findings",
]

PLACE = ("topic", "partition")
HOLD = (*PLACE, "first_offset")
MARKER = (*PLACE, "producer_id", "first_offset", "marker_offset", "marker", "end")
MIN_HELD_MS = 60_000
IS_OVER = "row.ended not in ('open', 'stuck') and row.error is null"
BEFORE, AFTER = (  # an hour is far more than clocks of brokers differ by
    f"coalesce({IS_OVER} and {far}, false)"
    for far in ("row.end_time < begins - interval 1 hour", "row.start_time > held_to + interval 1 hour")
)


def findings(
    held: DataFrame,
    *,
    histories: DataFrame | None = None,
    answers: DataFrame | None = None,
    min_held_ms: int = MIN_HELD_MS,
) -> DataFrame:
    """Who held the LSO of each partition, before and now.

    Parameters
    ----------
    held
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
    DataFrame
        Rows of ``schema.FINDINGS``. What has ended has the verdict ``ended``; what is open and in none of `answers` is
        ``unknown``.
    """
    told = held if histories is None else _with_histories(held, histories)

    def of_asked(held: pa.Table, told: pa.Table) -> pa.Table:
        return _findings(held, told, min_held_ms=min_held_ms)

    def of_nobody_asked(held: pa.Table) -> pa.Table:
        return _findings(held, None, min_held_ms=min_held_ms)

    by_place, schema = told.groupBy(*PLACE), struct_type(FINDINGS)
    if answers is None:
        return by_place.applyInArrow(of_nobody_asked, schema)
    return by_place.cogroup(answers.groupBy(*PLACE)).applyInArrow(of_asked, schema)


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
    told = findings.join(sf.broadcast(looked), "sample")

    def of_partition(rows: pa.Table) -> pa.Table:
        return spark_table(FINDINGS.arrow(over_time(rows.to_pylist())))

    return told.groupBy(*PLACE).applyInArrow(of_partition, struct_type(FINDINGS))


def closed_findings(findings: DataFrame, spans: DataFrame) -> DataFrame:
    """Findings of the past, closed where a log has the marker.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``, few: they are made twice.
    spans
        Rows of ``schema.SPANS``.

    Returns
    -------
    DataFrame
        Rows of ``schema.FINDINGS``, as `toolkit.analysis.closing.close_by_log` tells it.
    """
    still_open = findings.where("verdict != 'ended' and start_offset is not null")
    asked = still_open.select(*PLACE, "producer_id", sf.col("start_offset").alias("first_offset")).distinct()
    known = spans.where("marker_offset is not null").select(*MARKER)
    markers = known.join(sf.broadcast(asked), list(asked.columns), "left_semi")

    def of_partition(found: pa.Table, ends: pa.Table) -> pa.Table:
        return spark_table(FINDINGS.arrow(close_by_log(found.to_pylist(), ends.to_pylist())))

    both = findings.groupBy(*PLACE).cogroup(markers.groupBy(*PLACE))
    return both.applyInArrow(of_partition, struct_type(FINDINGS))


def joined_findings(of_log: DataFrame, of_recording: DataFrame) -> DataFrame:
    """One row where a log and a recording tell of the same transaction; all others as they are.

    Parameters
    ----------
    of_log, of_recording
        Rows of ``schema.FINDINGS``, from `findings` and from `findings_over_time`.

    Returns
    -------
    DataFrame
        Rows of ``schema.FINDINGS``, as `toolkit.analysis.joined.joined` tells it.
    """

    def of_partition(log: pa.Table, recording: pa.Table) -> pa.Table:
        return spark_table(FINDINGS.arrow(joined(log.to_pylist(), recording.to_pylist())))

    both = of_log.groupBy(*PLACE).cogroup(of_recording.groupBy(*PLACE))
    return both.applyInArrow(of_partition, struct_type(FINDINGS))


def without_short_findings(findings: DataFrame, *, min_held_ms: int) -> DataFrame:
    """Findings without those that `toolkit.analysis.closing.without_short` leaves out.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``.
    min_held_ms
        As that takes it.
    """

    def of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = without_short(batch.to_pylist(), min_held_ms=min_held_ms)
            yield from spark_table(FINDINGS.arrow(kept)).to_batches()

    return findings.mapInArrow(of_rows, struct_type(FINDINGS))


def _looks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    yield from spark_table(LOOKS.arrow(looks(rows))).to_batches()


def _with_histories(held: DataFrame, histories: DataFrame) -> DataFrame:
    """Each hold with what its coordinator tells of its producer id: all that may be of it, one row before, one after.

    `toolkit.analysis.behind` judges them; this leaves out what is far from it, for a producer id may have millions.
    """
    of_holds = held.withColumns({"of_producer": sf.col("producer_id"), "begins": sf.least("opened_at", "held_to")})
    named = sf.array_distinct(sf.array("producer_id", "previous_producer_id"))
    told = histories.select(sf.struct(*HISTORIES.names).alias("row"), sf.explode(named).alias("of_producer"))
    pairs = of_holds.join(told, "of_producer", "left").withColumns({"before": sf.expr(BEFORE), "after": sf.expr(AFTER)})
    others = [name for name in held.columns if name not in HOLD]
    found = pairs.groupBy(*HOLD).agg(
        sf.any_value(sf.struct(*others)).alias("held"),
        sf.collect_list(sf.when(~(sf.col("before") | sf.col("after")), sf.col("row"))).alias("near"),
        sf.max_by("row", sf.when(sf.col("before"), sf.col("row.end_time"))).alias("before"),
        sf.min_by("row", sf.when(sf.col("after"), sf.col("row.start_time"))).alias("after"),
    )
    histories_of = sf.concat("near", sf.array_compact(sf.array("before", "after"))).alias("histories")
    return found.select(*HOLD, "held.*", histories_of)


def _findings(held: pa.Table, answers: pa.Table | None, *, min_held_ms: int) -> pa.Table:
    """Findings of one partition."""
    holds = held.to_pylist()
    told: list[Row] = [row for hold in holds for row in hold.get("histories") or ()]
    rows = held_findings(
        holds,
        histories=by_producer(told) if "histories" in held.column_names else None,
        answers=None if answers is None else answers.to_pylist(),
        min_held_ms=min_held_ms,
    )
    return spark_table(FINDINGS.arrow(rows))
