"""Open transactions of a partition beside what their coordinators know: which side says what, and what that means.

Two answers that are not of one moment differ for a healthy transaction, too, and an id that may not be seen looks like
none. So how the two sides stand to each other is said only of what a finding has proven, and is unknown without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from toolkit.analysis.states import OPEN_STATES
from toolkit.schema import Row
from toolkit.schema.table import BOOL, INT16, INT32, INT64, STRING, Column, Table

__all__ = ["COMBINATIONS", "CROSSED", "crossed"]

COMBINATIONS: Mapping[str, str] = MappingProxyType(
    {
        "its own": "The coordinator counts it as its own, and ends it: on its client's word, or by its timeout.",
        "orphan": "No transactional id has this producer id any more: nobody is left to end it.",
        "superseded epoch": "Its id has gone on to a later epoch: the producer that wrote this is dead.",
        "not this partition": "Its transaction is open on other partitions, and its marker will not come to this one.",
        "late": "It was added, and that transaction has ended: what is open here came after its marker.",
        "never added": "The coordinator has never heard of this partition from it.",
        "disowned": "The coordinator has nothing open, and what it had before was not read.",
        "unknown": "It is not proven who owns it: the finding names what is missing.",
    }
)
"""How the two sides can stand to each other, and what that means: ``its own`` as long as it has an owner, whoever."""

OWNED = {"ongoing", "long", "overdue", "ending", "stuck_ending", "prepared"}
WHICH = ("topic", "partition", "producer_id", "start_offset")
OPEN = ("topic", "partition", "producer_id", "current_txn_start_offset")  # the same of schema.PRODUCERS

CROSSED = Table(
    "crossed",
    "an open transaction on a partition, beside what its coordinator knows of it",
    (
        Column("topic", STRING, "Topic name.", nullable=False),
        Column("partition", INT32, "Partition number.", nullable=False),
        Column("start_offset", INT64, "Leader: first offset of the open transaction.", nullable=False),
        Column("producer_id", INT64, "Leader: producer id (PID).", nullable=False),
        Column("producer_epoch", INT16, "Leader: epoch of its newest batch."),
        Column("transactional_id", STRING, "Coordinator: id that has this producer id; null where none has."),
        Column("state", STRING, "Coordinator: state of that id."),
        Column("owner_epoch", INT16, "Coordinator: epoch of that id."),
        Column("expects_marker", BOOL, "Coordinator: whether a marker of it is still to be written here."),
        Column(
            "was_added", BOOL, "Its log: whether that epoch ever had this partition; null if it was not read whole."
        ),
        Column("last_ended", STRING, "Its log: how its last transaction here ended, as of schema.HISTORIES."),
        Column("verdict", STRING, "Of the finding about it; null where there is none: it opened, or ended, meanwhile."),
        Column("combination", STRING, "One of analysis.crossed.COMBINATIONS.", nullable=False),
        Column("means", STRING, "What that means, as a sentence.", nullable=False),
    ),
    key=("topic", "partition", "producer_id"),
    sort=("topic", "partition", "start_offset"),
)


def crossed(
    producers: Iterable[Row],
    transactions: Sequence[Row],
    histories: Sequence[Row] | None = None,
    *,
    findings: Iterable[Row],
) -> list[Row]:
    """Set the two sides of every open transaction beside each other.

    Parameters
    ----------
    producers
        Rows of ``schema.PRODUCERS``; those without an open transaction are left out.
    transactions
        Rows of ``schema.TRANSACTIONS`` of all coordinators, their error rows included.
    histories
        Rows of ``schema.HISTORIES`` of the same ids; null if they were not read.
    findings
        Rows of ``schema.FINDINGS`` of the same partitions.

    Returns
    -------
    list of Row
        Rows of `CROSSED`.
    """
    judged = {tuple(row[name] for name in WHICH): row for row in findings}
    opened = [row for row in producers if row["current_txn_start_offset"] is not None]
    return [_row(row, transactions, histories, judged.get(tuple(row[name] for name in OPEN))) for row in opened]


def _row(producer: Row, transactions: Sequence[Row], histories: Sequence[Row] | None, finding: Row | None) -> Row:
    place, producer_id = (producer["topic"], producer["partition"]), producer["producer_id"]
    owner = next((row for row in transactions if row["producer_id"] == producer_id and row["transactional_id"]), None)
    told = [row for row in histories or () if row["producer_id"] == producer_id]
    mine = [row for row in told if row["producer_epoch"] == producer["producer_epoch"]]
    here = [row for row in mine if row["kind"] == "transaction" and place in _places(row)]
    is_whole = bool(told) and not any(row["truncated"] or row["error"] for row in told)
    row = {
        "topic": producer["topic"],
        "partition": producer["partition"],
        "start_offset": producer["current_txn_start_offset"],
        "producer_id": producer_id,
        "producer_epoch": producer["producer_epoch"],
        "transactional_id": owner and owner["transactional_id"],
        "state": owner and owner["state"],
        "owner_epoch": owner and owner["producer_epoch"],
        "expects_marker": None if owner is None else owner["state"] in OPEN_STATES and place in _places(owner),
        "was_added": True if here else False if is_whole else None,
        "last_ended": here[-1]["ended"] if here else None,
    }
    verdict = finding and finding["verdict"]
    combination = _combination(row) if verdict == "hanging" else "its own" if verdict in OWNED else "unknown"
    means = "; ".join(finding["missing"]) if finding and combination == "unknown" else ""
    return {**row, "verdict": verdict, "combination": combination, "means": means or COMBINATIONS[combination]}


def _combination(row: Row) -> str:
    """Of what hangs, from top to bottom."""
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


def _places(row: Row) -> set[tuple[str, int]]:
    return {(each["topic"], each["partition"]) for each in row["topic_partitions"] or ()}
