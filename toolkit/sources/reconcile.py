"""Reconcile leader and coordinator on a partition's open transactions, from a cluster or from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.reconciliation import reconcile
from toolkit.schema import Row
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.derived import RECONCILIATION
from toolkit.schema.live import Finding, Producer, Transaction
from toolkit.schema.log import PastTransaction

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir


def reconciliation_frame(source: Cluster | LogDir, topic: str, partition: int, *, findings: Data) -> pd.DataFrame:
    """`reconciliation_rows` as a pandas DataFrame (``schema.derived.RECONCILIATION``)."""
    return RECONCILIATION.frame(reconciliation_rows(source, topic, partition, findings=findings))


def reconciliation_rows(source: Cluster | LogDir, topic: str, partition: int, *, findings: Data) -> Sequence[Row]:
    """Every open transaction of a partition, compared with its coordinator's state and log.

    Parameters
    ----------
    source
        The coordinators' log is read for the ids of these transactions only.
    topic, partition
        The partition.
    findings
        Earlier findings of `source` on the partition: a frame, rows or records of ``schema.FINDINGS``.

    Raises
    ------
    NotFound
        If the partition is not among the files.
    BrokerError
        If this principal may not see ``__transaction_state``.
    """
    producers = records_of(source.producer_rows(topics=[topic], partitions=[partition]), Producer)
    transactions = records_of(source.transaction_rows(), Transaction)
    open_ids = {each.producer_id for each in producers if each.current_txn_start_offset is not None}
    owners = {each.transactional_id or "" for each in transactions if each.producer_id in open_ids} - {""}
    past = source.transaction_history_rows(transactional_ids=sorted(owners)) if owners else []
    found = reconcile(
        producers, transactions, records_of(past, PastTransaction), findings=records_of(findings, Finding)
    )
    return [each.row() for each in sorted(found, key=lambda each: each.start_offset)]
