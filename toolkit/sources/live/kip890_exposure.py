"""Exposure of a cluster to hanging transactions (KIP-890): features, broker settings, client versions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.analysis.broker_software import Software, software_of
from toolkit.analysis.diagnosis.known_bugs import Release
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text
from toolkit.sources.live.known_bug_rows import known_bug_rows
from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.state.software_identity import broker_identities
from toolkit.version import __version__

BROKER = 4  # resource type
VERSION, METADATA = "transaction.version", "metadata.version"
VERIFICATION, MAX_TIMEOUT = "transaction.partition.verification.enable", "transaction.max.timeout.ms"
SOFTWARE = "broker software"
CLIENT_VERSION = "client_transaction_version"
NEWEST = 20_000  # offsets of each partition of __transaction_state
UNREAD = "It could not be read: exposure is unknown."


def exposure_rows(client: BrokerClient, *, release: Release | None = None) -> list[Row]:
    """Rows of ``schema.EXPOSURE``: of the cluster, every broker, its software and known bugs, ids with exposed clients.

    What this principal may not read is a row with `error`. The newest 20,000 offsets of each partition of
    ``__transaction_state`` are read.
    """
    brokers = [*_settings(client), *_software(client)]
    return [*_features(client), *brokers, *known_bug_rows(client, release=release), *_clients(client)]


def _features(client: BrokerClient) -> Iterator[Row]:
    """Finalized features, from ApiVersions version 3."""
    request = messages.ApiVersions(client_software_name="kafka-txn-toolkit", client_software_version=__version__)
    (response,) = client.send([(None, request)])
    levels: dict[str, int] | None = None
    error = response.error_text or (error_text(response.message.error_code) if response.message.error_code else None)
    if not error:
        levels = {each.name: each.max_version_level for each in response.message.finalized_features or ()}
    for name in (METADATA, VERSION):
        level = None if levels is None else levels.get(name)
        exposed, means = (None, UNREAD) if error else MEANING[name](level)
        yield _row("cluster", name, response, value=_text(level), exposed=exposed, means=means, error=error)


def _settings(client: BrokerClient) -> Iterator[Row]:
    config = messages.DescribeConfigs
    brokers = sorted(client.brokers)
    names = [VERIFICATION, MAX_TIMEOUT]
    requests = [
        config(
            resources=[
                config.DescribeConfigsResource(
                    resource_type=BROKER, resource_name=str(broker), configuration_keys=names
                )
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        for broker in brokers
    ]
    for broker, response in zip(brokers, client.send(list(zip(brokers, requests, strict=True))), strict=True):
        error, values = response.error_text, {}
        if not error:
            (result,) = response.message.results
            error = error_text(result.error_code, result.error_message) if result.error_code else None
            values = {each.name: each.value for each in result.configs or ()}
        for name in names:
            exposed, means = (None, UNREAD) if error else MEANING[name](values.get(name))
            row = _row("broker", name, response, value=values.get(name), exposed=exposed, means=means, error=error)
            yield {**row, "broker_id": broker}


def _software(client: BrokerClient) -> Iterator[Row]:
    """The software of each broker that answered; `_settings` has the error of one that did not."""
    for broker in broker_identities(client, sorted(client.brokers)):
        software = software_of(broker)
        response = BrokerResponse(broker.broker_id, dt.datetime.now(dt.UTC))
        value = " ".join(filter(None, (software.name, software.release_range)))
        yield _row("broker", SOFTWARE, response, value=value, exposed=None, means=_means(software), error=None)


def _means(software: Software) -> str:
    evidence = f"{software.evidence[0].upper()}{software.evidence[1:]}."
    if software.system:
        differs = f"{software.system.differs} {software.system.remedy}"
        return f"{evidence} There, a transaction without an owner is never proven to hang. {differs}"
    return f"{evidence} Its coordinators end every transaction that they own; one without an owner hangs."


def _clients(client: BrokerClient) -> Iterator[Row]:
    """Ids whose newest record was written by a client below transaction version 2."""
    newest: dict[str, TransactionLogRecord] = {}
    try:
        for record in transaction_log_records(client, read_coordinator_topic(client, STATE_TOPIC), newest=NEWEST):
            if record.error:
                yield _unread_clients(record.error, record.broker_id)
            elif record.transactional_id is not None:
                newest[record.transactional_id] = record
    except ToolkitError as error:
        code = getattr(error, "code", "NETWORK_EXCEPTION")
        yield _unread_clients(f"{code}: {error.what}", None)
        return
    now = dt.datetime.now(dt.UTC)
    for transactional_id, record in sorted(newest.items()):
        version = record.client_transaction_version or 0
        if not record.tombstone and version < 2:
            yield {
                "subject": "transactional_id",
                "name": CLIENT_VERSION,
                "transactional_id": transactional_id,
                "value": str(version),
                "exposed": True,
                "means": "Its client reuses its epoch across transactions: only verification by the brokers keeps a "
                "late message from hanging, and nothing keeps a delayed EndTxn from ending its next transaction "
                "halfway, so that the other half may be committed. Upgrade it to a Java client of 4.0 or newer.",
                "broker_id": record.broker_id,
                "observed_at": now,
                "error": None,
            }


def _unread_clients(error: str, broker_id: int | None) -> Row:
    means = "Clients below transaction version 2 are unknown: grant READ on __transaction_state to list them."
    response = BrokerResponse(broker_id, dt.datetime.now(dt.UTC))
    return _row("transactional_id", CLIENT_VERSION, response, value=None, exposed=None, means=means, error=error)


def _row(
    subject: str,
    name: str,
    response: BrokerResponse,
    *,
    value: str | None,
    exposed: bool | None,
    means: str,
    error: str | None,
) -> Row:
    return {
        "subject": subject,
        "name": name,
        "transactional_id": None,
        "value": value,
        "exposed": exposed,
        "means": means,
        "broker_id": response.broker_id,
        "observed_at": response.observed_at,
        "error": error,
    }


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


MEANING: Mapping[str, Any] = {
    VERSION: _version,
    METADATA: _metadata,
    VERIFICATION: _verification,
    MAX_TIMEOUT: _max_timeout,
}
"""Feature or setting to whether a value exposes, and what it means."""


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
