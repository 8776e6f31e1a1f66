"""What exposes a cluster to hanging transactions (KIP-890): features, settings, software and releases, and clients.

``broker_software.toml`` has what is known, and ``api_versions.txt`` the API keys and versions of Apache Kafka. It was
computed from the jars of every release from 2.8.0 to 4.4.0 (``ApiKeys`` of kafka-clients); patch releases have the
table of their minor release, except 4.0.0. Responses of real brokers match it; a broker deviates from it by its
settings only as `ReleasedApi` permits.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import combinations
from typing import Any, NamedTuple

from toolkit.errors import UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord

Release = tuple[int, ...]
"""``(4, 3, 1)``; or ``(4, 3)``, a minor release whose patch release is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A feature, a setting of brokers or a property of clients, and what its values mean: a sentence each."""

    subject: str  # of its rows: cluster, broker or transactional_id
    # Which values are safe: numbers from this one on or up to this one, or this text.
    lowest_safe: int | None = None
    highest_safe: int | None = None
    safe_value: str | None = None
    safe: str = ""  # of a safe value; of any value if there is no `unsafe`
    unsafe: str = ""
    absent: str = ""  # where there is none; empty if that means the same as an unsafe value
    absent_exposes: bool | None = None
    beside_older: str = ""  # of a safe value, if other brokers do not have the setting

    def meaning(self, value: str | None) -> tuple[bool | None, str]:
        """Whether a value lets transactions hang, or hold an LSO for long; and what it means."""
        if value is None and self.absent:
            return self.absent_exposes, self.absent
        if not self.unsafe:
            return None, self.safe
        is_safe = value is not None and (
            (self.safe_value is not None and value == self.safe_value)
            or (self.lowest_safe is not None and int(value) >= self.lowest_safe)
            or (self.highest_safe is not None and int(value) <= self.highest_safe)
        )
        return not is_safe, self.safe if is_safe else self.unsafe


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """A bug of Kafka's brokers that leaves transactions open, stuck or wrongly refused."""

    key: str  # its issue in JIRA
    # pairs of the first release that has the bug and the release that fixes it; null if none does
    affected: Sequence[tuple[Release, Release | None]]
    transaction_version: int | None = None  # the lowest finalized level of transaction.version with which it occurs
    # title, effect, remedy: sentences: what is wrong, its effect on a transaction, and what to do
    title: str
    effect: str
    remedy: str
    verified: str  # how the releases were verified

    def affects(self, release: Release) -> bool | None:
        """Whether a release has the bug; null if only some patch releases of a minor release do."""
        bounds = (bound for pair in self.affected for bound in pair if bound)
        if any(bound[:2] == release and bound[2] for bound in bounds):
            return None
        release = (*release, 0)
        return any(since <= release and (until is None or release < until) for since, until in self.affected)

    @property
    def fixed_in(self) -> str:
        """Releases that fix the bug, as text; empty if none does."""
        return ", ".join(release_text(until) for _, until in self.affected if until)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleSystem:
    """A system other than Apache Kafka."""

    name: str
    # differs, remedy: sentences: why an absent owner proves nothing there, and how a transaction without an owner is
    # ended
    differs: str
    remedy: str
    cluster_id: str | None = None  # how its cluster ids begin
    hosts: Sequence[str] = ()  # how host names of its brokers end
    api_keys: Sequence[Sequence[int]] = ()  # ranges of API keys that only it has: first and last


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What ``broker_software.toml`` has."""

    releases: Mapping[int, Release]  # minor release by the highest metadata.version that it supports
    settings: Mapping[str, Setting]
    bugs: Mapping[str, KnownBug]
    systems: Sequence[CompatibleSystem]  # the one that is recognized best first
    unknown_system: CompatibleSystem


@cache
def broker_facts() -> BrokerFacts:
    """What is known of brokers' software."""
    import tomllib  # 4 ms that a cluster where nothing is open does not take

    text = (resources.files(__package__) / "broker_software.toml").read_text(encoding="utf-8")
    return parse_facts(**tomllib.loads(text))


def parse_facts(
    *,
    metadata_versions: Mapping[str, int],
    settings: Mapping[str, Any],
    bugs: Mapping[str, Any],
    systems: Mapping[str, Any],
    unknown_system: Mapping[str, Any],
) -> BrokerFacts:
    """The tables of ``broker_software.toml``. Raises TypeError for a table or a key that it should not have."""

    def bug(key: str, *, affected: Sequence[Sequence[str]], **row: Any) -> KnownBug:
        bounds = [(release_of(pair[0]), release_of(pair[1]) if pair[1:] else None) for pair in affected]
        return KnownBug(key=key, affected=bounds, **row)

    return BrokerFacts(
        releases={level: release_of(release) for release, level in metadata_versions.items()},
        settings={name: Setting(**row) for name, row in settings.items()},
        bugs={key: bug(key, **row) for key, row in bugs.items()},
        systems=[CompatibleSystem(name=name, **row) for name, row in systems.items()],
        unknown_system=CompatibleSystem(**unknown_system),
    )


