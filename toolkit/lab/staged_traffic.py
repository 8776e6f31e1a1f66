"""An incident between committed records: a group reads those before it, and not those after it."""

from __future__ import annotations

from typing import Any

from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.lab.producer import write_committed
from toolkit.lab.queries import config_of
from toolkit.lab.server.broker import Kafka
from toolkit.sources.live.client.broker_client import BrokerClient

BEFORE, BEHIND = 12, 20  # committed records before and after the open transaction


def stage_between(kafka: Kafka, name: str, *, topic: str, group: str) -> StagedIncident:
    """Stage an incident on partition 0 of a new topic, between records that a read_committed group reads.

    Parameters
    ----------
    kafka
        The cluster.
    name
        Incident of one broker.
    topic
        New topic with two partitions.
    group
        Group that reads and commits before the incident.

    Raises
    ------
    LabError
        As for the incident.
    """
    options: dict[str, Any] = {"group": group} if name == "offsets_never_added" else {}
    create_topic(kafka, topic)
    with BrokerClient(config_of(kafka)) as cluster:
        write_committed(cluster, topic, 0, records=BEFORE)
        blocked_consumer(kafka, topic, group).close()
        staged = INCIDENTS[name](kafka, topic=topic, **options)
        write_committed(cluster, topic, 0, records=BEHIND)
    return staged


def create_topic(kafka: Kafka, topic: str) -> None:
    """Create a topic with two partitions of one replica."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)
