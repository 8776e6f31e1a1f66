"""Exposure of a cluster to hanging transactions (KIP-890): features, broker settings, known bugs, client versions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from toolkit.analysis.broker_software import Software, software_of
from toolkit.analysis.coordinator.transaction_owners import transaction_owners
from toolkit.analysis.coordinator.transactional_id_prefixes import logged_ids, transactional_id_prefixes
from toolkit.analysis.diagnosis.known_bugs import Release, bugs_of, release_of, release_text
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Exposure, IdPrefix
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources.live.blocked_groups import client_groups
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.state.broker_configs import MAX_TIMEOUT, broker_configs, broker_identities
from toolkit.sources.live.transaction_listing import TransactionFilters, filtered_transactions
from toolkit.version import __version__

VERSION, METADATA = "transaction.version", "metadata.version"
VERIFICATION = "transaction.partition.verification.enable"
SOFTWARE, MIXED = "broker software", "mixed versions"
CLIENT_VERSION = "client_transaction_version"
NEWEST = 20_000  # offsets of each partition of __transaction_state
UNREAD = "It could not be read: exposure is unknown."
API_VERSIONS = {"client_software_name": "kafka-txn-toolkit", "client_software_version": __version__}
LAST_LEVELS: dict[int, Release] = {7: (3, 3), 8: (3, 4), 11: (3, 5), 14: (3, 6), 19: (3, 7), 20: (3, 8), 21: (3, 9)}
"""Highest metadata.version of a release (MetadataVersion): API versions alone do not distinguish these."""


def read_exposure(client: BrokerClient, *, release: Release | None = None) -> list[Exposure]:
    """Exposure of the cluster, every broker, its software and known bugs, and ids with exposed clients.

    What this principal may not read is a record with `error`. The newest 20,000 offsets of each partition of
    ``__transaction_state`` are read.

    Parameters
    ----------
    client
        The connection to the brokers.
    release
        Release of the brokers; null to detect the minor release.
    """
    releases = [_detected(client, broker_id) for broker_id in sorted(client.brokers)]
    brokers = [*_settings(client), *_software(client)]
    bugs = _known_bugs(releases, release=release)
    return [*_features(client), *_mixed_versions(releases), *brokers, *bugs, *_clients(client)]


def _features(client: BrokerClient) -> Iterator[Exposure]:
    """Finalized features, from ApiVersions version 3."""
    (response,) = client.send([(None, messages.ApiVersions(**API_VERSIONS))])
    error, levels = response.failure, dict[str, int]()
    if not error:
        levels = {each.name: each.max_version_level for each in response.message.finalized_features or ()}
    for name in (METADATA, VERSION):
        level = levels.get(name)
        exposed, means = (None, UNREAD) if error else MEANING[name](level)
        yield Exposure(
            subject="cluster",
            name=name,
            value=None if level is None else str(level),
            exposed=exposed,
            means=means,
            broker_id=response.broker_id,
            observed_at=response.observed_at,
            error=error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BrokerRelease:
    """The minor release of a broker; null if it is unknown, or the broker is not Apache Kafka."""

    broker_id: int
    release: Release | None
    observed_at: dt.datetime
    error: str | None


def _mixed_versions(releases: Sequence[_BrokerRelease]) -> Iterator[Exposure]:
    """A row if brokers are of several releases, as during a rolling upgrade; those of an unknown one are named, too."""
    by_release: dict[Release | None, list[str]] = {}
    for each in releases:
        by_release.setdefault(each.release, []).append(str(each.broker_id))
    unknown = by_release.pop(None, [])
    known = [(release_text(each), by_release[each]) for each in sorted(filter(None, by_release))]
    if len(known) > 1:
        yield Exposure(
            subject="cluster",
            name=MIXED,
            value=", ".join(
                f"{release} (broker {' '.join(ids)})" for release, ids in [*known, ("unknown", unknown)] if ids
            ),
            exposed=True,
            means="The cluster is half-upgraded. A partition and a transactional id have the protection, and the bugs, "
            "of the broker that leads or coordinates it, until they move to another one. What newer brokers verify, "
            "they verify with the coordinator only if it is of 3.6 or newer. Complete the upgrade, then finalize "
            "metadata.version and transaction.version.",
            observed_at=releases[0].observed_at,
        )


def _settings(client: BrokerClient) -> Iterator[Exposure]:
    configs = broker_configs(client, sorted(client.brokers), [VERIFICATION, MAX_TIMEOUT])
    older = [each.broker_id for each in configs if not each.error and each.values.get(VERIFICATION) is None]
    for config in configs:
        for name in (VERIFICATION, MAX_TIMEOUT):
            value = config.values.get(name)
            exposed, means = (None, UNREAD) if config.error else MEANING[name](value)
            if name == VERIFICATION and value == "true" and older:
                exposed, means = (
                    True,
                    (
                        "It verifies writes with the coordinator of their transactional id, but brokers older than 3.6 "
                        f"cannot ({', '.join(map(str, older))}): for an id that one of them coordinates, a write is "
                        "accepted unverified. Upgrade them."
                    ),
                )
            yield Exposure(
                subject="broker",
                name=name,
                value=value,
                exposed=exposed,
                means=means,
                broker_id=config.broker_id,
                observed_at=config.observed_at,
                error=config.error,
            )


def _software(client: BrokerClient) -> Iterator[Exposure]:
    """The software of each broker that answered; `_settings` has the error of one that did not."""
    for broker in broker_identities(client, sorted(client.brokers)):
        software = software_of(broker)
        yield Exposure(
            subject="broker",
            name=SOFTWARE,
            value=" ".join(filter(None, (software.name, software.release_range))),
            means=_means(software),
            broker_id=broker.broker_id,
            observed_at=dt.datetime.now(dt.UTC),
        )


def _means(software: Software) -> str:
    evidence = f"{software.evidence[0].upper()}{software.evidence[1:]}."
    if software.system:
        differs = f"{software.system.differs} {software.system.remedy}"
        return f"{evidence} There, a transaction without an owner is never proven to hang. {differs}"
    return f"{evidence} Its coordinators end every transaction that they own; one without an owner is never ended."


def newest_records(client: BrokerClient) -> Iterator[TransactionLogRecord]:
    """Records of the newest 20,000 offsets of each partition of ``__transaction_state``; unreadable ones have `error`.

    Raises
    ------
    BrokerError
        If this principal may not describe the topic.
    """
    return transaction_log_records(client, read_coordinator_topic(client, STATE_TOPIC), newest=NEWEST)


def _clients(client: BrokerClient) -> Iterator[Exposure]:
    """Ids whose newest record was written by a client below transaction version 2; prefixes that get ever more ids."""
    newest: dict[str, TransactionLogRecord] = {}
    records: list[TransactionLogRecord] = []
    try:
        for record in newest_records(client):
            if record.error:
                yield _unread_clients(record.error, record.broker_id)
            elif record.transactional_id is not None:
                records.append(record)
                newest[record.transactional_id] = record
    except ToolkitError as error:
        yield _unread_clients(_error(error), None)
        return
    now = dt.datetime.now(dt.UTC)
    yield from growing_prefixes(records, now=now)
    for transactional_id, record in sorted(newest.items(), key=itemgetter(0)):
        version = record.client_transaction_version or 0
        if not record.tombstone and version < 2:
            yield Exposure(
                subject="transactional_id",
                name=CLIENT_VERSION,
                transactional_id=transactional_id,
                value=str(version),
                exposed=True,
                means="Its client reuses its epoch across transactions: only verification by the brokers keeps a "
                "late message from hanging, and nothing keeps a delayed EndTxn from ending its next transaction "
                "halfway, so that the other half may be committed. Upgrade it to a Java client of 4.0 or newer.",
                broker_id=record.broker_id,
                observed_at=now,
            )


def read_id_prefixes(client: BrokerClient, *, flink_prefixes: Collection[str] = ()) -> Iterator[IdPrefix]:
    """The transactional ids of each prefix; growth is null where the coordinators' log cannot be read."""
    as_of = dt.datetime.now(dt.UTC)
    try:
        logged = logged_ids(newest_records(client))
    except ToolkitError:  # few principals may read __transaction_state
        logged = None
    found = filtered_transactions(client, TransactionFilters())
    ids = [each.transactional_id for each in found if each.transactional_id is not None]
    groups, _ = client_groups(client, ids)
    owners = transaction_owners(
        found, groups=groups, all_ids=ids if len(ids) == len(found) else (), flink_prefixes=flink_prefixes
    )
    return transactional_id_prefixes(found, owners, logged, as_of=as_of)