def may_affect(key: str, releases: Sequence[str]) -> bool:
    """Whether one of these releases may have a bug, or which ones they are is not known."""
    bug = broker_facts().bugs[key]
    return not releases or any(bug.affects(release_of(each)) is not False for each in releases)


def release_of(text: str) -> Release:
    """``4.3.1`` or ``4.3`` as numbers. Raises UsageError if it is not a Kafka release."""
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?", text)
    if not found:
        raise UsageError(f"{text!r} is not a Kafka version.", do="Pass it as 4.3.1 or 4.3.")
    return tuple(int(number) for number in found.groups() if number is not None)


def release_text(release: Release) -> str:
    """Numbers as ``4.3.1``."""
    return ".".join(map(str, release))


Apis = Mapping[int, tuple[int, int]]
"""API key to its lowest and highest version, as ApiVersions returns them."""

# 4.0.0 is a row of its own; 4.0 stands for 4.0.1 and 4.0.2.
RELEASES = ["2.8", *(f"3.{minor}" for minor in range(10)), "4.0.0", *(f"4.{minor}" for minor in range(5))]
LISTENERS = {"kraft": RELEASES, "zookeeper": RELEASES[: RELEASES.index("4.0.0")]}


class ReleasedApi(NamedTuple):
    """An API of a range of releases: a line of ``api_versions.txt``."""

    key: int
    name: str
    releases: Sequence[str]  # those of `RELEASES` that have it in these versions
    listeners: Sequence[str]  # ``kraft``, ``zookeeper`` or both
    # ``required``: every broker of these releases lists it. ``optional``: if unstable.api.versions.enable or, of client
    # telemetry, a metrics reporter enables it (KIP-714). ``forwarded`` to the controller: brokers list the versions
    # that both know, during a rolling upgrade fewer than their own
    listed: str
    # lowest: or 0, as Produce is listed from 4.0 on for librdkafka (KAFKA-18659). highest: with and without
    # unstable.api.versions.enable
    lowest: Sequence[int]
    highest: Sequence[int]

    def allows(self, low: int, high: int) -> bool:
        """Whether a broker of these releases may list these versions."""
        if self.listed == "forwarded":
            return self.lowest[0] <= low <= high <= self.highest[-1]
        return low in self.lowest and high in self.highest


@cache
def released_apis() -> Sequence[ReleasedApi]:
    """The lines of ``api_versions.txt``."""
    found = []
    for line in (resources.files(__package__) / "api_versions.txt").read_text(encoding="utf-8").splitlines():
        key, name, first, last, listeners, listed, *versions = line.split()
        releases = RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]
        lowest, highest = ([int(each) for each in text.split("|")] for text in versions)
        found.append(ReleasedApi(int(key), name, releases, listeners.split("+"), listed, lowest, highest))
    return found


@lru_cache(maxsize=100)
def _compared(apis: frozenset[tuple[int, tuple[int, int]]]) -> Sequence[tuple[str, Sequence[str]]]:
    """Each release, oldest first, and what differs, a phrase each; once for all brokers with these APIs: it is slow."""
    by_key, compared = dict(apis), []
    for release in RELEASES:
        for listener in (name for name, releases in LISTENERS.items() if release in releases):
            table = [each for each in released_apis() if release in each.releases and listener in each.listeners]
            found = []
            for api in table:
                low, high = by_key.get(api.key, (None, None))
                if low is None or high is None:
                    found += [f"{api.name} is missing"] if api.listed == "required" else []
                elif not api.allows(low, high):
                    found.append(f"{api.name} has versions {low} to {high}")
            found += [f"API key {key} is unknown" for key in sorted(by_key.keys() - {api.key for api in table})]
            compared.append(("4.0" if release == "4.0.0" else release, found))
    return compared


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
    return gap.startswith(SOFTWARE_GAP) and broker_facts().unknown_system.name not in gap


