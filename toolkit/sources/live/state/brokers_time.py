"""Read the brokers' time: the clock of the KRaft leader (KIP-836), or the newest record that a coordinator wrote.

A broker forwards DescribeQuorum to the active controller, which answers its own current time as that of its own replica
(``RaftUtil.toReplicaState``); it needs DESCRIBE on the cluster. The records of ``__transaction_state`` and
``__consumer_offsets`` have the times of the coordinators' clocks: the newest one is at most the time now.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from toolkit.analysis.diagnosis.observation import CLOCK_OF, CLOCKS_DIFFER, BrokersTime, clocks_apart
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import utc
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.live.state.leaders import ClusterMetadata, batches_by_leader

COORDINATORS_TOPICS = (STATE_TOPIC, OFFSETS_TOPIC)
METADATA_TOPIC = "__cluster_metadata"
MAX_TIMESTAMP = -3  # of ListOffsets, from version 7 on (KIP-734)
QUORUM_TIMEOUT_S = 5.0  # brokers wait for a controller: the time is not worth more


def read_brokers_time(client: BrokerClient, metadata: ClusterMetadata) -> BrokersTime:
    """Read the brokers' time; nothing is changed.

    `metadata`: that of `COORDINATORS_TOPICS`, or of one of them.
    """
    newest = _newest_record(client, metadata)
    sent = time.monotonic()
    (response,) = client.send([(None, _quorum_request())], timeout=min(client.timeout, QUORUM_TIMEOUT_S))
    clock = _controllers_clock(response, elapsed=dt.timedelta(seconds=time.monotonic() - sent))
    if clock.time is None:
        return BrokersTime(error=clock.error) if newest is None else _of_record(*newest, response)
    if newest is not None and newest[1] > clock.time + CLOCKS_DIFFER:
        return clocks_apart(_record_name(newest[0]), newest[1], clock)
    return clock


def _quorum_request() -> Any:
    topic = messages.DescribeQuorum.TopicData
    partition = topic.PartitionData(partition_index=0)
    return messages.DescribeQuorum(topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])], min_version=1)


def _controllers_clock(response: BrokerResponse, *, elapsed: dt.timedelta) -> BrokersTime:
    """The leader's time in a response that took so long; it may be from any time in between."""
    if error := response.failure:
        return BrokersTime(error=f"DescribeQuorum: {error}")
    partitions = [each for topic in response.message.topics for each in topic.partitions]
    for each in partitions:
        if each.error_code:
            return BrokersTime(error=f"DescribeQuorum: {error_text(each.error_code)}")
        for replica in (*each.current_voters, *each.observers):
            if replica.replica_id == each.leader_id and (now := utc(replica.last_caught_up_timestamp)) is not None:
                ahead = response.observed_at - now
                return BrokersTime(
                    time=now,
                    source=f"{CLOCK_OF}controller {each.leader_id}",
                    is_current=True,
                    machine_ahead=dt.timedelta(0) if dt.timedelta(0) <= ahead <= elapsed + CLOCKS_DIFFER else ahead,
                )
    return BrokersTime(error="DescribeQuorum: no time of the leader was returned")


def _newest_record(client: BrokerClient, metadata: ClusterMetadata) -> tuple[TopicPartition, dt.datetime] | None:
    """The partition with the newest record of a coordinator, and its time; null if none could be read."""
    leaders = {tp: each for tp, each in metadata.partitions.items() if tp.topic in COORDINATORS_TOPICS}
    timeout_ms = int(client.timeout * 1000)
    responses = client.send(
        [
            (
                leader,
                messages.ListOffsets(
                    partitions=batch, timestamp=MAX_TIMESTAMP, timeout_ms=timeout_ms, replica_id=-1, isolation_level=0,
                    min_version=7,
                ),
            )
            for leader, batch in batches_by_leader(leaders)
        ]
    )  # fmt: skip
    found = [
        (TopicPartition(topic.name, each.partition_index), each.timestamp)
        for response in responses
        if not response.error
        for topic in response.message.topics
        for each in topic.partitions
        if each.error_code == 0 and each.timestamp >= 0
    ]
    if not found:
        return None
    tp, milliseconds = max(found, key=lambda each: each[1])
    newest = utc(milliseconds)
    return None if newest is None else (tp, newest)


def _of_record(tp: TopicPartition, written: dt.datetime, response: BrokerResponse) -> BrokersTime:
    """A time that brokers have reached; this machine's clock can only be seen to be behind it."""
    behind = min(response.observed_at - written, dt.timedelta(0))
    return BrokersTime(time=written, source=_record_name(tp), machine_ahead=behind)


def _record_name(tp: TopicPartition) -> str:
    return f"the newest record of {tp.topic}-{tp.partition}"
