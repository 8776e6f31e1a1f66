"""What was decided about the records that a producer has open on some partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.diagnose import diagnose
from toolkit.analysis.diagnosis.verdicts import Outcome
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.logs.log_evidence import read_contexts

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster


def producer_outcomes(
    cluster: Cluster, producer_id: int, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, Outcome]:
    """The outcome of each open transaction of a producer, also of a live one, whose log a diagnosis does not read.

    Parameters
    ----------
    cluster
        The cluster.
    producer_id
        The producer.
    partitions
        Where to look; one on which it has nothing open is left out.

    Raises
    ------
    BrokerError, ConnectionFailed, NotFound
        If the partitions cannot be observed.
    """
    observation = cluster.observe(partitions=sorted(partitions))
    opened = [
        each
        for found in diagnose([observation]).opened.values()
        for each in found
        if each.txn.producer_id == producer_id and each.txn.start is not None
    ]
    contexts = read_contexts(cluster.client, opened) if opened else {}
    return {context.txn.tp: context.outcome for context in contexts.values()}
