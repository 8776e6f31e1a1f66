"""Long responses decoded from their bytes, held against kafka-python's own decoding of every version."""

from base64 import urlsafe_b64encode
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeProducersResponse, ListTransactionsResponse
from kafka.protocol.consumer import ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse

from tests.tiers import fuzzed
from toolkit.errors import DecodeError
from toolkit.formats.bulk_messages import APIS, ResponseApi, decode
from toolkit.formats.bulk_messages import DescribeProducersResponse as DescribeProducers
from toolkit.formats.bulk_messages import ListOffsetsResponse as ListOffsets

MESSAGES = {each.API_KEY: each for each in (ListOffsetsResponse, MetadataResponse, DescribeProducersResponse,
                                            ListTransactionsResponse)}  # fmt: skip
each_key = pytest.mark.parametrize("key", APIS, ids=[api.name for api in APIS.values()])
each_api = pytest.mark.parametrize(("key", "api"), APIS.items(), ids=[api.name for api in APIS.values()])

int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
texts = st.text(max_size=5) | st.text("añ€", min_size=60, max_size=140)  # of one and of two bytes of length
states = st.sampled_from(["Ongoing", "CompleteCommit", "PrepareEpochFence", "NewInSomeVersion", ""])


def several(message: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.builds(message, **fields), max_size=3)


nodes = st.lists(int32, max_size=3)
topic = MetadataResponse.MetadataResponseTopic


def partitions_of(
    replicas: st.SearchStrategy[list[int]], isr: st.SearchStrategy[list[int]], offline: st.SearchStrategy[list[int]]
) -> st.SearchStrategy[list[Any]]:
    return several(
        topic.MetadataResponsePartition,
        error_code=int16, partition_index=int32, leader_id=int32, leader_epoch=int32,
        replica_nodes=replicas, isr_nodes=isr, offline_replicas=offline,
    )  # fmt: skip


listed = ListOffsetsResponse.ListOffsetsTopicResponse
described = DescribeProducersResponse.TopicResponse
FIELDS: dict[int, dict[str, st.SearchStrategy[Any]]] = {
    2: {
        "topics": several(
            listed,
            name=texts,
            partitions=several(
                listed.ListOffsetsPartitionResponse,
                partition_index=int32, error_code=int16, timestamp=int64, offset=int64, leader_epoch=int32,
            ),
        )
    },
    3: {
        "brokers": several(
            MetadataResponse.MetadataResponseBroker,
            node_id=int32, host=texts, port=int32, rack=st.none() | texts,
        ),
        "cluster_id": st.none() | texts,
        "controller_id": int32,
        "error_code": int16,
        "topics": several(
            topic,
            error_code=int16,
            name=texts,
            topic_id=st.uuids(),
            is_internal=st.booleans(),
            partitions=partitions_of(nodes, nodes, nodes)
            | st.integers(0, 3).map(lambda replicas: st.lists(int32, min_size=replicas, max_size=replicas)).flatmap(
                lambda alike: partitions_of(alike, alike, st.just([]))  # as nearly always
            ),
        ),
    },
    61: {
        "topics": several(
            described,
            name=texts,
            partitions=several(
                described.PartitionResponse,
                partition_index=int32,
                error_code=int16,
                error_message=st.none() | texts,
                active_producers=several(
                    described.PartitionResponse.ProducerState,
                    producer_id=int64, producer_epoch=int32, last_sequence=int32, last_timestamp=int64,
                    coordinator_epoch=int32, current_txn_start_offset=int64,
                ),
            ),
        )
    },
    66: {
        "error_code": int16,
        "unknown_state_filters": st.lists(texts, max_size=2),
        "transaction_states": several(
            ListTransactionsResponse.TransactionState,
            transactional_id=texts, producer_id=int64, transaction_state=states,
        ),
    },
}  # fmt: skip


