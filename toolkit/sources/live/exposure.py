"""Exposure of a cluster to hanging transactions (KIP-890): features, broker settings, known bugs, client versions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from toolkit.analysis.broker_software import Software, software_of
from toolkit.analysis.diagnosis.known_bugs import Release, release_of
from toolkit.analysis.exposure_rules import (
    LAST_LEVELS,
    MAX_TIMEOUT,
    VERIFICATION,
    BrokerRelease,
    bug_exposure,
    feature_exposure,
    id_exposure,
    mixed_versions,
    setting_exposure,
    unread_clients,
)
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import utc_now
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import row_text
from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.state.broker_configs import broker_configs, broker_identities
from toolkit.sources.live.state.brokers_time import COORDINATORS_TOPICS, read_brokers_time
from toolkit.sources.live.state.leaders import read_metadata
from toolkit.version import __version__

SOFTWARE = "broker software"
NEWEST = 20_000  # offsets of each partition of __transaction_state
API_VERSIONS = {"client_software_name": "kafka-txn-toolkit", "client_software_version": __version__}


def read_exposure(client: BrokerClient, *, release: Release | None = None) -> list[Exposure]:
    """Exposure of the cluster, every broker, its software and known bugs, and ids with exposed clients.

    What this principal may not read is a record with `error`. The newest 20,000 offsets of each partition of
    ``__transaction_state`` are read.

    `release`: release of the brokers; null to detect the minor release.
    """
    releases = [_detected(client, broker_id) for broker_id in sorted(client.brokers)]
    brokers = [*_settings(client), *_software(client)]
    bugs = bug_exposure(releases, release=release)
    return [*_features(client), *mixed_versions(releases), *brokers, *bugs, *_clients(client)]


def _features(client: BrokerClient) -> Iterator[Exposure]:
    """Finalized features, from ApiVersions version 3."""
    (response,) = client.send([(None, messages.ApiVersions(**API_VERSIONS))])
    error, levels = response.failure, dict[str, int]()
    if not error:
        levels = {each.name: each.max_version_level for each in response.message.finalized_features or ()}
    yield from feature_exposure(levels, broker_id=response.broker_id, observed_at=response.observed_at, error=error)


def _settings(client: BrokerClient) -> Iterator[Exposure]:
    configs = broker_configs(client, sorted(client.brokers), [VERIFICATION, MAX_TIMEOUT])
    older = [each.broker_id for each in configs if not each.error and each.values.get(VERIFICATION) is None]
    for config in configs:
        for name in (VERIFICATION, MAX_TIMEOUT):
            value, meaning = config.values.get(name), None
            if name == VERIFICATION and value == "true" and older:
                meaning = (
                    True,
                    "It verifies writes with the coordinator of their transactional id, but brokers older than 3.6 "
                    f"cannot ({', '.join(map(str, older))}): for an id that one of them coordinates, a write is "
                    "accepted unverified. Upgrade them.",
                )
            yield setting_exposure(
                name,
                value,
                broker_id=config.broker_id,
                observed_at=config.observed_at,
                error=config.error,
                meaning=meaning,
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
            observed_at=utc_now(),
        )


def _means(software: Software) -> str:
    evidence = f"{software.evidence[0].upper()}{software.evidence[1:]}."
    if software.system:
        differs = f"{software.system.differs} {software.system.remedy}"
        return f"{evidence} There, a transaction without an owner is never proven to hang. {differs}"
    return f"{evidence} Its coordinators end every transaction that they own; one without an owner is never ended."


def newest_records(client: BrokerClient) -> Iterator[TransactionLogRecord]:
    """Records of the newest 20,000 offsets of each partition of ``__transaction_state``; unreadable ones have `error`.

    Raises BrokerError if this principal may not describe the topic.
    """
    return transaction_log_records(client, read_coordinator_topic(client, STATE_TOPIC), newest=NEWEST)


def _clients(client: BrokerClient) -> Iterator[Exposure]:
    """Exposed ids and prefixes, by the coordinators' log."""
    now = utc_now()
    try:
        yield from id_exposure(newest_records(client), now=now, as_of=_brokers_time(client))
    except ToolkitError as error:
        yield unread_clients(row_text(error), None, now=now)


def _brokers_time(client: BrokerClient) -> dt.datetime | None:
    return read_brokers_time(client, read_metadata(client, COORDINATORS_TOPICS)).time


def _detected(client: BrokerClient, broker_id: int) -> BrokerRelease:
    release, error = None, None
    try:
        release = _minor_release(client, broker_id)
    except ToolkitError as failure:
        error = row_text(failure)
    return BrokerRelease(broker_id=broker_id, release=release, observed_at=utc_now(), error=error)


def _minor_release(client: BrokerClient, broker_id: int) -> Release | None:
    """A broker's minor release, by metadata.version or API versions; null if unknown, or not of Apache Kafka."""
    features = client.send_one(messages.ApiVersions(**API_VERSIONS), broker_id=broker_id).supported_features or ()
    levels = [feature.max_version for feature in features if feature.name == "metadata.version"]
    (identity,) = broker_identities(client, [broker_id])
    releases = software_of(identity).releases
    if levels and levels[0] in LAST_LEVELS:
        return LAST_LEVELS[levels[0]] if releases else None
    return release_of(releases[0]) if len(releases) == 1 else None
