"""Known bugs of a cluster's brokers, by a named release or by their API versions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from toolkit.analysis.broker_software import software_of
from toolkit.analysis.diagnosis.known_bugs import Release, bugs_of, release_of, release_text
from toolkit.errors import ToolkitError
from toolkit.schema import Row
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.state.software_identity import broker_identities
from toolkit.version import __version__

LAST_LEVELS: dict[int, Release] = {7: (3, 3), 8: (3, 4), 11: (3, 5), 14: (3, 6), 19: (3, 7), 20: (3, 8), 21: (3, 9)}
"""Highest metadata.version of a release (MetadataVersion): API versions alone do not distinguish these."""


def known_bug_rows(client: BrokerClient, *, release: Release | None = None) -> Iterator[Row]:
    """Rows of ``schema.EXPOSURE`` for each broker: its release and the known bugs of it.

    Brokers do not report their release; ApiVersions shows the minor release, not the patch.
    """
    for broker_id in sorted(client.brokers):
        error = None
        try:
            detected = _detected(client, broker_id)
        except ToolkitError as failure:
            detected, error = None, f"{getattr(failure, 'code', 'NETWORK_EXCEPTION')}: {failure.what}"
        assumed = release or detected
        yield _row(
            broker_id,
            "kafka version",
            value=release_text(assumed) if assumed else None,
            exposed=None,
            means=_means(release, detected),
            error=error,
        )
        for bug, affects in bugs_of(assumed) if assumed else ():
            condition = "" if affects else f"It depends on the patch release of {release_text(assumed or ())}. "
            means = f"{condition}{bug.title} {bug.effect} {bug.remedy} Fixed in {bug.fixed_in}."
            yield _row(
                broker_id, bug.key, value=release_text(assumed or ()), exposed=affects or None, means=means, error=None
            )


def _detected(client: BrokerClient, broker_id: int) -> Release | None:
    """A broker's minor release, by metadata.version or API versions; null if unknown, or not of Apache Kafka."""
    request = messages.ApiVersions(client_software_name="kafka-txn-toolkit", client_software_version=__version__)
    features = client.send_one(request, broker_id=broker_id).supported_features or ()
    levels = [feature.max_version for feature in features if feature.name == "metadata.version"]
    (identity,) = broker_identities(client, [broker_id])
    releases = software_of(identity).releases
    if levels and levels[0] in LAST_LEVELS:
        return LAST_LEVELS[levels[0]] if releases else None
    return release_of(releases[0]) if len(releases) == 1 else None


def _means(release: Release | None, detected: Release | None) -> str:
    if release is None and detected is None:
        return "Its release is unknown, and so are its bugs. Set it with --kafka-version."
    if release is None:
        return "By its API versions, which do not show the patch release. Set it with --kafka-version."
    if detected is not None and release[:2] != detected:
        return f"As set, but its API versions are those of {release_text(detected)}: check --kafka-version."
    return "As set with --kafka-version."


def _row(broker_id: int, name: str, *, value: str | None, exposed: bool | None, means: str, error: str | None) -> Row:
    return {
        "subject": "known bug",
        "name": name,
        "transactional_id": None,
        "value": value,
        "exposed": exposed,
        "means": means,
        "broker_id": broker_id,
        "observed_at": dt.datetime.now(dt.UTC),
        "error": error,
    }