def encoded(key: int, data: st.DataObject) -> tuple[int, bytes]:
    """Any version, and what kafka-python makes of a message in it."""
    version = data.draw(st.sampled_from(APIS[key].versions), label="version")
    fields = {name: data.draw(strategy, label=name) for name, strategy in FIELDS[key].items()}
    message = MESSAGES[key](throttle_time_ms=data.draw(int32), **fields)
    message.API_VERSION = version
    message.with_header(correlation_id=7)
    return version, bytes(message.encode(header=True))


def same(ours: Any, theirs: Any) -> bool:
    """Whether each field is kafka-python's; it groups partitions by topic, and our decoder has them in one list."""
    if isinstance(ours, ListOffsets | DescribeProducers):
        topics = [topic.name for topic in theirs.topics for _ in topic.partitions]
        listed = [each for topic in theirs.topics for each in topic.partitions]
        return (
            ours.throttle_time_ms == theirs.throttle_time_ms
            and [each.topic for each in ours.partitions] == topics
            and all(same_fields(each, one, but="topic") for each, one in zip(ours.partitions, listed, strict=True))
        )
    if isinstance(theirs, UUID):
        return bool(ours == (urlsafe_b64encode(theirs.bytes).rstrip(b"=").decode() if theirs.int else None))
    if hasattr(ours, "_fields"):
        return same_fields(ours, theirs, but="API_VERSION")
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(list(ours) == list(theirs) if isinstance(ours, tuple) else ours == theirs)


def same_fields(ours: Any, theirs: Any, *, but: str) -> bool:
    return all(same(getattr(ours, name), getattr(theirs, name)) for name in ours._fields if name != but)


@each_key
@fuzzed(100)
@given(data=st.data())
def test_every_field_matches_kafka_python(key: int, data: st.DataObject) -> None:
    version, response = encoded(key, data)
    number, ours = decode(response, api_key=key, version=version)
    theirs = MESSAGES[key].decode(response, version=version, header=True)
    assert (number, ours.API_VERSION) == (7, version)
    assert same(ours, theirs)


@each_key
@fuzzed(100)
@given(data=st.data())
def test_a_truncated_or_longer_response_is_rejected(key: int, data: st.DataObject) -> None:
    version, response = encoded(key, data)
    cut = data.draw(st.integers(0, len(response) - 1), label="cut")
    for damaged in (response[:cut], response + b"\0"):
        with pytest.raises(DecodeError):
            decode(damaged, api_key=key, version=version)


@each_key
@fuzzed(100)
@given(data=st.data())
def test_damaged_responses_are_rejected_or_match_kafka_python(key: int, data: st.DataObject) -> None:
    version, whole = encoded(key, data)
    response = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        response[data.draw(st.integers(4, len(response) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, ours = decode(response, api_key=key, version=version)
    except DecodeError:
        return
    assert same(ours, MESSAGES[key].decode(bytes(response), version=version, header=True))


def test_tagged_fields_are_skipped() -> None:
    """No broker sends any in these responses today."""
    tags = bytes([1, 5, 2, 9, 9])  # one field, number 5, of two bytes
    name = b"\x02a"
    offset = bytes.fromhex("00000003 0000 ffffffffffffffff 000000000000002a 00000007")
    for last in (b"\0", tags):
        topics = b"\x02" + name + b"\x03" + offset + tags + offset + last + tags
        _, message = decode(bytes(4) + tags + bytes(4) + topics + tags, api_key=2, version=11)
        assert message.partitions == [("a", 3, 0, -1, 42, 7)] * 2
    states = b"\x03" + (name + bytes(7) + b"\x09\x08Ongoing" + tags) * 2
    _, message = decode(bytes(4) + tags + bytes(6) + b"\x01" + states + tags, api_key=66, version=2)
    assert message.transaction_states == [("a", 9, "Ongoing")] * 2


@each_api
def test_every_negotiable_version_is_supported(key: int, api: ResponseApi) -> None:
    """kafka-python agrees with a broker on the newest version that both know."""
    assert api.versions[-1] == MESSAGES[key].max_version
    with pytest.raises(DecodeError, match=rf"^Version {api.versions[-1] + 1} of {api.name} is not known\.$"):
        decode(bytes(100), api_key=key, version=api.versions[-1] + 1)
