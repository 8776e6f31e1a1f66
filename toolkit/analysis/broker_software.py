"""Which software a broker runs, by what it answers.

`SYSTEMS` speak Kafka's protocol and end transactions by rules of their own, or copy other clusters' bytes. For each:
what tells it apart, and its own remedy for a transaction that nobody ends. None of them was tested here; the pages that
each row is taken from are on the page "Brokers that are not Apache Kafka" of the docs.

`TABLE` has the API keys and versions of released Apache Kafkas. It was computed from the jars of every release from
2.8.0 to 4.4.0 (``ApiKeys`` of kafka-clients); patch releases have the table of their minor release, except 4.0.0.
Responses of real brokers match it; a broker deviates from it by its settings only as `ReleasedApi.allows` and
`ReleasedApi.is_required` permit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleSystem:
    """A system other than Apache Kafka."""

    name: str
    # differs, remedy: sentences: why an absent owner proves nothing there, and how a transaction without an owner is
    # ended
    differs: str
    remedy: str
    cluster_id: str | None = None  # how its cluster ids begin
    hosts: tuple[str, ...] = ()  # how host names of its brokers end
    api_keys: Sequence[int] = ()  # API keys that only it has


SYSTEMS: Sequence[CompatibleSystem] = (
    CompatibleSystem(
        name="Redpanda",
        cluster_id="redpanda.",
        hosts=(".redpanda.com",),
        api_keys=(15_000,),
        differs="Its partitions may end a transaction that its coordinator has lost.",
        remedy="`rpk cluster txn` shows it. mark_transaction_expired of its Admin API aborts it: only if its owner "
        "confirms that it was not committed.",
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
        remedy="Markers have no meaning there: ask WarpStream's support.",
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


Apis = Mapping[int, tuple[int, int]]
"""API key to its lowest and highest version, as ApiVersions returns them."""

TABLE = Path(__file__).with_name("api_versions.txt")
"""Lines of: API key and name, first and last release, listeners, whether brokers forward it, lowest version, highest
version, highest version with unstable.api.versions.enable."""

# 4.0.0 is a row of its own; 4.0 stands for 4.0.1 and 4.0.2.
RELEASES = ["2.8", *(f"3.{minor}" for minor in range(10)), "4.0.0", *(f"4.{minor}" for minor in range(5))]
LISTENERS = "kraft", "zookeeper"

PRODUCE = 0  # from 4.0 on it is listed from version 0 on, for librdkafka (KAFKA-18659)
TELEMETRY = 71, 72  # listed only if a metrics reporter of the broker receives clients' metrics (KIP-714)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedApi:
    """An API of a range of releases."""

    key: int
    name: str
    # first, last: positions in `RELEASES`
    first: int
    last: int
    listeners: frozenset[str]  # ``kraft``, ``zookeeper`` or both
    # whether brokers forward it to the controller. They list the versions that both know: during a rolling upgrade
    # fewer than their own
    forwarded: bool
    # low, high, unstable: lowest version, highest version, and the highest with unstable.api.versions.enable. `high` is
    # null if only that setting enables the API
    low: int
    high: int | None
    unstable: int

    def allows(self, low: int, high: int) -> bool:
        """Whether a broker of these releases may list these versions."""
        if self.forwarded:
            return self.low <= low <= high <= self.unstable
        lows = {self.low, 0} if self.key == PRODUCE else {self.low}
        return low in lows and high in {self.high, self.unstable}

    @property
    def is_required(self) -> bool:
        """Whether every broker of these releases lists it."""
        return self.high is not None and not self.forwarded and self.key not in TELEMETRY


def matching_releases(apis: Apis) -> list[str]:
    """The releases of Apache Kafka, oldest first, of which a broker with these APIs can be; empty if of none."""
    found = [release for release, differences in _compared(frozenset(apis.items())) if not differences]
    return list(dict.fromkeys(found))


def nearest_release(apis: Apis) -> tuple[str, Sequence[str]]:
    """The release with the fewest differences, and what differs, a phrase each."""
    return min(reversed(_compared(frozenset(apis.items()))), key=lambda found: len(found[1]))


@lru_cache(maxsize=100)
def _compared(apis: frozenset[tuple[int, tuple[int, int]]]) -> Sequence[tuple[str, Sequence[str]]]:
    """Each release and what differs; once for all brokers with these APIs, as it takes 3 ms."""
    by_key = dict(apis)
    return [(release, _differences(by_key, table)) for release, table in _tables()]


def _differences(apis: Apis, table: Mapping[int, ReleasedApi]) -> list[str]:
    found = []
    for key, api in table.items():
        if key not in apis and api.is_required:
            found.append(f"{api.name} is missing")
        elif key in apis and not api.allows(*apis[key]):
            low, high = apis[key]
            found.append(f"{api.name} has versions {low} to {high}")
    return found + [f"API key {key} is unknown" for key in sorted(apis.keys() - table.keys())]


@cache
def _tables() -> Sequence[tuple[str, Mapping[int, ReleasedApi]]]:
    """Release and APIs, for each release and each listener that it has."""
    apis = list(_read())
    tables = []
    for position, release in enumerate(RELEASES):
        for listener in LISTENERS:
            table = {api.key: api for api in apis if api.first <= position <= api.last and listener in api.listeners}
            if table:
                tables.append(("4.0" if release == "4.0.0" else release, table))
    return tables


def _read() -> Iterator[ReleasedApi]:
    for line in TABLE.read_text().splitlines():
        key, name, first, last, listeners, forwarded, low, high, unstable = line.split()
        yield ReleasedApi(
            key=int(key),
            name=name,
            first=RELEASES.index(first),
            last=RELEASES.index(last),
            listeners=frozenset(listeners.split("+")),
            forwarded=forwarded == "forwarded",
            low=int(low),
            high=None if high == "-" else int(high),
            unstable=int(unstable),
        )


MAX_DIFFERENCES = 3  # in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a broker shows of itself."""

    # broker_id, host: its id and its advertised host name
    broker_id: int
    host: str
    cluster_id: str | None  # from Metadata; null if it returned none
    apis: Apis  # from ApiVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The software of a broker."""

    name: str  # ``Apache Kafka``, the name of another system, or that it is not known
    releases: Sequence[str] = ()  # releases of Apache Kafka that have its APIs
    evidence: str  # a phrase: what shows it
    system: CompatibleSystem | None  # the other system; null for Apache Kafka

    @property
    def release_range(self) -> str | None:
        """``4.3``, or ``3.2 to 3.3`` if its APIs do not tell these apart."""
        return " to ".join(dict.fromkeys((self.releases[0], self.releases[-1]))) if self.releases else None


