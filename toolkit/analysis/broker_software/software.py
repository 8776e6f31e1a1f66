"""Which software a broker runs, and what that leaves unproven.

"No coordinator owns it" is a proof only where the coordinator is Apache Kafka's, and the partition's records were
written through it. Apache Kafka is what has exactly the APIs of one of its releases (`released_apis`) and no sign of
another system (`compatible_systems`). No release up to 4.4 copies partitions from another cluster (KIP-1279 is not in
them), so a broker of a release also gave out the producer ids in its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.analysis.broker_software.compatible_systems import SYSTEMS, UNKNOWN_SYSTEM, CompatibleSystem
from toolkit.analysis.broker_software.released_apis import Apis, matching_releases, nearest_release

MAX_DIFFERENCES = 3  # in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a broker shows of itself.

    Parameters
    ----------
    broker_id, host
        Its id and its advertised host name.
    cluster_id
        From Metadata; null if it returned none.
    apis
        From ApiVersions.
    """

    broker_id: int
    host: str
    cluster_id: str | None
    apis: Apis


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The software of a broker.

    Parameters
    ----------
    name
        ``Apache Kafka``, the name of another system, or that it is not known.
    releases
        Releases of Apache Kafka that have its APIs.
    evidence
        A phrase: what shows it.
    system
        The other system; null for Apache Kafka.
    """

    name: str
    releases: Sequence[str] = ()
    evidence: str
    system: CompatibleSystem | None

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
