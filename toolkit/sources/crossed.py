"""The two sides of a partition's open transactions, read from a cluster or from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.crossed import CROSSED, crossed
from toolkit.schema import HISTORIES, Row

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.cluster import Cluster
    from toolkit.sources.logdir import LogDir

__all__ = ["crossed_frame", "crossed_rows"]


def crossed_frame(source: Cluster | LogDir, topic: str, partition: int, *, findings: Iterable[Row]) -> pd.DataFrame:
    """`crossed_rows` as a pandas DataFrame (``analysis.crossed.CROSSED``)."""
    return CROSSED.frame(crossed_rows(source, topic, partition, findings=findings))


def crossed_rows(source: Cluster | LogDir, topic: str, partition: int, *, findings: Iterable[Row]) -> Sequence[Row]:
    """Every open transaction of a partition beside what its coordinator, and the coordinators' log, know of it.

    Parameters
    ----------
    source
        Where. The coordinators' log is read for the ids of these transactions only.
    topic, partition
        Which partition.
    findings
        What `source` has found there, before this is asked: rows of ``schema.FINDINGS``.

    Raises
    ------
    NotFound
        If files hold nothing of the partition.
    BrokerError
        If this principal may not see ``__transaction_state``.
    """
    producers = source.producer_rows([topic], [partition])
    transactions = source.transaction_rows()
    open_ids = {row["producer_id"] for row in producers if row["current_txn_start_offset"] is not None}
    owners = {row["transactional_id"] for row in transactions if row["producer_id"] in open_ids} - {None}
    histories = HISTORIES.rows(source.histories(sorted(owners))) if owners else []
    rows = crossed(producers, transactions, histories, findings=findings)
    return sorted(rows, key=lambda row: row["start_offset"])