def software_of(broker: BrokerIdentity) -> Software:
    """The software of a broker."""
    for system in broker_facts().systems:
        own = sorted(key for first, last in system.api_keys for key in broker.apis if first <= key <= last)
        if system.cluster_id and (broker.cluster_id or "").startswith(system.cluster_id):
            sign = f"its cluster id is {broker.cluster_id}"
        elif own:
            sign = f"it has API key {own[0]}, which Apache Kafka has not"
        elif broker.host.lower().rstrip(".").endswith(tuple(system.hosts)):
            sign = f"its address is {broker.host}"
        else:
            continue
        return Software(name=system.name, evidence=sign, system=system)
    compared = _compared(frozenset(broker.apis.items()))
    if releases := list(dict.fromkeys(release for release, differences in compared if not differences)):
        evidence = f"its APIs are those of Apache Kafka {' and '.join(releases)}"
        return Software(name="Apache Kafka", releases=releases, evidence=evidence, system=None)
    release, differences = min(reversed(compared), key=lambda found: len(found[1]))
    more = len(differences) - MAX_DIFFERENCES
    listed = ", ".join(differences[:MAX_DIFFERENCES]) + (f", and {more} more" if more > 0 else "")
    evidence = f"its APIs are those of no release of Apache Kafka; against {release}: {listed}"
    unknown = broker_facts().unknown_system
    return Software(name=unknown.name, evidence=evidence, system=unknown)


def software_gaps(brokers: Iterable[BrokerIdentity]) -> list[str]:
    """What is missing to prove that the coordinators are Apache Kafka's, one sentence for each other software.

    With any of them, the absence of an owner proves nothing: no transaction is `hanging`.
    """
    running: dict[str, list[str]] = {}
    for broker in brokers:
        software = software_of(broker)
        if software.system:
            gap = f"{software.name} ({software.evidence}). {software.system.differs} {software.system.remedy}"
            running.setdefault(gap, []).append(str(broker.broker_id))
    gaps = []
    for gap, ids in running.items():
        run = f"brokers {', '.join(ids)} run" if len(ids) > 1 else f"broker {ids[0]} runs"
        gaps.append(f"{SOFTWARE_GAP}: {run} {gap}")
    return gaps


