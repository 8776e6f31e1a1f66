"""How far a cluster is protected from hanging transactions (KIP-890): features, settings, and what clients do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit import __version__
from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.errors import ToolkitError
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources import wire as kafka
from toolkit.sources.live_events import coordinator_places, event_rows
from toolkit.sources.wire import Answer, Wire, error_text

__all__ = ["exposure_rows"]

BROKER = 4  # resource type
VERSION, METADATA = "transaction.version", "metadata.version"
VERIFICATION, MAX_TIMEOUT = "transaction.partition.verification.enable", "transaction.max.timeout.ms"
CLIENT_VERSION = "client_transaction_version"
NEWEST = 20_000  # offsets of each partition of __transaction_state
UNREAD = "It could not be read, so nothing is known of it."


def exposure_rows(wire: Wire) -> list[Row]:
    """Rows of ``schema.EXPOSURE``: of the cluster, of every broker, and of the ids whose clients are exposed.

    Whatever may not be read is a row with `error`. Of each partition of ``__transaction_state`` the newest 20,000
    offsets are read.
    """
    return [*_features(wire), *_settings(wire), *_clients(wire)]


def _features(wire: Wire) -> Iterator[Row]:
    """Finalized features, which ApiVersions tells from version 3 on."""
    request = kafka.ApiVersions(client_software_name="kafka-txn-toolkit", client_software_version=__version__)
    (answer,) = wire.send([(None, request)])
    levels: dict[str, int] | None = None
    error = answer.error_text or (error_text(answer.message.error_code) if answer.message.error_code else None)
    if not error:
        levels = {each.name: each.max_version_level for each in answer.message.finalized_features or ()}
    for name in (METADATA, VERSION):
        level = None if levels is None else levels.get(name)
        exposed, means = (None, UNREAD) if error else MEANING[name](level)
        yield _row("cluster", name, answer, value=_text(level), exposed=exposed, means=means, error=error)


def _settings(wire: Wire) -> Iterator[Row]:
    config = kafka.DescribeConfigs
    brokers = sorted(wire.brokers)
    names = [VERIFICATION, MAX_TIMEOUT]
    asked = [
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
    for broker, answer in zip(brokers, wire.send(list(zip(brokers, asked, strict=True))), strict=True):
        error, values = answer.error_text, {}
        if not error:
            (found,) = answer.message.results
            error = error_text(found.error_code, found.error_message) if found.error_code else None
            values = {each.name: each.value for each in found.configs or ()}
        for name in names:
            exposed, means = (None, UNREAD) if error else MEANING[name](values.get(name))
            row = _row("broker", name, answer, value=values.get(name), exposed=exposed, means=means, error=error)
            yield {**row, "broker_id": broker}


def _clients(wire: Wire) -> Iterator[Row]:
    """Ids whose newest record was written by a client before transaction version 2."""
    newest: dict[str, Row] = {}
    try:
        for row in event_rows(wire, coordinator_places(wire, STATE_TOPIC), newest=NEWEST):
            if row["error"]:
                yield _unread_clients(row["error"], row["broker_id"])
            elif row["transactional_id"] is not None:
                newest[row["transactional_id"]] = row
    except ToolkitError as error:
        code = getattr(error, "code", "NETWORK_EXCEPTION")
        yield _unread_clients(f"{code}: {error.what}", None)
        return
    now = dt.datetime.now(dt.UTC)
    for transactional_id, row in sorted(newest.items()):
        version = row["client_transaction_version"] or 0
        if not row["tombstone"] and version < 2:
            yield {
                "subject": "transactional_id",
                "name": CLIENT_VERSION,
                "transactional_id": transactional_id,
                "value": str(version),
                "exposed": True,
                "means": "Its client keeps its epoch from one transaction to the next: only verification by the "
                "brokers keeps a late message of it from hanging. Move it to a Java client of 4.0 or newer.",
                "broker_id": row["broker_id"],
                "observed_at": now,
                "error": None,
            }


def _unread_clients(error: str, broker_id: int | None) -> Row:
    means = "Which clients write as before transaction version 2 is not known: READ on __transaction_state shows it."
    answer = Answer(broker_id, dt.datetime.now(dt.UTC))
    return _row("transactional_id", CLIENT_VERSION, answer, value=None, exposed=None, means=means, error=error)


def _row(
    subject: str, name: str, answer: Answer, *, value: str | None, exposed: bool | None, means: str, error: str | None
) -> Row:
    return {
        "subject": subject,
        "name": name,
        "transactional_id": None,
        "value": value,
        "exposed": exposed,
        "means": means,
        "broker_id": answer.broker_id,
        "observed_at": answer.observed_at,
        "error": error,
    }


def _version(level: int | None) -> tuple[bool, str]:
    if level is None or level < 2:
        return True, (
            "Clients keep their epoch from one transaction to the next, so a late message can join, or open, one that "
            "nobody ends; only verification by the brokers stands against it. Version 2 (Kafka 4.0) ends that: "
            "kafka-features.sh upgrade --feature transaction.version=2."
        )
    return False, (
        "A client of 4.0 or newer has a new epoch for each transaction, so a late message is refused; older clients "
        "write as before."
    )


def _metadata(level: int | None) -> tuple[bool | None, str]:
    if level is None:
        return None, "The cluster has no such feature: it runs on ZooKeeper, where transaction.version stays 0."
    return None, "It bounds the other features: transaction.version 2 takes that of Kafka 4.0."


def _verification(value: str | None) -> tuple[bool, str]:
    if value is None:
        return True, (
            "The broker is older than 3.6, and takes a transactional write that its coordinator knows nothing of: that "
            "is how transactions hang."
        )
    if value == "true":
        return False, (
            "A write of a client before transaction version 2 is refused where its transaction does not have the "
            "partition; a late message can still join the next transaction of the same epoch."
        )
    return True, (
        "The broker takes a transactional write that its coordinator knows nothing of: that is how transactions hang. "
        "Set it to true; it needs no restart."
    )


def _max_timeout(value: str | None) -> tuple[bool | None, str]:
    if value is None:
        return None, UNREAD
    if int(value) > MAX_TRANSACTION_TIMEOUT_MS:
        return True, (
            "A client may keep a transaction open, and the LSO held, for longer than the 15 minutes of the default, as "
            "Flink wants it; what it left behind is aborted that late, too."
        )
    return False, "No transaction with an owner holds an LSO for much longer than this."


MEANING: Mapping[str, Any] = {
    VERSION: _version,
    METADATA: _metadata,
    VERIFICATION: _verification,
    MAX_TIMEOUT: _max_timeout,
}
"""By feature or setting: whether a value exposes, and what it means."""


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
