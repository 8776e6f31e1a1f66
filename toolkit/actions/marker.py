"""An end transaction marker for one partition, and the WriteTxnMarkers request that writes it (KIP-98, KIP-664).

Which epochs a leader accepts was tried on Kafka 2.8.2, 3.3.2, 3.5.2, 3.9.2, 4.0.1, 4.1.2, 4.2.1, 4.3.1 and 4.4.0. It is
the same on all of them, for COMMIT and ABORT, for clients of transaction versions 1 and 2, for every version of the
request (0 and 1 up to 3.9, 1 up to 4.1, 1 and 2 from 4.2 on):

========================================= ==================================================================
in the marker, beside the partition's     the leader
producer state
========================================= ==================================================================
a lower producer epoch                    refuses it: INVALID_PRODUCER_EPOCH
the same producer epoch                   accepts it, unless ``transaction_version`` is 2 (from 4.2 on, KIP-1228):
                                          INVALID_PRODUCER_EPOCH
a higher producer epoch                   accepts it, and from then on refuses the producer's own epoch
a lower coordinator epoch, -1 included    refuses it: TRANSACTION_COORDINATOR_FENCED
the same coordinator epoch                accepts it; where the state has none, any, -1 included
a higher coordinator epoch                accepts it, and from then on refuses the coordinator's real markers
========================================= ==================================================================

So the marker has the epochs of the partition's producer state, and transaction version 0. Source:
``ProducerAppendInfo.checkProducerEpoch`` and ``checkCoordinatorEpoch``. A marker on a partition where the producer has
nothing open is accepted, too, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.errors import ActionFailed
from toolkit.schema.table import Error
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_response import error_text, omitted_text

if TYPE_CHECKING:
    from toolkit.sources.live.client.broker_client import BrokerClient

RIGHT = "The principal needs ALTER on the Cluster (Kafka 3.8 or newer) or CLUSTER_ACTION."
UNCERTAIN = frozenset(
    {
        "INCOMPLETE_RESPONSE",
        "KAFKA_STORAGE_ERROR",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_SERVER_ERROR",
    }
)
"""Errors after which the marker may be in the log: the leader appended it, and its replicas may not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A COMMIT or ABORT marker."""

    # topic, partition: where it goes
    topic: str
    partition: int
    # producer_id, producer_epoch, coordinator_epoch: the partition's producer state; a null coordinator epoch (no
    # marker of this producer so far) is sent as 0
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    is_commit: bool  # COMMIT, or ABORT

    @property
    def kind(self) -> str:
        """``COMMIT`` or ``ABORT``."""
        return "COMMIT" if self.is_commit else "ABORT"

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the marker, by the names of Kafka's WriteTxnMarkers."""
        return {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "transaction_result": self.is_commit,
            "coordinator_epoch": 0 if self.coordinator_epoch is None else self.coordinator_epoch,
            "transaction_version": 0,
        }

    def request(self, leader: int) -> str:
        """The request as text, for the audit trail."""
        fields = ", ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"WriteTxnMarkers to broker {leader}: {fields}"

    def send(self, client: BrokerClient, leader: int) -> str:
        """Send it to the leader, as Kafka's Admin does (AbortTransactionHandler), and return ``NONE`` or the error.

        Raises BrokerError, ConnectionFailed if there is no response: it may have been written.
        """
        of_topic = messages.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic
        marker = messages.WriteTxnMarkers.WritableTxnMarker(
            **self.fields, topics=[of_topic(name=self.topic, partition_indexes=[self.partition])]
        )
        answer = client.send_one(messages.WriteTxnMarkers(markers=[marker]), broker_id=leader)
        codes = [each.error_code for sent in answer.markers for topic in sent.topics for each in topic.partitions]
        if not codes:
            return omitted_text("WriteTxnMarkers", "the marker")
        return error_text(codes[0]) if codes[0] else "NONE"

    def check_response(self, response: str, *, leader: int, target: str, find_out: str) -> None:
        """Raise unless the leader wrote it.

        Raises ActionFailed if it refused the marker, or may have written it all the same.
        """
        code = Error.of(response).code
        if code == "NONE":
            return
        name = f"the {self.kind} marker for {target}"
        if code in UNCERTAIN:
            raise ActionFailed(
                f"Broker {leader} could not complete {name}: {response}.",
                effect="uncertain",
                code=code,
                means="It is uncertain whether it was written.",
                do=find_out,
            )
        raise ActionFailed(
            f"Broker {leader} refused {name}: {response}.",
            effect="nothing",
            code=code,
            means="Nothing was written: the transaction is still open.",
            do=RIGHT if code == "CLUSTER_AUTHORIZATION_FAILED" else "",
        )
