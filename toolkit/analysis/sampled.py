"""Samples of a flight recorder to findings: two samples in a row stand for two looks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS, Partition
from toolkit.analysis.evidence import Look
from toolkit.analysis.findings import findings
from toolkit.schema import FINDINGS, Row

__all__ = ["judge_sample", "with_recorded"]

VERDICT = ("verdict", "reason", "remedy", "missing")
OF_THE_VERDICT = ("cause", "evidence", "opened_at", "opened_by")  # what the log told to explain it
IMPACT = (
    *("records_held", "bytes_held", "groups_held", "compaction_held"),
    *("held_from", "held_to", "held_ms"),
)


def judge_sample(
    look: Look,
    before: Look | None = None,
    *,
    asked: Iterable[Partition] = (),
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[Row]:
    """Judge what one sample saw, together with the one before it.

    Parameters
    ----------
    look
        What is judged. Only partitions that it has seen get an answer: a topic that is gone holds nothing.
    before
        The look of the sample before, however long ago that was; null where there is none.
    asked, max_transaction_timeout_ms
        As for `findings.findings`.

    Returns
    -------
    list of dict
        Rows of ``schema.FINDINGS`` in its order. What only one look has seen is never `hanging`: it is `unknown` until
        the next sample.
    """
    asked = set(asked)
    places = _places(look)
    twice = places & _places(before) if before else set()
    rows: list[Row] = []
    if before and twice:
        looks = [_at(before, twice), _at(look, twice)]
        rows += findings(looks, asked=asked & twice, max_transaction_timeout_ms=max_transaction_timeout_ms)
    if places - twice or not places:
        once = _at(look, places - twice)
        if twice:
            once = replace(once, coverage=replace(once.coverage, topic_gaps=()))  # they are told already
        found = findings([once], asked=asked - twice, max_transaction_timeout_ms=max_transaction_timeout_ms)
        rows += map(_seen_once, found)
    return sorted(rows, key=_order)


def with_recorded(rows: Iterable[Row], recorded: Iterable[Row]) -> list[Row]:
    """Findings of a look with what the log told when it was taken: the log of that time cannot be read again.

    Parameters
    ----------
    rows
        Rows of ``schema.FINDINGS``, judged now.
    recorded
        Those of the same look that were recorded. One that is not of the same transaction counts for nothing.

    Returns
    -------
    list of dict
        The rows with recorded cause and impact. What was not `hanging` then, since the log contradicted it, is not so
        now.
    """
    known = {_transaction(row): row for row in recorded}
    return [_with(row, known.get(_transaction(row))) for row in rows]


def _transaction(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("topic", "partition", "producer_id", "producer_epoch", "start_offset"))


def _with(row: Row, recorded: Row | None) -> Row:
    if recorded is None:
        return row
    names: tuple[str, ...] = IMPACT
    if row["verdict"] == "hanging" != recorded["verdict"]:
        names += VERDICT + OF_THE_VERDICT
    elif row["verdict"] == recorded["verdict"]:
        names += OF_THE_VERDICT
    return {**row, **{name: recorded[name] for name in names}}


def _places(look: Look) -> set[Partition]:
    return {_place(row) for row in look.partitions}


def _place(row: Row) -> Partition:
    return row["topic"], row["partition"]


def _at(look: Look, places: Collection[Partition]) -> Look:
    """The part of a look that is of some partitions; what the coordinators told stays."""

    def here(rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if _place(row) in places]

    return replace(
        look,
        partitions=here(look.partitions),
        producers=here(look.producers),
        partitions_after=here(look.partitions_after),
        producers_after=here(look.producers_after),
    )


def _seen_once(row: Row) -> Row:
    if row["verdict"] != "hanging":
        return row
    return {
        **row,
        "verdict": "unknown",
        "reason": f"It would be hanging if it were proven: {row['reason']}",
        "cause": None,
        "remedy": "Do not abort. Get what is missing and ask again.",
        "missing": ["a second look: it was seen in one sample only"],
    }


def _order(row: Row) -> list[tuple[bool, object]]:
    """The declared order, unknown values last."""
    return [(row[name] is None, 0 if row[name] is None else row[name]) for name in FINDINGS.sort]
