"""What exposes a cluster to hanging transactions (KIP-890): levels of features, settings, releases, and clients."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from toolkit.analysis.coordinator.transactional_id_prefixes import logged_ids
from toolkit.analysis.diagnosis.known_bugs import Release, bugs_of, release_text
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord

VERSION, METADATA = "transaction.version", "metadata.version"
VERIFICATION, MAX_TIMEOUT = "transaction.partition.verification.enable", "transaction.max.timeout.ms"
MIXED = "mixed versions"
CLIENT_VERSION = "client_transaction_version"
UNREAD = "It could not be read: exposure is unknown."
LAST_LEVELS: Mapping[int, Release] = {
    7: (3, 3),
    8: (3, 4),
    11: (3, 5),
    14: (3, 6),
    19: (3, 7),
    20: (3, 8),
    21: (3, 9),
    25: (4, 0),
    27: (4, 1),
    29: (4, 2),
    30: (4, 3),
    33: (4, 4),
}
"""Highest metadata.version of a release (MetadataVersion): API versions alone do not distinguish those before 4.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRelease:
    """The minor release of a broker; null if it is unknown, or the broker is not Apache Kafka."""

    broker_id: int | None
    release: Release | None
    observed_at: dt.datetime
    error: str | None = None
    source: str = "its API versions"


def feature_exposure(
    levels: Mapping[str, int], *, broker_id: int | None, observed_at: dt.datetime, error: str | None
) -> Iterator[Exposure]:
    """What the finalized features mean; `error` if `levels` could not be read."""
    for name in (METADATA, VERSION):
        level = levels.get(name)
        exposed, means = (None, UNREAD) if error else MEANING[name](level)
        yield Exposure(
            subject="cluster",
            name=name,
            value=None if level is None or error else str(level),
            exposed=exposed,
            means=means,
            broker_id=broker_id,
            observed_at=observed_at,
            error=error,
        )


def setting_exposure(
    name: str,
    value: str | None,
    *,
    broker_id: int | None,
    observed_at: dt.datetime,
    error: str | None,
    meaning: tuple[bool | None, str] | None = None,
) -> Exposure:
    """What a setting of a broker means; `meaning`, if its value alone does not say it; nothing with `error`."""
    exposed, means = (None, UNREAD) if error else meaning or MEANING[name](value)
    return Exposure(
        subject="broker",
        name=name,
        value=value,
        exposed=exposed,
        means=means,
        broker_id=broker_id,
        observed_at=observed_at,
        error=error,
    )


def mixed_versions(releases: Sequence[BrokerRelease]) -> Iterator[Exposure]:
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


def bug_exposure(releases: Sequence[BrokerRelease], *, release: Release | None) -> Iterator[Exposure]:
    """The release of each broker and the known bugs of it: of a minor release, as nothing shows the patch."""
    for broker in releases:
        assumed = release or broker.release
        of_release = Exposure(
            subject="known bug",
            name="kafka version",
            value=release_text(assumed) if assumed else None,
            means=_release_means(release, broker),
            broker_id=broker.broker_id,
            observed_at=broker.observed_at,
            error=broker.error,
        )
        yield of_release
        for bug, affects in bugs_of(assumed) if assumed else ():
            condition = "" if affects else f"It depends on the patch release of {of_release.value}. "
            fixed = f" Fixed in {bug.fixed_in}." if bug.fixed_in else ""
            means = f"{condition}{bug.title} {bug.effect} {bug.remedy}{fixed}"
            yield replace(of_release, name=bug.key, exposed=affects or None, means=means, error=None)


def id_exposure(
    records: Iterable[TransactionLogRecord], *, now: dt.datetime, as_of: dt.datetime | None = None
) -> Iterator[Exposure]:
    """Prefixes that get ever more ids, ids whose newest record is of a client below transaction version 2, and errors.

    `records`: of ``__transaction_state``. `now`: when they were read, or up to when they reach.
    `as_of`: up to when they reach, by the brokers' clocks; null for the newest time in them.
    """
    newest: dict[str, TransactionLogRecord] = {}
    readable: list[TransactionLogRecord] = []
    for record in records:
        if record.error:
            yield unread_clients(record.error, record.broker_id, partition=record.txn_state_partition, now=now)
        elif record.transactional_id is not None:
            readable.append(record)
            newest[record.transactional_id] = record
    as_of = as_of or max((each.timestamp for each in readable if each.timestamp is not None), default=None)
    if as_of is not None:
        yield from growing_prefixes(readable, now=now, as_of=as_of)
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


def growing_prefixes(
    records: Iterable[TransactionLogRecord], *, now: dt.datetime, as_of: dt.datetime
) -> Iterator[Exposure]:
    """Prefixes under which new ids are created all the time. `now`, `as_of`: as for `id_exposure`."""
    for prefix, logged in sorted(logged_ids(records).items()):
        if logged.is_growing(as_of):
            yield Exposure(
                subject="prefix",
                name=prefix,
                value=f"{len(logged.recent(as_of))} new ids in 24 h, {logged.per_hour(as_of):.0f} per hour",
                exposed=True,
                means="Its clients do not reuse their ids, so that no later instance fences an abandoned transaction: "
                "it is aborted after its timeout. Coordinators keep each id for transactional.id.expiration.ms, "
                "7 days by default. Give each instance an id of its own that stays; Flink has "
                "TransactionNamingStrategy.POOLING.",
                observed_at=now,
            )


def unread_clients(error: str, broker_id: int | None, *, partition: int | None = None, now: dt.datetime) -> Exposure:
    """The row that stands for clients of ids that could not be read; those of all partitions if `partition` is null."""
    where = STATE_TOPIC if partition is None else f"{STATE_TOPIC}-{partition}"
    return Exposure(
        subject="transactional_id",
        name=CLIENT_VERSION,
        means=f"Clients below transaction version 2 are unknown: their records in {where} were not read.",
        broker_id=broker_id,
        observed_at=now,
        error=error,
    )


def _release_means(release: Release | None, broker: BrokerRelease) -> str:
    if release is None and broker.release is None:
        return "Its release is unknown, and so are its bugs. Set it with --kafka-version."
    if release is None:
        return f"By {broker.source}, which do not show the patch release. Set it with --kafka-version."
    if broker.release is not None and release[:2] != broker.release:
        return f"As set, but {broker.source} are those of {release_text(broker.release)}: check --kafka-version."
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
