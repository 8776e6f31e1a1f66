"""Reconcile leader and coordinator on a partition's open transactions, from a cluster or from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.reconciliation import reconcile
from toolkit.schema import TRANSACTION_HISTORY, Row
from toolkit.schema.derived import RECONCILIATION
from toolkit.schema.live import Finding, Producer, Transaction
from toolkit.schema.log import PastTransaction

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir


def reconciliation_frame(
    source: Cluster | LogDir, topic: str, partition: int, *, findings: Iterable[Row]
) -> pd.DataFrame:
    """`reconciliation_rows` as a pandas DataFrame (``schema.derived.RECONCILIATION``)."""
    return RECONCILIATION.frame(reconciliation_rows(source, topic, partition, findings=findings))


def reconciliation_rows(
    source: Cluster | LogDir, topic: str, partition: int, *, findings: Iterable[Row]
) -> Sequence[Row]:
    """Every open transaction of a partition, compared with its coordinator's state and log.

    Parameters
    ----------
    source
        The coordinators' log is read for the ids of these transactions only.
    topic, partition
        The partition.
    findings
        Earlier findings of `source` on the partition: rows of ``schema.FINDINGS``.

    Raises
    ------
    NotFound
        If the partition is not among the files.
    BrokerError
        If this principal may not see ``__transaction_state``.
    """
    producers = source.producer_rows(topics=[topic], partitions=[partition])
    transactions = source.transaction_rows()
    open_ids = {row["producer_id"] for row in producers if row["current_txn_start_offset"] is not None}
    owners = {row["transactional_id"] for row in transactions if row["producer_id"] in open_ids} - {None}
    transaction_history = (
        TRANSACTION_HISTORY.rows(source.transaction_history(transactional_ids=sorted(owners))) if owners else []
    )
    found = reconcile(
        map(Producer.of, producers),
        [Transaction.of(row) for row in transactions],
        [PastTransaction.of(row) for row in transaction_history],
        findings=map(Finding.of, findings),
    )
    return [each.row() for each in sorted(found, key=lambda each: each.start_offset)]