SOFTWARE_GAP = "a coordinator of Apache Kafka"
"""How the gaps of `software_gaps` begin."""


def is_of_another_system(gap: str) -> bool:
    """Whether a gap names a system that is not Apache Kafka, and has a remedy of its own."""
    return gap.startswith(SOFTWARE_GAP) and UNKNOWN_SYSTEM.name not in gap


def software_of(broker: BrokerIdentity) -> Software:
    """The software of a broker."""
    for system in SYSTEMS:
        if sign := _sign(system, broker):
            return Software(name=system.name, evidence=sign, system=system)
    releases = matching_releases(broker.apis)
    if releases:
        evidence = f"its APIs are those of Apache Kafka {' and '.join(releases)}"
        return Software(name="Apache Kafka", releases=releases, evidence=evidence, system=None)
    release, differences = nearest_release(broker.apis)
    more = len(differences) - MAX_DIFFERENCES
    listed = ", ".join(differences[:MAX_DIFFERENCES]) + (f", and {more} more" if more > 0 else "")
    evidence = f"its APIs are those of no release of Apache Kafka; against {release}: {listed}"
    return Software(name=UNKNOWN_SYSTEM.name, evidence=evidence, system=UNKNOWN_SYSTEM)


def software_gaps(brokers: Iterable[BrokerIdentity]) -> list[str]:
    """What is missing to prove that the coordinators are Apache Kafka's, one sentence for each other software.

    With any of them, the absence of an owner proves nothing: no transaction is `hanging`.
    """
    running: dict[str, list[int]] = {}
    for broker in brokers:
        software = software_of(broker)
        if software.system:
            gap = f"{software.name} ({software.evidence}). {software.system.differs} {software.system.remedy}"
            running.setdefault(gap, []).append(broker.broker_id)
    return [
        f"{SOFTWARE_GAP}: {_brokers(ids)} {'run' if len(ids) > 1 else 'runs'} {gap}" for gap, ids in running.items()
    ]


def _sign(system: CompatibleSystem, broker: BrokerIdentity) -> str | None:
    """What shows that a broker is of a system; null if nothing does."""
    if system.cluster_id and (broker.cluster_id or "").startswith(system.cluster_id):
        return f"its cluster id is {broker.cluster_id}"
    if own := sorted(set(system.api_keys) & set(broker.apis)):
        return f"it has API key {own[0]}, which Apache Kafka has not"
    if broker.host.lower().rstrip(".").endswith(system.hosts):
        return f"its address is {broker.host}"
    return None


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
