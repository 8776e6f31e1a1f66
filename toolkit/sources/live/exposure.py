"""What a cluster shows of its exposure to hanging transactions: features, settings, software, and clients' records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any

from toolkit.analysis.exposure import (
    MAX_TIMEOUT,
    METADATA,
    VERIFICATION,
    ObservedBroker,
    ObservedCluster,
    Release,
    Software,
    broker_facts,
    exposure_rows,
    release_of,
    software_of,
)
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import row_text
from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.state.broker_configs import broker_configs, broker_identities
from toolkit.sources.live.state.brokers_time import COORDINATORS_TOPICS, read_brokers_time
from toolkit.sources.live.state.leaders import read_metadata
from toolkit.version import __version__

NEWEST = 20_000  # offsets of each partition of __transaction_state
API_VERSIONS = {"client_software_name": "kafka-txn-toolkit", "client_software_version": __version__}


def read_exposure(client: BrokerClient, *, release: Release | None = None) -> Iterator[Exposure]:
    """Exposure of the cluster, every broker, its software and known bugs, and ids with exposed clients.

    What this principal may not read is a record with `error`. The newest 20,000 offsets of each partition of
    ``__transaction_state`` are read.

    `release`: release of the brokers; null to detect the minor release.
    """
    ids = sorted(client.brokers)
    of_brokers = client.send([(each, messages.ApiVersions(**API_VERSIONS)) for each in ids])
    configs = broker_configs(client, ids, [VERIFICATION, MAX_TIMEOUT])
    software = {each.broker_id: software_of(each) for each in broker_identities(client, ids)}
    (of_any,) = client.send([(None, messages.ApiVersions(**API_VERSIONS))])
    brokers = []
    for broker_id, response, config in zip(ids, of_brokers, configs, strict=True):
        own_software = software.get(broker_id)
        supported = () if response.failure else response.message.supported_features or ()
        broker = ObservedBroker(
            broker_id=broker_id,
            observed_at=config.observed_at,
            release=None if response.failure else _minor_release(supported, own_software),
            release_error=response.failure,
            software=own_software,
            settings={} if config.error else {name: config.values.get(name) for name in (VERIFICATION, MAX_TIMEOUT)},
            settings_error=config.error,
        )
        brokers.append(broker)
    try:
        records_until = _brokers_time(client)
    except ToolkitError:  # the records cannot be read either, and say why
        records_until = None
    features = [] if of_any.failure else of_any.message.finalized_features or []
    cluster = ObservedCluster(
        observed_at=of_any.observed_at,
        features={each.name: each.max_version_level for each in features},
        broker_id=of_any.broker_id,
        features_error=of_any.failure,
        brokers=brokers,
        records=_records_or_error(client),
        records_until=records_until,
    )
    return exposure_rows(cluster, release=release)


def _minor_release(supported: Iterable[Any], software: Software | None) -> Release | None:
    """A broker's minor release, by metadata.version or API versions; null if unknown, or not of Apache Kafka."""
    releases = software.releases if software else ()
    levels = [each.max_version for each in supported if each.name == METADATA]
    if releases and levels and levels[0] in broker_facts().releases:
        return broker_facts().releases[levels[0]]
    return release_of(releases[0]) if len(releases) == 1 else None


def _records_or_error(client: BrokerClient) -> Iterator[TransactionLogRecord]:
    """The newest records, and what ends the read as one more."""
    try:
        yield from newest_records(client)
    except ToolkitError as error:
        yield TransactionLogRecord(error=row_text(error))


def newest_records(client: BrokerClient) -> Iterator[TransactionLogRecord]:
    """Records of the newest 20,000 offsets of each partition of ``__transaction_state``; unreadable ones have `error`.

    Raises BrokerError if this principal may not describe the topic.
    """
    return transaction_log_records(client, read_coordinator_topic(client, STATE_TOPIC), newest=NEWEST)


def _brokers_time(client: BrokerClient) -> dt.datetime | None:
    return read_brokers_time(client, read_metadata(client, COORDINATORS_TOPICS)).time