def growing_prefixes(records: Iterable[TransactionLogRecord], *, now: dt.datetime) -> Iterator[Exposure]:
    """Prefixes under which new ids are created all the time."""
    for prefix, logged in sorted((logged_ids(records) or {}).items()):
        if logged.is_growing(now):
            yield Exposure(
                subject="prefix",
                name=prefix,
                value=f"{len(logged.recent(now))} new ids in 24 h, {logged.per_hour(now):.0f} per hour",
                exposed=True,
                means="Its clients do not reuse their ids, so that no later instance fences an abandoned transaction: "
                "it is aborted after its timeout. Coordinators keep each id for transactional.id.expiration.ms, "
                "7 days by default. Give each instance an id of its own that stays; Flink has "
                "TransactionNamingStrategy.POOLING.",
                observed_at=now,
            )


def _unread_clients(error: str, broker_id: int | None) -> Exposure:
    return Exposure(
        subject="transactional_id",
        name=CLIENT_VERSION,
        means="Clients below transaction version 2 are unknown: grant READ on __transaction_state to list them.",
        broker_id=broker_id,
        observed_at=dt.datetime.now(dt.UTC),
        error=error,
    )


def _error(error: ToolkitError) -> str:
    return f"{getattr(error, 'code', 'NETWORK_EXCEPTION')}: {error.what}"


