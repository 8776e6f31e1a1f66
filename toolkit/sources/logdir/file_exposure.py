"""Exposure of the cluster that files are of, by the metadata log of KRaft and the log of the coordinators.

Only settings that were changed while the cluster ran are in the metadata log: others are in each broker's
``server.properties``, or have the default.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

from toolkit.analysis.diagnosis.known_bugs import Release
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
)
from toolkit.formats.log.metadata_records import MetadataState
from toolkit.schema.live import Exposure
from toolkit.schema.log import TransactionLogRecord
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.replica.metadata_log import MetadataEnd, furthest

NO_METADATA_LOG = (
    "NO_METADATA_LOG: the files have no __cluster_metadata-0, as with ZooKeeper, or it was not copied; it is on every "
    "controller and broker."
)
NOT_DYNAMIC = (
    "It was not changed while the cluster ran: server.properties of the broker decides, or the default, and neither is "
    "among the files."
)


def read_exposure(
    contents: Contents, records: Iterable[TransactionLogRecord], *, release: Release | None, as_of: dt.datetime
) -> Iterator[Exposure]:
    """Exposure of the cluster, its brokers, and ids with exposed clients.

    `records`: of ``__transaction_state``.
    `release`: release of the brokers; null for the minor release that each broker registered.
    `as_of`: up to when the files reach.
    """
    metadata = furthest(contents.metadata_ends) or MetadataEnd(MetadataState(), error=NO_METADATA_LOG)
    yield from feature_exposure(metadata.state.features, broker_id=None, observed_at=as_of, error=metadata.error)
    releases = [
        BrokerRelease(
            broker_id=broker_id,
            release=LAST_LEVELS.get(broker.max_metadata_version or 0),
            observed_at=as_of,
            source="the features that it registered",
        )
        for broker_id, broker in sorted(metadata.state.brokers.items())
    ]
    yield from mixed_versions(releases)
    yield from _settings(metadata, [each.broker_id for each in releases], as_of)
    yield from bug_exposure(releases, release=release)
    yield from id_exposure(records, now=as_of, as_of=as_of)


def _settings(metadata: MetadataEnd, brokers: Sequence[int | None], as_of: dt.datetime) -> Iterator[Exposure]:
    settings = metadata.state.settings
    for broker_id in brokers:
        for name in (VERIFICATION, MAX_TIMEOUT):
            value = settings.get((f"broker {broker_id}", name), settings.get(("broker for all", name)))
            meaning = (None, NOT_DYNAMIC) if value is None else None
            yield setting_exposure(
                name, value, broker_id=broker_id, observed_at=as_of, error=metadata.error, meaning=meaning
            )
