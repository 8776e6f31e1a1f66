"""Compare open transactions of a partition with their coordinators' state.

Responses read at different times differ for healthy transactions, too, and a hidden id looks like a missing one. So a
combination is stated only if a finding has proven it, and is `unknown` otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.analysis.diagnosis.verdicts import OWNED
from toolkit.schema import Row

COMBINATIONS: Mapping[str, str] = MappingProxyType(
    {
        "its own": "The coordinator owns it and ends it: at its client's request, or by its timeout.",
        "orphan": "No transactional id has this producer id any more: no coordinator will end it.",
        "superseded epoch": "Its id has a later epoch now: the producer that wrote this is dead.",
        "not this partition": "Its transaction is open on other partitions, and this one will get no marker.",
        "late": "It was added, and that transaction has ended: these records came after its marker.",
        "never added": "No transaction of this epoch in the coordinator's log includes this partition.",
        "disowned": "The coordinator has nothing open, and its earlier transactions are not known.",
        "unknown": "Its owner is not proven: the finding names what is missing.",
    }
)
"""The combinations of partition and coordinator state, and what each means; ``its own`` if it has an owner."""

FINDING_KEY = ("topic", "partition", "producer_id", "start_offset")
PRODUCER_KEY = ("topic", "partition", "producer_id", "current_txn_start_offset")


def reconcile(
    producers: Iterable[Row],
    transactions: Sequence[Row],
    transaction_history: Sequence[Row] | None = None,
    *,
    findings: Iterable[Row],
) -> list[Row]:
    """Join every open transaction of a partition with its coordinator's state.

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
    by_key = {tuple(row[name] for name in FINDING_KEY): row for row in findings}
    opened = [row for row in producers if row["current_txn_start_offset"] is not None]
    return [
        _row(row, transactions, transaction_history, by_key.get(tuple(row[name] for name in PRODUCER_KEY)))
        for row in opened
    ]


def _row(
    producer: Row, transactions: Sequence[Row], transaction_history: Sequence[Row] | None, finding: Row | None
) -> Row:
    tp, producer_id = (producer["topic"], producer["partition"]), producer["producer_id"]
    owner = next((row for row in transactions if row["producer_id"] == producer_id), None)
    of_producer = [row for row in transaction_history or () if row["producer_id"] == producer_id]
    of_epoch = [row for row in of_producer if row["producer_epoch"] == producer["producer_epoch"]]
    on_partition = [row for row in of_epoch if tp in _topic_partitions(row)]
    is_complete = bool(of_producer) and not any(row["truncated"] or row["error"] for row in of_producer)
    row = {
        "topic": producer["topic"],
        "partition": producer["partition"],
        "start_offset": producer["current_txn_start_offset"],
        "producer_id": producer_id,
        "producer_epoch": producer["producer_epoch"],
        "transactional_id": owner and owner["transactional_id"],
        "state": owner and owner["state"],
        "owner_epoch": owner and owner["producer_epoch"],
        "expects_marker": None if owner is None or owner["error"] else tp in _topic_partitions(owner),
        "was_added": True if on_partition else False if is_complete else None,
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
    if row["expects_marker"] is None:
        return "unknown"  # its coordinator's response is missing
    if row["state"] == "Ongoing" and (row["owner_epoch"] or 0) > (row["producer_epoch"] or 0):
        return "superseded epoch"
    if row["expects_marker"]:
        return "unknown"  # the finding proved otherwise, but the coordinator now expects to write the marker
    if row["state"] in OPEN_STATES:
        return "not this partition"
    if row["was_added"] is None:
        return "disowned"
    return "late" if row["was_added"] else "never added"


def _topic_partitions(row: Row) -> set[tuple[str, int]]:
    return {(each["topic"], each["partition"]) for each in row["topic_partitions"] or ()}
