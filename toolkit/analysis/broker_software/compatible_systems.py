"""Systems that speak Kafka's protocol and end transactions by rules of their own, or copy other clusters' bytes.

For each: what tells it apart, and its own remedy for a transaction that nobody ends. None of them was tested here; the
pages that each row is taken from are on the page "Brokers that are not Apache Kafka" of the docs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleSystem:
    """A system other than Apache Kafka.

    Parameters
    ----------
    name
        Its name.
    differs, remedy
        Sentences: why an absent owner proves nothing there, and how a transaction without an owner is ended.
    cluster_id
        How its cluster ids begin.
    hosts
        How host names of its brokers end.
    api_keys
        API keys that only it has.
    """

    name: str
    differs: str
    remedy: str
    cluster_id: str | None = None
    hosts: tuple[str, ...] = ()
    api_keys: Sequence[int] = ()


SYSTEMS: Sequence[CompatibleSystem] = (
    CompatibleSystem(
        name="Redpanda",
        cluster_id="redpanda.",
        hosts=(".redpanda.com",),
        api_keys=(15_000,),
        differs="Its partitions may end a transaction that its coordinator has lost.",
        remedy="Use `rpk cluster txn`, or mark_transaction_expired of its Admin API.",
    ),
    CompatibleSystem(
        name="Confluent Server or Confluent Cloud",
        hosts=(".confluent.cloud", ".confluentgov.com"),
        api_keys=(*range(10_000, 11_000), 32_766, 32_767),
        differs="A mirror topic of Cluster Linking has the producer ids of its source cluster, where the transaction "
        "may be alive.",
        remedy="If `confluent kafka mirror describe` or `kafka-mirrors --describe` shows the topic, diagnose the "
        "source cluster, or promote the topic first; else ask Confluent's support.",
    ),
    CompatibleSystem(
        name="AutoMQ",
        api_keys=range(501, 530),
        differs="It is Apache Kafka's code with a storage of its own, and was not tested.",
        remedy="Ask AutoMQ's support.",
    ),
    CompatibleSystem(
        name="WarpStream",
        hosts=(".warpstream.com",),
        differs="It stores no control records; its control plane decides what consumers receive.",
        remedy="An abort marker has no meaning there: ask WarpStream's support.",
    ),
    CompatibleSystem(
        name="Azure Event Hubs",
        hosts=(".servicebus.windows.net", ".servicebus.chinacloudapi.cn", ".servicebus.usgovcloudapi.net"),
        differs="Its coordinator is Microsoft's own.",
        remedy="Wait for the transaction's timeout, then ask Microsoft's support.",
    ),
    CompatibleSystem(
        name="StreamNative",
        hosts=(".streamnative.cloud", ".snio.cloud"),
        differs="Its coordinator is its own.",
        remedy="Ask StreamNative's support.",
    ),
)
"""Known systems, the one that is recognized best first."""

UNKNOWN_SYSTEM = CompatibleSystem(
    name="software that this version of kafka-txn does not know",
    differs="It may end transactions by other rules.",
    remedy="Behind a proxy, connect to the brokers themselves. For a newer Apache Kafka, upgrade kafka-txn. Else ask "
    "its vendor how a transaction without an owner ends.",
)
"""What fits no release of Apache Kafka and no known system."""
