"""The API keys and versions of released Apache Kafkas, and the releases that a broker's ApiVersions response matches.

`TABLE` was computed from the jars of every release from 2.8.0 to 4.4.0 (``ApiKeys`` of kafka-clients); patch releases
have the table of their minor release, except 4.0.0. Responses of real brokers match it; a broker deviates from it by
its settings only as `ReleasedApi.allows` and `ReleasedApi.is_required` permit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

Apis = Mapping[int, tuple[int, int]]
"""API key to its lowest and highest version, as ApiVersions returns them."""

TABLE = Path(__file__).with_name("api_versions.txt")
"""Lines of: API key and name, first and last release, listeners, whether brokers forward it, lowest version, highest
version, highest version with unstable.api.versions.enable."""

# 4.0.0 is a row of its own; 4.0 stands for 4.0.1 and 4.0.2.
RELEASES = ["2.8", *(f"3.{minor}" for minor in range(10)), "4.0.0", *(f"4.{minor}" for minor in range(5))]
LISTENERS = "kraft", "zookeeper"

PRODUCE = 0  # from 4.0 on it is listed from version 0 on, for librdkafka (KAFKA-18659)
TELEMETRY = 71, 72  # listed only if a metrics reporter of the broker receives clients' metrics (KIP-714)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedApi:
    """An API of a range of releases.

    Parameters
    ----------
    key, name
        Its key and Kafka's name.
    first, last
        Positions in `RELEASES`.
    listeners
        ``kraft``, ``zookeeper`` or both.
    forwarded
        Whether brokers forward it to the controller. They list the versions that both know: during a rolling upgrade
        fewer than their own.
    low, high, unstable
        Lowest version, highest version, and the highest with unstable.api.versions.enable. `high` is null if only that
        setting enables the API.
    """

    key: int
    name: str
    first: int
    last: int
    listeners: frozenset[str]
    forwarded: bool
    low: int
    high: int | None
    unstable: int

    def allows(self, low: int, high: int) -> bool:
        """Whether a broker of these releases may list these versions."""
        if self.forwarded:
            return self.low <= low <= high <= self.unstable
        lows = {self.low, 0} if self.key == PRODUCE else {self.low}
        return low in lows and high in {self.high, self.unstable}

    @property
    def is_required(self) -> bool:
        """Whether every broker of these releases lists it."""
        return self.high is not None and not self.forwarded and self.key not in TELEMETRY


def matching_releases(apis: Apis) -> list[str]:
    """The releases of Apache Kafka, oldest first, of which a broker with these APIs can be; empty if of none."""
    found = [release for release, differences in _compared(frozenset(apis.items())) if not differences]
    return list(dict.fromkeys(found))


def nearest_release(apis: Apis) -> tuple[str, Sequence[str]]:
    """The release with the fewest differences, and what differs, a phrase each."""
    return min(reversed(_compared(frozenset(apis.items()))), key=lambda found: len(found[1]))


@lru_cache(maxsize=100)
def _compared(apis: frozenset[tuple[int, tuple[int, int]]]) -> Sequence[tuple[str, Sequence[str]]]:
    """Each release and what differs; once for all brokers with these APIs, as it takes 3 ms."""
    by_key = dict(apis)
    return [(release, _differences(by_key, table)) for release, table in _tables()]


def _differences(apis: Apis, table: Mapping[int, ReleasedApi]) -> list[str]:
    found = []
    for key, api in table.items():
        if key not in apis and api.is_required:
            found.append(f"{api.name} is missing")
        elif key in apis and not api.allows(*apis[key]):
            found.append(f"{api.name} has versions {_versions(apis[key])}")
    return found + [f"API key {key} is unknown" for key in sorted(apis.keys() - table.keys())]


def _versions(versions: tuple[int, int]) -> str:
    return f"{versions[0]} to {versions[1]}"


@cache
def _tables() -> Sequence[tuple[str, Mapping[int, ReleasedApi]]]:
    """Release and APIs, for each release and each listener that it has."""
    apis = list(_read())
    tables = []
    for position, release in enumerate(RELEASES):
        for listener in LISTENERS:
            table = {api.key: api for api in apis if api.first <= position <= api.last and listener in api.listeners}
            if table:
                tables.append(("4.0" if release == "4.0.0" else release, table))
    return tables


def _read() -> Iterator[ReleasedApi]:
    for line in TABLE.read_text().splitlines():
        key, name, first, last, listeners, forwarded, low, high, unstable = line.split()
        yield ReleasedApi(
            key=int(key),
            name=name,
            first=RELEASES.index(first),
            last=RELEASES.index(last),
            listeners=frozenset(listeners.split("+")),
            forwarded=forwarded == "forwarded",
            low=int(low),
            high=None if high == "-" else int(high),
            unstable=int(unstable),
        )
