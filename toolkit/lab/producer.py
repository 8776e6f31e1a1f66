"""A transactional producer that sends every request explicitly, so that it can also do what a correct one never does.

By default it behaves like clients before transaction version 2 (the epoch stays from one transaction to the next),
which every broker from 2.8 to 4.x still accepts. With ``transaction_version=2`` it behaves like a Java client of 4.0 or
newer: its writes add the partition to the transaction, and each end brings the next epoch.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from toolkit.formats.log.batches import write_batch
from toolkit.lab.queries import coordinator, leader, send_until_accepted
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient


class TxnProducer:
    """A transactional id and its producer id; every step is one request.

    Parameters
    ----------
    cluster
        The client to send with.
    transactional_id
        Transactional id.
    timeout_ms
        Transaction timeout.
    transaction_version
        1, or 2 (KIP-890, brokers from 4.0 on).

    Raises
    ------
    Refused
        From every step, with the Kafka error. Transient errors (a coordinator that loads, a marker still being written)
        are retried.

    Examples
    --------
    >>> producer = TxnProducer(cluster, "payments").init()  # doctest: +SKIP
    >>> producer.add("orders", 0)  # doctest: +SKIP
    >>> producer.send("orders", 0)  # doctest: +SKIP
    0
    >>> producer.end(commit=True)  # doctest: +SKIP
    """

    def __init__(
        self, cluster: BrokerClient, transactional_id: str, *, timeout_ms: int = 600_000, transaction_version: int = 1
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.transaction_version = transaction_version
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, *, two_phase: bool = False) -> TxnProducer:
        """InitProducerId: get a producer id, or the next epoch, which fences the one before.

        `two_phase`: use two-phase commit (KIP-939), which needs version 6 of the request.
        """
        init_request = {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}
        response = self._ask(
            lambda: (
                messages.InitProducerId(**init_request, enable2_pc=True, min_version=6)
                if two_phase
                else messages.InitProducerId(**init_request, max_version=2)
            ),
            codes=lambda message: [message.error_code],
        )
        self._adopt(response)
        return self

    def add(self, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn: add the partition to the transaction; in transaction version 2, `send` does that."""
        if self.transaction_version == 2:
            return
        request = messages.AddPartitionsToTxn
        self._ask(
            lambda: request(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.producer_epoch,
                v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
                max_version=3,
            ),
            codes=lambda message: [
                each.partition_error_code
                for found in message.results_by_topic_v3_and_below
                for each in found.results_by_partition
            ],
        )

    def send(self, topic: str, partition: int, *, records: int = 1, timestamp: dt.datetime | None = None) -> int:
        """Produce one batch with the next sequence number, and return its base offset.

        `topic`, `partition`: the partition; the caller decides whether the coordinator knows of it.
        `records`: number of records.
        `timestamp`: the client's clock; now if null.
        """
        sequence = self._sequences.get((topic, partition), 0)
        key = self.transactional_id.encode()
        batch = write_batch(
            [(key, b"record %d" % number) for number in range(sequence, sequence + records)],
            timestamp=timestamp or dt.datetime.now(dt.UTC),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = messages.Produce.TopicProduceData
        produced = self._ask(
            lambda: messages.Produce(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    request(name=topic, partition_data=[request.PartitionProduceData(index=partition, records=batch)])
                ],
                **({"min_version": 12, "max_version": 12} if self.transaction_version == 2 else {"max_version": 8}),
            ),
            to=lambda: leader(self.cluster, topic, partition),
            codes=lambda message: [message.responses[0].partition_responses[0].error_code],
        )
        self._sequences[topic, partition] = sequence + records
        return int(produced.responses[0].partition_responses[0].base_offset)

    def add_offsets(self, group: str) -> None:
        """AddOffsetsToTxn: add a group's partition of ``__consumer_offsets`` to the transaction."""
        self._ask(
            lambda: messages.AddOffsetsToTxn(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=group,
                max_version=3,
            ),
            codes=lambda message: [message.error_code],
        )

    def commit_offset(self, group: str, topic: str, partition: int, *, offset: int) -> None:
        """TxnOffsetCommit: write a group's offset as part of the transaction; the group needs no members."""
        request = messages.TxnOffsetCommit.TxnOffsetCommitRequestTopic
        one = request.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        self._ask(
            lambda: messages.TxnOffsetCommit(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[request(name=topic, partitions=[one])],
                max_version=3,
            ),
            to=lambda: coordinator(self.cluster, group, group=True),
            codes=lambda message: [message.topics[0].partitions[0].error_code],
        )

    def decide(self, *, commit: bool) -> None:
        """EndTxn: let the coordinator decide; returns before the markers are written."""
        ended = self._end_txn(commit=commit)
        if self.transaction_version == 2:
            self._adopt(ended)

    def end(self, *, commit: bool) -> None:
        """End the transaction, and return when every marker is written."""
        self._end_txn(commit=commit)
        # Until then, a repeated request fails with CONCURRENT_TRANSACTIONS.
        ended = self._end_txn(commit=commit)
        if self.transaction_version == 2:
            self._adopt(ended)

    def _end_txn(self, *, commit: bool) -> Any:
        return self._ask(
            lambda: messages.EndTxn(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
                **({"min_version": 5} if self.transaction_version == 2 else {"max_version": 3}),
            ),
            codes=lambda message: [message.error_code],
        )

    def _adopt(self, response: Any) -> None:
        """Producer id and epoch of an InitProducerId or EndTxn response, whose sequences begin anew."""
        self.producer_id, self.producer_epoch = int(response.producer_id), int(response.producer_epoch)
        self._sequences.clear()

    def _ask(
        self, request: Callable[[], Any], *, codes: Callable[[Any], Iterable[int]], to: Callable[[], int] | None = None
    ) -> Any:
        return send_until_accepted(
            self.cluster,
            request,
            of=f"{self.transactional_id!r} (producer {self.producer_id}, epoch {self.producer_epoch})",
            codes=codes,
            to=to or (lambda: coordinator(self.cluster, self.transactional_id)),
        )


def write_committed(cluster: BrokerClient, topic: str, partition: int, *, records: int = 1) -> int:
    """Write records in a new transaction, commit it, and return the offset of the first record."""
    producer = TxnProducer(cluster, f"healthy-{uuid.uuid4().hex[:6]}").init()
    producer.add(topic, partition)
    offset = producer.send(topic, partition, records=records)
    producer.end(commit=True)
    return offset
