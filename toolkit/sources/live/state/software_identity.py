"""What the brokers of a cluster show of their software, from responses that are there already; nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.analysis.broker_software import BrokerIdentity, software_gaps
from toolkit.sources.live.client.broker_client import BrokerClient


def broker_identities(client: BrokerClient, brokers: Iterable[int]) -> list[BrokerIdentity]:
    """What each broker shows, if there was a connection to it."""
    addresses, cluster_id = client.brokers, client.cluster_id
    return [
        BrokerIdentity(
            broker_id=broker_id,
            host=addresses.get(broker_id, "").rpartition(":")[0],
            cluster_id=cluster_id,
            apis=apis,
        )
        for broker_id in brokers
        if (apis := client.apis(broker_id)) is not None
    ]


def coordinator_software_gaps(client: BrokerClient, brokers: Iterable[int]) -> list[str]:
    """Gaps of `Coverage`: brokers that are not proven to be Apache Kafka.

    A broker without a connection did not answer ListTransactions, which is a gap already.
    """
    return software_gaps(broker_identities(client, brokers))
