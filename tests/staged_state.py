"""What a staged incident is on its brokers, and how it ends, by Kafka's own responses; no diagnosis takes part."""

from __future__ import annotations

from typing import Any

from toolkit.lab.clients import (
    LeaderTransaction,
    RequestRefused,
    coordinator,
    leader,
    offsets,
    open_transactions,
    send_until_accepted,
)
from toolkit.lab.incidents import StagedIncident
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient


def described_transaction(cluster: BrokerClient, transactional_id: str) -> Any:
    """Its state (DescribeTransactions), or None if the id is unknown."""
    try:
        described = send_until_accepted(
            cluster,
            lambda: broker_client.DescribeTransactions(transactional_ids=[transactional_id]),
            of=transactional_id,
            to=lambda: coordinator(cluster, transactional_id),
            codes=lambda message: [message.transaction_states[0].error_code],
        )
    except RequestRefused as refused:
        if refused.error == "TRANSACTIONAL_ID_NOT_FOUND":
            return None
        raise
    return described.transaction_states[0]


COORDINATOR = {  # the state of the transaction, and whether the coordinator still lists its partition
    "never_added": ("Empty", False),
    "late_message": ("CompleteAbort", False),
    "late_after_commit": ("CompleteCommit", False),
    "offsets_never_added": ("Empty", False),
    "superseded_elsewhere": ("Ongoing", False),
    "superseded_same_partition": ("Ongoing", True),
    "superseded_written": ("Ongoing", True),
    "busy_elsewhere": ("Ongoing", False),
    "several_open": ("Empty", False),
    "head_deleted": ("Empty", False),
    "future_clock": ("Empty", False),
    "orphan": (None, False),
    "old_event_times": ("Ongoing", True),
    "open_young": ("Ongoing", True),
    "open_long": ("Ongoing", True),
    "overdue": ("Ongoing", True),
    "prepared": ("Ongoing", True),
    "committing": ("PrepareCommit", True),
    "skipped_marker": ("CompleteCommit", False),
    "lost_marker": ("CompleteCommit", False),
    "unreplicated": ("PrepareCommit", True),
    "coordinator_gone": ("Ongoing", True),  # once the coordinator is back
    "marker_only": ("CompleteCommit", False),
    "fenced_by_timeout": ("CompleteAbort", False),
}


def check_staged(client: BrokerClient, staged: StagedIncident, *, version: str) -> None:
    """The leaders and the coordinator have the state that the incident describes."""
    log_start, lso, high_watermark = offsets(client, staged.topic, staged.partition)
    open_now = open_transactions(client, staged.topic, staged.partition)
    if staged.expected == "clear":
        assert (open_now, lso) == ([], high_watermark)
    elif staged.expected == "unreplicated":
        assert open_now == []
        assert lso == staged.start_offset < high_watermark
    else:
        for each in (staged, *staged.also):
            assert _identity(each) in map(_identity, open_transactions(client, each.topic, each.partition))
        assert open_now[0].start_offset == staged.start_offset
        assert lso < high_watermark
        assert lso == staged.start_offset or log_start > staged.start_offset
    if staged.name != "coordinator_gone" and version != "2.8.2":  # away, or without DescribeTransactions
        assert coordinator_state(client, staged) == COORDINATOR[staged.name]
    if staged.expected == "prepared":
        assert described_transaction(client, staged.transactional_id).transaction_timeout_ms == 2**31 - 1


def end_staged(client: BrokerClient, staged: StagedIncident) -> None:
    """Write the markers that are missing, close the incident, and check that nothing is open or held."""
    all_staged = (staged, *staged.also)
    with staged:
        for each in all_staged:
            if each.action in {"abort", "complete"}:
                write_marker(client, each)
    for each in all_staged:
        assert open_transactions(client, each.topic, each.partition) == []
        _, lso, high_watermark = offsets(client, each.topic, each.partition)
        assert lso == high_watermark


def coordinator_state(client: BrokerClient, staged: StagedIncident) -> tuple[str | None, bool]:
    """The state of its transactional id, and whether its partition is listed; null and false without the id."""
    description = described_transaction(client, staged.transactional_id)
    if description is None:
        return None, False
    topic_partitions = {(each.topic, partition) for each in description.topics for partition in each.partitions}
    return description.transaction_state, (staged.topic, staged.partition) in topic_partitions


def write_marker(client: BrokerClient, staged: StagedIncident) -> None:
    """Write a marker with the leader's values; the LSO is then the next transaction's start or the log end."""
    topic_partition = staged.topic, staged.partition
    (open_transaction,) = [
        each for each in open_transactions(client, *topic_partition) if each.producer_id == staged.producer_id
    ]
    marker_type = broker_client.WriteTxnMarkers.WritableTxnMarker
    marker = marker_type(
        producer_id=open_transaction.producer_id,
        producer_epoch=open_transaction.producer_epoch,
        transaction_result=staged.outcome == "commit",
        topics=[marker_type.WritableTxnMarkerTopic(name=staged.topic, partition_indexes=[staged.partition])],
        coordinator_epoch=max(open_transaction.coordinator_epoch, 0),
    )
    send_until_accepted(
        client,
        lambda: broker_client.WriteTxnMarkers(markers=[marker], max_version=1),
        of=staged.name,
        to=lambda: leader(client, *topic_partition),
        codes=lambda message: [message.markers[0].topics[0].partitions[0].error_code],
    )
    remaining = open_transactions(client, *topic_partition)
    assert open_transaction not in remaining
    _, lso, high_watermark = offsets(client, *topic_partition)
    assert lso == min([each.start_offset for each in remaining], default=high_watermark)


def _identity(transaction: LeaderTransaction | StagedIncident) -> tuple[int, int, int]:
    return transaction.producer_id, transaction.producer_epoch, transaction.start_offset
