"""What the coordinators have written down, over the network."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from toolkit import Cluster
from toolkit.errors import NotFound
from toolkit.formats.coordinator_records import coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.sources.live import coordinator_logs
from toolkit.sources.live.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.leaders import read_partitions

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


def test_only_the_newest_records_of_each_partition(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["late_message"](kafka) as staged:
        topic_partitions = read_coordinator_topic(cluster.client, "__transaction_state")
        number = coordinator_partition(staged.transactional_id, 50)
        newest = list(transaction_log_records(cluster.client, topic_partitions, [number], newest=2))
        every = list(transaction_log_records(cluster.client, topic_partitions, [number]))
    assert newest == every[-2:]
    assert newest[-1].state == "CompleteAbort"


def test_missing_logs(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["never_added"](kafka):
        with pytest.raises(NotFound, match=r"^Topic '__transaction_state' has no partition 50: it has 0 to 49"):
            cluster.transaction_log(partitions=[0, 50])
        assert cluster.transaction_log(transactional_ids=["nobody"]).empty


def test_a_partition_without_leader_is_an_error_row(
    cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "LEADER_NOT_AVAILABLE: the partition has no leader"
    with INCIDENTS["never_added"](kafka) as staged:
        number = coordinator_partition(staged.transactional_id, 50)
        leaderless = (number + 1) % 50
        ask = read_partitions
        monkeypatch.setattr(
            coordinator_logs,
            "read_partitions",
            lambda client, leaders: [
                replace(each, error=error, leader=None) if each.partition == leaderless else each
                for each in ask(client, leaders)
            ],
        )
        frame = cluster.transaction_log(partitions=[leaderless, number])
    assert frame[frame["error"].notna()]["txn_state_partition"].tolist() == [leaderless]
    assert staged.transactional_id in set(frame["transactional_id"])
