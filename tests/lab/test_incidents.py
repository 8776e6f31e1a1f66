"""What incidents do to consumers and groups on a real broker; `tests.test_incident_matrix` stages all of them."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.brokers import NEWEST, on_cluster
from tests.staged_state import COORDINATOR, write_marker
from toolkit.errors import BrokerError, ConnectionFailed, LabError, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import (
    BlockedConsumer,
    RequestRefused,
    SteadyClient,
    TxnProducer,
    config_of,
    offsets,
    open_transactions,
    until,
    write_committed,
)
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, ClusterSetup
from toolkit.schema.verdict import Verdict
from toolkit.sources.live.broker_client import BrokerClient


@pytest.fixture
def cluster(lab: Kafka) -> Iterator[BrokerClient]:
    """A client that queries broker 1, which no incident stops."""
    with SteadyClient(config_of(lab)) as client:
        yield client


def on_setup(setup: ClusterSetup) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lab", [on_cluster(NEWEST, setup, id=setup.name)], indirect=True)


def test_what_a_busy_broker_did_not_answer_in_time_is_asked_again() -> None:
    """One ElectLeaders that timed out on a busy machine failed a test of minutes."""
    failures = [
        BrokerError("Broker 1 at kafka:9092 did not answer ElectLeaders in time.", code="REQUEST_TIMED_OUT"),
        ConnectionFailed("The broker at kafka:9092 closed the connection.", do="Check it."),
        KafkaException(KafkaError(KafkaError._TIMED_OUT)),
        KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)),
        BrokerError("It does not support ElectLeaders.", code="UNSUPPORTED_VERSION"),
    ]

    def query() -> None:
        raise failures.pop(0)

    with pytest.raises(BrokerError, match="does not support"):
        until(query, awaited="an answer")
    assert failures == []


@pytest.mark.lab
@on_setup(EVERYDAY)
def test_a_read_committed_consumer_is_blocked_until_the_marker(lab: Kafka, cluster: BrokerClient) -> None:
    staged = INCIDENTS["late_message"](lab)
    base_offset = write_committed(cluster, staged.topic, staged.partition, records=3)
    with BlockedConsumer(lab, staged.topic, "billing") as billing:
        assert billing.position == staged.start_offset - 3, "an aborted record and two markers precede it"
        assert billing.lag == 3 + 1 + 3 + 1, "those three, the late record, three committed records, a marker"
        assert billing.read() == [], "its position does not change"
        write_marker(cluster, staged)
        assert [record.offset() for record in billing.read()] == [base_offset, base_offset + 1, base_offset + 2]
        assert billing.lag == 2, "two markers"


@pytest.mark.lab
@on_setup(EVERYDAY)
def test_a_transaction_still_hangs_with_all_its_records_deleted(lab: Kafka, cluster: BrokerClient) -> None:
    staged = INCIDENTS["head_deleted"](lab, all_of_it=True)
    end = staged.start_offset + 7
    assert offsets(cluster, staged.topic, staged.partition) == (end, end, end), "as if nothing were open"
    write_committed(cluster, staged.topic, staged.partition)
    assert offsets(cluster, staged.topic, staged.partition) == (end, end, end + 2), "records committed later are held"
    write_marker(cluster, staged)


@pytest.mark.lab
@on_setup(EVERYDAY)
def test_refused_requests_have_kafkas_error_names(lab: Kafka, cluster: BrokerClient) -> None:
    with INCIDENTS["open_young"](lab) as staged:
        fenced = TxnProducer(cluster, staged.transactional_id)
        fenced.producer_id, fenced.producer_epoch = staged.producer_id, staged.producer_epoch
        TxnProducer(cluster, staged.transactional_id).init()
        with pytest.raises(RequestRefused, match=r"EndTxn.*PRODUCER_FENCED.*is fenced") as error:
            fenced.end(commit=True)
        assert error.value.error == "PRODUCER_FENCED"
    with pytest.raises(RequestRefused, match=r"EndTxn.*INVALID_TXN_STATE.*no open transaction to end"):
        TxnProducer(cluster, "idle").init().end(commit=True)
    with pytest.raises(LabError, match=r"INVALID_TRANSACTION_TIMEOUT.*Raise transaction\.max\.timeout\.ms"):
        INCIDENTS["open_long"](lab, timeout_ms=3_600_001)


@pytest.mark.lab
@on_setup(EVERYDAY)
def test_an_incident_is_staged_on_the_requested_partition(lab: Kafka, cluster: BrokerClient) -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    first = INCIDENTS["never_added"](lab.bootstrap_servers, topic=topic, partition=2, records=5)
    second = INCIDENTS["never_added"](lab.client_config(), topic=topic, partition=2)
    assert (first.topic, first.partition, second.topic, second.partition) == (topic, 2, topic, 2)
    assert second.start_offset == first.start_offset + 5
    assert open_transactions(cluster, topic, 0) == []


@pytest.mark.lab
def test_a_verifying_broker_rejects_hanging_transactions() -> None:
    """KIP-890: why hanging transactions are rare from Kafka 3.6 on."""
    with Kafka(NEWEST) as kafka:
        for name in ("never_added", "late_message", "offsets_never_added", "superseded_elsewhere"):
            with pytest.raises(
                RequestRefused, match=r"INVALID_TXN_STATE.*KIP-890.*verification\.enable=false"
            ) as error:
                INCIDENTS[name](kafka)
            assert error.value.error == "INVALID_TXN_STATE"
        INCIDENTS["open_young"](kafka).close()


def test_the_registry_has_known_verdicts() -> None:
    assert INCIDENTS.keys() == COORDINATOR.keys()
    for incident in INCIDENTS.values():
        assert {incident.expected, incident.later or "clear"} <= set(Verdict)
        assert incident.what.endswith("."), f"{incident.name} has a one-line description"


def test_an_unsuitable_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="committing stops brokers"):
        INCIDENTS["committing"]("127.0.0.1:1")
    with pytest.raises(UsageError, match="committing needs 2 brokers, and this Kafka has 1"):
        INCIDENTS["committing"](Kafka("4.3.1"))
    with pytest.raises(UsageError, match=r"prepared can be staged from Kafka 4\.0\.0 on, and this one is 3\.9\.2"):
        INCIDENTS["prepared"](Kafka("3.9.2"))
