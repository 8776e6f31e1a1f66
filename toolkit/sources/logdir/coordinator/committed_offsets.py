"""The committed offsets of a consumer group, from the records of ``__consumer_offsets`` in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema import LOG_TRANSACTIONS, OFFSETS_LOG, Row
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.sources.source import Source

OPEN = "UNSTABLE_OFFSET_COMMIT: an open transaction has committed another offset"


def committed_in_files(files: Source, group: str) -> Mapping[TopicPartition, tuple[int | None, str | None]]:
    """Every committed offset of a group; null with an error where an open transaction has a pending commit.

    A transactional commit counts from its COMMIT marker on, as for the group's coordinator.

    Parameters
    ----------
    files
        Log directories with ``__consumer_offsets``.
    group
        Group id.

    Raises
    ------
    NotFound
        If ``__consumer_offsets`` is not among them.
    """
    events = [
        row
        for row in OFFSETS_LOG.rows(files.offsets_log(groups=[group]))
        if row["error"] is None and row["kind"] == "offset_commit" and row["topic"] is not None
    ]
    transactional = {row["group_partition"] for row in events if row["is_transactional"]}
    log_transactions = (
        LOG_TRANSACTIONS.rows(files.log_transactions(topics=OFFSETS_TOPIC, partitions=sorted(transactional)))
        if transactional
        else []
    )
    ordered = sorted(((_counts_from(row, log_transactions), row) for row in events), key=lambda pair: pair[0] or 0)
    found: dict[TopicPartition, tuple[int | None, str | None]] = {}
    for counts_from, row in ordered:
        tp = _tp(row)
        if row["tombstone"]:
            found.pop(tp, None)
        elif counts_from is not None:
            found[tp] = row["committed_offset"], None
    return found | {_tp(row): (None, OPEN) for row in events if _is_open(row, log_transactions)}


def committing_in_files(files: Source, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
    """Groups with a record about some partitions, sorted; a tombstone or an abort does not take a group out.

    Raises
    ------
    NotFound
        If ``__consumer_offsets`` is not among the files.
    """
    found: dict[TopicPartition, set[str]] = {tp: set() for tp in partitions}
    files.partition_rows(topics=[OFFSETS_TOPIC])  # it raises if there are none
    for row in OFFSETS_LOG.rows(files.offsets_log()):
        if row["kind"] == "offset_commit" and row["topic"] is not None and _tp(row) in found:
            found[_tp(row)].add(row["group_id"])
    return {tp: sorted(groups) for tp, groups in found.items()}


def _tp(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _counts_from(row: Row, log_transactions: Sequence[Row]) -> int | None:
    """Offset from which on a record counts: its own or its COMMIT marker's; null if it does not count."""
    if not row["is_transactional"]:
        return int(row["offset"])
    log_transaction = _log_transaction(row, log_transactions)
    return (
        None
        if log_transaction is None or log_transaction["marker"] != "COMMIT"
        else int(log_transaction["marker_offset"])
    )


def _is_open(row: Row, log_transactions: Sequence[Row]) -> bool:
    log_transaction = _log_transaction(row, log_transactions) if row["is_transactional"] else None
    return log_transaction is not None and log_transaction["outcome"] == "open"


def _log_transaction(row: Row, log_transactions: Sequence[Row]) -> Row | None:
    """The transaction that a record is part of."""
    return next(
        (
            log_transaction
            for log_transaction in log_transactions
            if (log_transaction["partition"], log_transaction["producer_id"])
            == (row["group_partition"], row["producer_id"])
            and log_transaction["first_offset"] is not None
            and log_transaction["first_offset"] <= row["offset"] <= log_transaction["last_offset"]
        ),
        None,
    )