def _known_bugs(releases: Sequence[_BrokerRelease], *, release: Release | None) -> Iterator[Exposure]:
    """The release of each broker and the known bugs of it.

    Brokers do not report their release; ApiVersions shows the minor release, not the patch.
    """
    for broker in releases:
        assumed = release or broker.release
        of_release = Exposure(
            subject="known bug",
            name="kafka version",
            value=release_text(assumed) if assumed else None,
            means=_release_means(release, broker.release),
            broker_id=broker.broker_id,
            observed_at=broker.observed_at,
            error=broker.error,
        )
        yield of_release
        for bug, affects in bugs_of(assumed) if assumed else ():
            condition = "" if affects else f"It depends on the patch release of {of_release.value}. "
            means = f"{condition}{bug.title} {bug.effect} {bug.remedy} Fixed in {bug.fixed_in}."
            yield replace(of_release, name=bug.key, exposed=affects or None, means=means, error=None)


def _detected(client: BrokerClient, broker_id: int) -> _BrokerRelease:
    release, error = None, None
    try:
        release = _minor_release(client, broker_id)
    except ToolkitError as failure:
        error = _error(failure)
    return _BrokerRelease(broker_id=broker_id, release=release, observed_at=dt.datetime.now(dt.UTC), error=error)


def _minor_release(client: BrokerClient, broker_id: int) -> Release | None:
    """A broker's minor release, by metadata.version or API versions; null if unknown, or not of Apache Kafka."""
    features = client.send_one(messages.ApiVersions(**API_VERSIONS), broker_id=broker_id).supported_features or ()
    levels = [feature.max_version for feature in features if feature.name == "metadata.version"]
    (identity,) = broker_identities(client, [broker_id])
    releases = software_of(identity).releases
    if levels and levels[0] in LAST_LEVELS:
        return LAST_LEVELS[levels[0]] if releases else None
    return release_of(releases[0]) if len(releases) == 1 else None


def _release_means(release: Release | None, detected: Release | None) -> str:
    if release is None and detected is None:
        return "Its release is unknown, and so are its bugs. Set it with --kafka-version."
    if release is None:
        return "By its API versions, which do not show the patch release. Set it with --kafka-version."
    if detected is not None and release[:2] != detected:
        return f"As set, but its API versions are those of {release_text(detected)}: check --kafka-version."
    return "As set with --kafka-version."


def _version(level: int | None) -> tuple[bool, str]:
    if level is None or level < 2:
        return True, (
            "Clients reuse their epoch across transactions. A late message can join the next transaction, or open one "
            "that never ends: only verification by the brokers prevents that. A delayed EndTxn can end the next "
            "transaction halfway, so that the other half is committed: nothing prevents that. Upgrade to version 2 "
            "(Kafka 4.0): kafka-features.sh upgrade --feature transaction.version=2."
        )
    return False, (
        "Clients of 4.0 or newer use a new epoch for each transaction, so brokers reject a late message; older clients "
        "still reuse theirs."
    )


def _metadata(level: int | None) -> tuple[bool | None, str]:
    if level is None:
        return None, "The cluster has no such feature: it runs on ZooKeeper, where transaction.version stays 0."
    return None, "It limits the other features: transaction.version 2 needs the metadata.version of Kafka 4.0."


def _verification(value: str | None) -> tuple[bool, str]:
    if value is None:
        return True, (
            "The broker is older than 3.6 and accepts transactional writes that the coordinator does not know: that is "
            "how transactions hang."
        )
    if value == "true":
        return False, (
            "A write of a client below transaction version 2 is rejected if its transaction does not include the "
            "partition; a late message can still join the next transaction of the same epoch."
        )
    return True, (
        "The broker accepts transactional writes that the coordinator does not know: that is how transactions hang. "
        "Set it to true; no restart is needed."
    )


def _max_timeout(value: str | None) -> tuple[bool | None, str]:
    if value is None:
        return None, UNREAD
    if int(value) > MAX_TRANSACTION_TIMEOUT_MS:
        return True, (
            "A client may keep a transaction open, and hold the LSO, for longer than the default of 15 minutes, as "
            "Flink requires; an abandoned transaction is aborted only after its timeout."
        )
    return False, "No transaction that has an owner holds an LSO for much longer than this."


MEANING: Mapping[str, Callable[[Any], tuple[bool | None, str]]] = {
    VERSION: _version,
    METADATA: _metadata,
    VERIFICATION: _verification,
    MAX_TIMEOUT: _max_timeout,
}
"""Feature or setting to whether a value exposes, and what it means."""
