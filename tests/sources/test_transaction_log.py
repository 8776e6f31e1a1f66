"""``__transaction_state`` instead of coordinators: for old brokers, and for columns that no response has."""

import uuid
from collections.abc import Iterator

import pytest

from toolkit import Cluster
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema.table import Error
from toolkit.sources.live.coordinators import CoordinatorTopic
from toolkit.sources.live.transactions import TransactionLog, read_state_log

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def old() -> Iterator[Cluster]:
    """Kafka 2.8, which has neither ListTransactions nor DescribeTransactions."""
    with (
        Kafka("2.8.2", properties=EVERYDAY.properties) as kafka,
        Cluster(kafka.bootstrap_servers, timeout=20) as cluster,
    ):
        yield cluster


def read(cluster: Cluster, *, timeout: float = 20, only: set[int] | None = None) -> TransactionLog:
    topic_partitions = CoordinatorTopic.read(cluster.client, STATE_TOPIC)
    return read_state_log(cluster.client, topic_partitions, only=only, timeout=timeout)


def test_filters_give_the_same_rows_from_the_log(old: Cluster) -> None:
    name = uuid.uuid4().hex
    idle = TxnProducer(old.client, f"{name}-idle").init()
    topic = f"filters-{name[:6]}"
    with INCIDENTS["open_young"](old.config, topic=topic):
        busy = TxnProducer(old.client, f"{name}-busy").init()
        busy.add(topic, 1)

        def ids(**filters: object) -> list[str]:
            rows = old.transaction_rows(**filters)  # type: ignore[arg-type]
            return [row["transactional_id"] for row in rows if row["transactional_id"] is not None]

        assert ids(transactional_id_pattern=f"{name}.*") == [busy.transactional_id, idle.transactional_id]
        assert ids(transactional_id_pattern=name) == []
        assert ids(producer_ids=[idle.producer_id]) == [idle.transactional_id]
        assert busy.transactional_id in ids(states=["Ongoing"])
        assert idle.transactional_id not in ids(states=["Ongoing"])
        assert ids(transactional_id_pattern=f"{name}.*", min_duration_ms=0) == [busy.transactional_id]
        # No broker's clock is known: nothing rules out that the newest record is an hour old.
        assert ids(transactional_id_pattern=f"{name}.*", min_duration_ms=3_600_000) == [busy.transactional_id]
        rows = old.transaction_rows(transactional_id_pattern=f"{name}.*", min_duration_ms=3_600_000)
        (why,) = [row["error"] for row in rows if "UNKNOWN_DURATION" in (row["error"] or "")]
        assert why.startswith(
            "UNKNOWN_DURATION: ids of a shorter duration may be listed, too: the brokers' time is at least "
        )
        busy.end(commit=False)


def test_a_timeout_of_the_read_is_an_error_and_no_proof(old: Cluster) -> None:
    TxnProducer(old.client, "makes-the-topic").init()
    log = read(old, timeout=0)
    assert not log.is_complete
    assert {Error.of(each.error).code for each in log.failures} == {"REQUEST_TIMED_OUT"}
    assert log.partitions + len(log.failures) == 50


def test_the_newest_record_wins_and_matches_the_coordinator(kafka: Kafka) -> None:
    with Cluster(kafka.bootstrap_servers, timeout=20) as cluster, INCIDENTS["busy_elsewhere"](kafka):
        reported = {row["transactional_id"]: row for row in cluster.transaction_rows()}
        log = read(cluster)
    assert log.is_complete
    written = {each.transactional_id: each.row() for each in log.transactions}
    assert written.keys() == reported.keys()
    columns = ("producer_id", "producer_epoch", "state", "timeout_ms", "start_time", "topic_partitions")
    for name, row in reported.items():
        assert {c: written[name][c] for c in columns} == {c: row[c] for c in columns}, name


def test_selected_partitions_can_be_read(kafka: Kafka) -> None:
    with Cluster(kafka.bootstrap_servers, timeout=20) as cluster:
        producer = TxnProducer(cluster.client, uuid.uuid4().hex).init()
        (row,) = cluster.transaction_rows(transactional_ids=[producer.transactional_id])
        log = read(cluster, only={row["txn_state_partition"]})
    assert log.partitions == 1
    assert producer.transactional_id in {each.transactional_id for each in log.transactions}
    assert {each.txn_state_partition for each in log.transactions} == {row["txn_state_partition"]}