VERSION, METADATA = "transaction.version", "metadata.version"
VERIFICATION, MAX_TIMEOUT = "transaction.partition.verification.enable", "transaction.max.timeout.ms"
MIXED = "mixed versions"
CLIENT_VERSION = "client_transaction_version"
UNREAD = "It could not be read: exposure is unknown."
NOT_DYNAMIC = (
    "It was not changed while the cluster ran: server.properties of the broker decides, or the default, and neither is "
    "among the files."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBroker:
    """What a source shows of a broker."""

    broker_id: int
    observed_at: dt.datetime
    # minor release; null if it is unknown, or the broker is not Apache Kafka
    release: Release | None = None
    release_source: str = "its API versions"
    release_error: str | None = None
    software: Software | None = None  # null if the source does not show it
    # its values of `VERIFICATION` and `MAX_TIMEOUT`: null if it has no such setting, left out if that is unknown
    settings: Mapping[str, str | None] = field(default_factory=dict)
    settings_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """What a source shows of a cluster."""

    observed_at: dt.datetime
    features: Mapping[str, int] = field(default_factory=dict)  # finalized level by name
    broker_id: int | None = None  # which broker returned the features
    features_error: str | None = None
    brokers: Sequence[ObservedBroker] = ()
    records: Iterable[TransactionLogRecord] = ()  # of ``__transaction_state``


def exposure_rows(cluster: ObservedCluster, *, release: Release | None = None) -> Iterator[Exposure]:
    """What exposes a cluster, each of its brokers and its clients, and what could not be read.

    `release`: of the brokers; null for the minor release that each one shows.
    """
    for name in (METADATA, VERSION):
        level = None if cluster.features_error else cluster.features.get(name)
        yield _setting_row(name, None if level is None else str(level), of=cluster, error=cluster.features_error)
    yield from _mixed_versions(cluster)
    for broker in cluster.brokers:
        yield from _settings(broker, cluster.brokers)
        if broker.software:
            yield _software(broker, broker.software)
        yield from _bugs(broker, cluster, release)
    yield from _clients(cluster)


def _setting_row(
    name: str, value: str | None, *, of: ObservedBroker | ObservedCluster, error: str | None = None
) -> Exposure:
    setting = broker_facts().settings[name]
    exposed, means = (None, UNREAD) if error else setting.meaning(value)
    return Exposure(
        subject=setting.subject,
        name=name,
        value=value,
        exposed=exposed,
        means=means,
        broker_id=of.broker_id,
        observed_at=of.observed_at,
        error=error,
    )


def _settings(broker: ObservedBroker, brokers: Iterable[ObservedBroker]) -> Iterator[Exposure]:
    older = [str(each.broker_id) for each in brokers if each.settings.get(VERIFICATION, "unknown") is None]
    for name in (VERIFICATION, MAX_TIMEOUT):
        value, beside_older = broker.settings.get(name), broker_facts().settings[name].beside_older
        row = _setting_row(name, value, of=broker, error=broker.settings_error)
        if row.error is None and name not in broker.settings:  # live, a broker tells all that it has
            row = replace(row, exposed=None, means=NOT_DYNAMIC)
        elif row.exposed is False and beside_older and older:
            row = replace(row, exposed=True, means=beside_older.format(brokers=", ".join(older)))
        yield row


def _software(broker: ObservedBroker, software: Software) -> Exposure:
    means = f"{software.evidence[0].upper()}{software.evidence[1:]}. "
    if software.system:
        means += "There, a transaction without an owner is never proven to hang. "
        means += f"{software.system.differs} {software.system.remedy}"
    else:
        means += "Its coordinators end every transaction that they own; one without an owner is never ended."
    return Exposure(
        subject="broker",
        name="broker software",
        value=" ".join(filter(None, (software.name, software.release_range))),
        means=means,
        broker_id=broker.broker_id,
        observed_at=broker.observed_at,
    )


def _mixed_versions(cluster: ObservedCluster) -> Iterator[Exposure]:
    """A row if brokers are of several releases, as during a rolling upgrade; those of an unknown one are named, too."""
    by_release: dict[tuple[Release, ...], list[str]] = {}
    for each in cluster.brokers:
        shown = each.software.releases if each.software else ()
        possible = {each.release} if each.release else {release_of(one)[:2] for one in shown}
        by_release.setdefault(tuple(sorted(possible)), []).append(str(each.broker_id))
    unknown = by_release.pop((), [])
    if any(set(one).isdisjoint(other) for one, other in combinations(by_release, 2)):
        known = {
            " to ".join(map(release_text, dict.fromkeys((each[0], each[-1])))): by_release[each]
            for each in sorted(by_release)
        }
        listed = known | ({"unknown": unknown} if unknown else {})
        value = ", ".join(f"{release} (broker {' '.join(ids)})" for release, ids in listed.items())
        yield replace(_setting_row(MIXED, value, of=cluster), broker_id=None)


def _bugs(broker: ObservedBroker, cluster: ObservedCluster, release: Release | None) -> Iterator[Exposure]:
    """The release of a broker and the known bugs of it: of a minor release, as nothing shows the patch."""
    assumed = release or broker.release
    if release is None and broker.release is None:
        means = "Its release is unknown, and so are its bugs. Set it with --kafka-version."
    elif release is None:
        means = f"By {broker.release_source}, which do not show the patch release. Set it with --kafka-version."
    elif broker.release is not None and release[:2] != broker.release:
        shown = f"{broker.release_source} are those of {release_text(broker.release)}"
        means = f"As set, but {shown}: check --kafka-version."
    else:
        means = "As set with --kafka-version."
    of_release = Exposure(
        subject="known bug",
        name="kafka version",
        value=release_text(assumed) if assumed else None,
        means=means,
        broker_id=broker.broker_id,
        observed_at=broker.observed_at,
        error=broker.release_error,
    )
    yield of_release
    if assumed is None:
        return
    for bug in broker_facts().bugs.values():
        affects = bug.affects(assumed)
        if affects is False:
            continue
        # Whether the cluster has the transaction version with which it occurs.
        needs, level = f"It needs {VERSION} {bug.transaction_version}", cluster.features.get(VERSION, 0)
        exposed: bool | None = True
        condition = ""
        if bug.transaction_version is not None and cluster.features_error:
            exposed, condition = None, f"{needs}, and the level of this cluster could not be read. "
        elif bug.transaction_version is not None and level < bug.transaction_version:
            exposed, condition = False, f"{needs}, and this cluster has {level}. "
        if affects is None:
            exposed = None if exposed else exposed
            condition = f"It depends on the patch release of {of_release.value}. {condition}"
        fixed = f" Fixed in {bug.fixed_in}." if bug.fixed_in else ""
        means = f"{condition}{bug.title} {bug.effect} {bug.remedy}{fixed}"
        yield replace(of_release, name=bug.key, exposed=exposed, means=means, error=None)


def _clients(cluster: ObservedCluster) -> Iterator[Exposure]:
    """Ids whose newest record is of a client below transaction version 2, and what was not read."""
    newest: dict[str, TransactionLogRecord] = {}
    for record in cluster.records:
        if record.error:
            partition = record.txn_state_partition
            where = STATE_TOPIC if partition is None else f"{STATE_TOPIC}-{partition}"
            yield Exposure(
                subject="transactional_id",
                name=CLIENT_VERSION,
                means=f"Clients below transaction version 2 are unknown: their records in {where} were not read.",
                broker_id=record.broker_id,
                observed_at=cluster.observed_at,
                error=record.error,
            )
        elif record.transactional_id is not None:
            newest[record.transactional_id] = record
    for transactional_id, record in sorted(newest.items()):
        row = _setting_row(CLIENT_VERSION, str(record.client_transaction_version or 0), of=cluster)
        if row.exposed and not record.tombstone:
            yield replace(row, transactional_id=transactional_id, broker_id=record.broker_id)
