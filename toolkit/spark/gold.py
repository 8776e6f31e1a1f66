"""Findings from all that is kept: they are few, and made anew as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from toolkit.spark.bronze import LOST
from toolkit.spark.findings import (
    closed_findings,
    findings,
    findings_over_time,
    joined_findings,
    without_short_findings,
)
from toolkit.spark.ledger import Ledger
from toolkit.spark.store import Store
from toolkit.spark.tables import KEPT, RECORDED_AS, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AT_REST", "all_findings"]

AT_REST = "at rest"
"""How what answers were made from begins where nobody was writing on."""

OPEN = "open"


def all_findings(store: Store, ledger: Ledger, *, min_held_ms: int) -> DataFrame:
    """What logs tell, what recordings tell, and where both do one row: `ended` where either shows it.

    This is the answer; the tables it is made of, ``answers`` and ``recorded_findings``, are history, as of their times.
    """
    found = []
    if ledger.parts:
        answers = _whole(store, "answers")
        made = ledger.made.get(("answers", None))
        is_at_rest = made is not None and made.given.startswith(AT_REST)
        found.append(
            findings(
                _spans_to_judge(store, answers, is_at_rest=is_at_rest),
                _whole(store, "batches"),
                histories=_whole(store, "histories"),
                answers=answers,
                min_held_ms=min_held_ms,
            )
        )
    if any(table == RECORDED_AS["samples"] for table, _ in ledger.made):
        seen = findings_over_time(_whole(store, RECORDED_AS["findings"]), _whole(store, RECORDED_AS["samples"]))
        found.append(closed_findings(seen, _whole(store, "spans")) if ledger.parts else seen)
    if not found:
        return _whole(store, "answers")
    told = found[0] if len(found) == 1 else joined_findings(*found)
    return without_short_findings(told, min_held_ms=min_held_ms)


def _spans_to_judge(store: Store, answers: DataFrame, *, is_at_rest: bool) -> DataFrame:
    """What has ended; and of what is open by the log, what there was an answer to be had for.

    A partition may be gone, or not have been asked about now. And while a broker runs, what it did not tell of has
    ended since its log was read.
    """
    spans = _whole(store, "spans")
    is_open = sf.coalesce(sf.col("outcome") == OPEN, sf.lit(False))
    is_lost = sf.coalesce(sf.col("error").startswith(LOST), sf.lit(False))
    key = {"topic": "topic", "partition": "partition"}
    asked = _whole(store, "partitions")
    if not is_at_rest:
        key |= {"producer_id": "producer_id", "first_offset": "start_offset"}
        asked = answers
    known = asked.select(*(sf.col(theirs).alias(ours) for ours, theirs in key.items())).distinct()
    return spans.where(~is_open & ~is_lost).unionByName(spans.where(is_open).join(known, list(key), "left_semi"))


def _whole(store: Store, table: str) -> DataFrame:
    return stored(store, table).select(*KEPT[table].table.names)
