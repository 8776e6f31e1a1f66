"""What `client` uses of kafka-python. If a new kafka-python changes it, these tests fail first and name it."""

import copy
from importlib.metadata import version
from typing import Any

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import error_name

MESSAGES = {
    name: value
    for name, value in vars(broker_client).items()
    if isinstance(value, type) and issubclass(value, ApiMessage) and value is not ApiMessage
}


def test_the_installed_kafka_python_is_a_supported_version() -> None:
    assert version("kafka-python").split(".")[:2] == ["3", "0"]


def test_a_response_is_decoded_from_the_bytes_we_pass() -> None:
    assert issubclass(KafkaBytes, bytearray)
    parser = KafkaProtocol(client_id="contract")
    request = broker_client.ListGroups()
    request.API_VERSION = 0
    number = parser.send_request(request)
    answer = b"".join(each.to_bytes(size, "big") for each, size in ((number, 4), (15, 2), (0, 4)))
    received, message = broker_client.decode_response(parser, bytearray(answer))
    assert (received, message.error_code, message.groups) == (number, 15, [])


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "NONE"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
        (14, "COORDINATOR_LOAD_IN_PROGRESS"),
        (29, "TOPIC_AUTHORIZATION_FAILED"),
        (35, "UNSUPPORTED_VERSION"),
        (48, "INVALID_TXN_STATE"),
        (52, "TRANSACTION_COORDINATOR_FENCED"),
        (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (54, "SECURITY_DISABLED"),
        (105, "TRANSACTIONAL_ID_NOT_FOUND"),
        (120, "TRANSACTION_ABORTABLE"),
        (4711, "ERROR_4711"),
    ],
)
def test_error_codes_have_kafkas_names(code: int, name: str) -> None:
    assert error_name(code) == name


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_messages_encode_at_every_supported_version(message: Any) -> None:
    assert len(MESSAGES) == 27
    request = message(max_version=message.max_version)
    versions = BrokerVersionData(api_versions={message.API_KEY: (0, 99)})
    assert versions.api_version(request) == message.max_version
    assert versions.api_version(message(max_version=0)) == 0


def test_a_field_that_a_version_lacks_is_left_out() -> None:
    filtered = broker_client.ListTransactions(duration_filter=7, transactional_id_pattern="a.*").encode(version=0)
    assert filtered == broker_client.ListTransactions().encode(version=0)
    assert broker_client.ListTransactions(duration_filter=7).encode(
        version=1
    ) != broker_client.ListTransactions().encode(version=1)


PARTITIONS = {"orders": [0, 7], "a" * 200: list(range(300)), "ñ": [2**31 - 1]}


def test_requests_of_many_partitions_are_encoded_as_kafka_python_does() -> None:
    fields = {"timestamp": -2, "replica_id": -2, "isolation_level": 1, "timeout_ms": 30_000}
    for number in range(1, broker_client.ListOffsets.max_version + 1):
        request = broker_client.ListOffsets(partitions=PARTITIONS, **fields)
        request.API_VERSION = number
        request.with_header(correlation_id=9, client_id="contract")
        ours = copy.copy(request).encode(header=True, framed=True)
        assert ours[4:] == request.encode(header=True)
        assert int.from_bytes(ours[:4], "big") == len(ours) - 4
