"""Open transactions of a partition compared with their coordinators' state.

Answers of different times differ for healthy transactions, too, and a hidden id looks like no id. So the combination is
stated only where a finding has proven it, and is unknown otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.schema import Row

__all__ = ["COMBINATIONS", "reconcile"]

COMBINATIONS: Mapping[str, str] = MappingProxyType(
    {
        "its own": "The coordinator counts it as its own, and ends it: on its client's word, or by its timeout.",
        "orphan": "No transactional id has this producer id any more: no coordinator will end it.",
        "superseded epoch": "Its id has gone on to a later epoch: the producer that wrote this is dead.",
        "not this partition": "Its transaction is open on other partitions, and its marker will not come to this one.",
        "late": "It was added, and that transaction has ended: these records came after its marker.",
        "never added": "The coordinator has never heard of this partition from it.",
        "disowned": "The coordinator has nothing open, and what it had before was not read.",
        "unknown": "It is not proven who owns it: the finding names what is missing.",
    }
)
"""The combinations of both sides, and what each means: ``its own`` as long as it has an owner."""

OWNED = {"ongoing", "long", "overdue", "ending", "stuck_ending", "prepared"}
WHICH = ("topic", "partition", "producer_id", "start_offset")
OPEN = ("topic", "partition", "producer_id", "current_txn_start_offset")  # the same of schema.PRODUCERS


def reconcile(
    producers: Iterable[Row],
    transactions: Sequence[Row],
    transaction_history: Sequence[Row] | None = None,
    *,
    findings: Iterable[Row],
) -> list[Row]:
    """Join both sides of every open transaction.

    Parameters
    ----------
    producers
        Rows of ``schema.PRODUCERS``; those without an open transaction are left out.
    transactions
        Rows of ``schema.TRANSACTIONS`` of all coordinators, their error rows included.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY`` of the same ids; null if they were not read.
    findings
        Rows of ``schema.FINDINGS`` of the same partitions.

    Returns
    -------
    list of Row
        Rows of `RECONCILIATION`.
    """
    by_key = {tuple(row[name] for name in WHICH): row for row in findings}
    opened = [row for row in producers if row["current_txn_start_offset"] is not None]
    return [
        _row(row, transactions, transaction_history, by_key.get(tuple(row[name] for name in OPEN))) for row in opened
    ]


def _row(
    producer: Row, transactions: Sequence[Row], transaction_history: Sequence[Row] | None, finding: Row | None
) -> Row:
    tp, producer_id = (producer["topic"], producer["partition"]), producer["producer_id"]
    owner = next((row for row in transactions if row["producer_id"] == producer_id and row["transactional_id"]), None)
    of_producer = [row for row in transaction_history or () if row["producer_id"] == producer_id]
    of_epoch = [row for row in of_producer if row["producer_epoch"] == producer["producer_epoch"]]
    on_partition = [row for row in of_epoch if row["kind"] == "transaction" and tp in _topic_partitions(row)]
    is_whole = bool(of_producer) and not any(row["truncated"] or row["error"] for row in of_producer)
    row = {
        "topic": producer["topic"],
        "partition": producer["partition"],
        "start_offset": producer["current_txn_start_offset"],
        "producer_id": producer_id,
        "producer_epoch": producer["producer_epoch"],
        "transactional_id": owner and owner["transactional_id"],
        "state": owner and owner["state"],
        "owner_epoch": owner and owner["producer_epoch"],
        "expects_marker": None if owner is None else owner["state"] in OPEN_STATES and tp in _topic_partitions(owner),
        "was_added": True if on_partition else False if is_whole else None,
        "last_ended": on_partition[-1]["ended"] if on_partition else None,
    }
    verdict = finding and finding["verdict"]
    combination = _combination(row) if verdict == "hanging" else "its own" if verdict in OWNED else "unknown"
    means = "; ".join(finding["missing"]) if finding and combination == "unknown" else ""
    return {**row, "verdict": verdict, "combination": combination, "means": means or COMBINATIONS[combination]}


def _combination(row: Row) -> str:
    """The combination of a hanging transaction; the first that applies."""
    if row["transactional_id"] is None:
        return "orphan"
    if row["state"] == "Ongoing" and (row["owner_epoch"] or 0) > (row["producer_epoch"] or 0):
        return "superseded epoch"
    if row["expects_marker"]:
        return "unknown"  # it was proven before, and is not so any more
    if row["state"] in OPEN_STATES:
        return "not this partition"
    if row["was_added"] is None:
        return "disowned"
    return "late" if row["was_added"] else "never added"


def _topic_partitions(row: Row) -> set[tuple[str, int]]:
    return {(each["topic"], each["partition"]) for each in row["topic_partitions"] or ()}
