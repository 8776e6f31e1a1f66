"""What exposes a cluster to hanging transactions (KIP-890): levels of features, settings, releases, and clients."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolkit.analysis.broker_software import KnownBug, Release, Software, broker_facts, release_text
from toolkit.analysis.coordinator.transaction_owners import prefix_of
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord

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
    records_until: dt.datetime | None = None  # by the brokers' clocks; null for the newest time in the records


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
    by_release: dict[Release | None, list[str]] = {}
    for each in cluster.brokers:
        by_release.setdefault(each.release, []).append(str(each.broker_id))
    unknown = by_release.pop(None, [])
    known = [(release_text(each), by_release[each]) for each in sorted(filter(None, by_release))]
    if len(known) > 1:
        listed = [*known, ("unknown", unknown)] if unknown else known
        value = ", ".join(f"{release} (broker {' '.join(ids)})" for release, ids in listed)
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
        exposed, condition = _condition(bug, cluster)
        if affects is None:
            exposed = None if exposed else exposed
            condition = f"It depends on the patch release of {of_release.value}. {condition}"
        fixed = f" Fixed in {bug.fixed_in}." if bug.fixed_in else ""
        means = f"{condition}{bug.title} {bug.effect} {bug.remedy}{fixed}"
        yield replace(of_release, name=bug.key, exposed=exposed, means=means, error=None)


def _condition(bug: KnownBug, cluster: ObservedCluster) -> tuple[bool | None, str]:
    """Whether the cluster has the transaction version with which a bug occurs, and a sentence if it has not."""
    if bug.transaction_version is None:
        return True, ""
    needs = f"It needs {VERSION} {bug.transaction_version}"
    if cluster.features_error:
        return None, f"{needs}, and the level of this cluster could not be read. "
    level = cluster.features.get(VERSION, 0)
    if level >= bug.transaction_version:
        return True, ""
    return False, f"{needs}, and this cluster has {level}. "


def _clients(cluster: ObservedCluster) -> Iterator[Exposure]:
    """Growing prefixes, ids whose newest record is of a client below transaction version 2, and what was not read."""
    readable: list[TransactionLogRecord] = []
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
            readable.append(record)
            newest[record.transactional_id] = record
    times = (each.timestamp for each in readable if each.timestamp is not None)
    as_of = cluster.records_until or max(times, default=cluster.observed_at)
    for prefix, created in sorted(new_ids(readable, as_of).items()):
        hours = {each.replace(minute=0, second=0, microsecond=0) for each in created}
        if len(created) >= GROWING_IDS and len(hours) >= GROWING_HOURS:
            per_hour = len(created) / max((as_of - min(created)) / dt.timedelta(hours=1), 1.0)
            yield Exposure(
                subject="prefix",
                name=prefix,
                value=f"{len(created)} new ids in 24 h, {per_hour:.0f} per hour",
                exposed=True,
                means=broker_facts().settings["growing prefix"].unsafe,
                observed_at=cluster.observed_at,
            )
    for transactional_id, record in sorted(newest.items()):
        row = _setting_row(CLIENT_VERSION, str(record.client_transaction_version or 0), of=cluster)
        if row.exposed and not record.tombstone:
            yield replace(row, transactional_id=transactional_id, broker_id=record.broker_id)


GROWING_IDS, GROWING_HOURS = 24, 3
"""New ids of a day, and hours in which they were created, from which on a prefix grows: one start creates many."""


def new_ids(records: Iterable[TransactionLogRecord], as_of: dt.datetime) -> dict[str, list[dt.datetime]]:
    """When the ids of the last 24 hours were created, by prefix.

    An application that never reuses its ids (Flink's KafkaSink by default, Iceberg's sink, ids with a UUID) adds one
    for each run or checkpoint. Coordinators keep each for ``transactional.id.expiration.ms``, 7 days by default.

    `records`: those of each partition in the order of their offsets; unreadable ones are left out.
    """
    known: set[str] = set()  # ids that have a record, since they expired last
    created: dict[str, dt.datetime] = {}  # by the first record of an id: ``Empty``, with epoch 0
    for each in records:
        if each.transactional_id is None or each.timestamp is None:
            continue
        if each.transactional_id not in known and each.state == "Empty" and each.producer_epoch == 0:
            created[each.transactional_id] = each.timestamp
        if each.tombstone:  # a later record is a new id's
            known.discard(each.transactional_id)
        else:
            known.add(each.transactional_id)
    by_prefix: dict[str, list[dt.datetime]] = {}
    for transactional_id, time in created.items():
        if time > as_of - dt.timedelta(days=1):
            by_prefix.setdefault(prefix_of(transactional_id), []).append(time)
    return by_prefix
