"""A torn transaction, staged as Jepsen found it on Kafka in 2024 (Bufstream 0.1.0): the other half is committed."""

import uuid
from collections.abc import Iterator

import pytest

from tests.causes import cause_names
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.lab_source import create_topic

pytestmark = pytest.mark.lab


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


def test_a_delayed_end_of_a_transaction_commits_half_of_the_next_one(kafka: Kafka, cluster: Cluster) -> None:
    """The hint says so, and the producer's own commit returns success."""
    topic = f"torn-{uuid.uuid4().hex[:6]}"
    create_topic(kafka, topic)
    producer = TxnProducer(cluster.client, topic).init()
    producer.add(topic, 0, 1)
    for partition in (0, 1):
        producer.send(topic, partition)
    producer.end(commit=True)

    producer.add(topic, 0, 1)
    first_half = producer.send(topic, 0)
    producer.end(commit=True)  # the request of the transaction before, sent again and delayed: all of it is the same
    other_half = producer.send(topic, 1)
    producer.end(commit=True)  # its own

    rows = cluster.finding_rows(topics=[topic], recheck_after=0.1)
    committed, torn = sorted(rows, key=lambda row: row["partition"])
    assert (committed["verdict"], torn["verdict"], torn["outcome"]) == ("clear", "hanging", "undecided")
    assert committed["last_stable_offset"] == first_half + 2, "the record and the marker of its first half"
    assert torn["start_offset"] == other_half
    assert cause_names(torn) == ["late-after-commit", "torn-transaction"]
    assert "may have committed the first half of the same transaction" in torn["cause"]
