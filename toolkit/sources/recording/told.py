"""What logs tell of held transactions: read when they are new, and again from time to time, not with every sample."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.evidence import Look
from toolkit.analysis.excerpts import is_to_explain
from toolkit.analysis.late import OpenTransaction
from toolkit.schema import Row
from toolkit.sources.groups import with_groups
from toolkit.sources.topology import Place
from toolkit.sources.wire import Wire

__all__ = ["Told", "told_of"]

FRESH = dt.timedelta(seconds=60)
OF_THE_TRANSACTION = ("cause", "opened_at", "opened_by", "compaction_held", "groups_held", "held_from", "held_to")
OF_THE_OFFSETS = ("records_held", "bytes_held")  # as long as neither end of what is held has moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the log told of a transaction.

    Parameters
    ----------
    row
        Its row of ``schema.FINDINGS``.
    evidence
        What the log added to the evidence.
    read_at
        When it was read.
    """

    row: Row
    evidence: Sequence[Row]
    read_at: dt.datetime


def told_of(
    wire: Wire, looks: Sequence[Look], rows: Sequence[Row], told: Mapping[OpenTransaction, Told]
) -> tuple[list[Row], dict[OpenTransaction, Told]]:
    """Add what the logs and the groups tell; the log of a partition is only read where that is not known by now.

    Parameters
    ----------
    looks
        The looks that the findings were judged by.
    rows
        Rows of ``schema.FINDINGS`` in their order.
    told
        What was told with the sample before.

    Returns
    -------
    tuple
        The rows; and what is known of their transactions, for the next sample.
    """
    now = looks[-1].observed_at
    to_read = {_place(row) for row in rows if is_to_explain(row) and not _is_known(row, told, now)}
    unread = [row for row in rows if _place(row) in to_read]
    read, just_told = _read(wire, looks, unread) if unread else ([], {})
    fresh = {id(before): after for before, after in zip(unread, read, strict=True)}
    known = {_key(row): told[_key(row)] for row in rows if id(row) not in fresh and _key(row) in told}
    found = [fresh.get(id(row)) or _as_told(row, known.get(_key(row))) for row in rows]
    return found, known | just_told


def _read(wire: Wire, looks: Sequence[Look], rows: Sequence[Row]) -> tuple[list[Row], dict[OpenTransaction, Told]]:
    from toolkit.analysis.explain import explain  # with numpy and Arrow, which a healthy cluster does not need
    from toolkit.sources.log_evidence import read_log_evidence

    log = read_log_evidence(wire, looks, rows)
    explained = rows if log is None else explain(rows, looks, log)
    explained = with_groups(wire, explained)
    # A partition that could not be read now is asked again with the next sample.
    places = {place for place, one in log.excerpts.items() if not one.error} if log else set()
    return explained, {
        _key(after): Told(
            row=after, evidence=after["evidence"][len(before["evidence"]) :], read_at=looks[-1].observed_at
        )
        for before, after in zip(rows, explained, strict=True)
        if _place(after) in places and before["verdict"] == after["verdict"]
    }


def _is_known(row: Row, told: Mapping[OpenTransaction, Told], now: dt.datetime) -> bool:
    """Whether the log was read a short while ago for this very answer about this very transaction."""
    one = told.get(_key(row))
    return one is not None and _is_same(row, one.row) and now - one.read_at < FRESH


def _is_same(row: Row, other: Row) -> bool:
    return all(row[name] == other[name] for name in ("producer_epoch", "transactional_id", "verdict", "position"))


def _as_told(row: Row, told: Told | None) -> Row:
    if told is None or not _is_same(row, told.row):
        return row
    unmoved = all(row[name] == told.row[name] for name in ("last_stable_offset", "high_watermark"))
    names = (*OF_THE_TRANSACTION, *(OF_THE_OFFSETS if unmoved else ()))
    added = {name: told.row[name] for name in names}
    if added["held_from"] is not None and added["held_to"] is None:
        added["held_ms"] = (row["observed_at"] - added["held_from"]) // dt.timedelta(milliseconds=1)
    return {**row, **added, "evidence": [*row["evidence"], *told.evidence]}


def _key(row: Row) -> OpenTransaction:
    return row["topic"], row["partition"], row["producer_id"], row["start_offset"]


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]
