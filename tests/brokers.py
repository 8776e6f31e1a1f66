"""The real brokers that the tests of one worker share, and the versions that each tier runs on."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from toolkit.lab import Kafka

if TYPE_CHECKING:  # with kafka-python, which has to wait for pytest's filters of warnings
    from toolkit import Cluster
    from toolkit.lab.incidents import ClusterSetup

NEWEST = "4.3.1"
OLDER = "3.5.2"
"""The newest before KIP-890: every incident can be staged on it with default settings and without newer protocols."""


EVERY_WORKERS = (NEWEST, "everyday")
"""The cluster of the fixture ``kafka``, which has no group."""


@dataclass(kw_only=True)
class _Shared:
    kafka: Kafka
    users: int = 0


class Brokers:
    """Clusters by version and setup, each started once and kept for the next test of the group that wants it.

    Tests of a shared cluster write to topics and ids of their own, and bring back the brokers that they stop.
    """

    def __init__(self) -> None:
        self._shared: dict[tuple[str, str], _Shared] = {}

    @contextlib.contextmanager
    def use(self, version: str, setup: ClusterSetup) -> Iterator[Kafka]:
        """A running cluster; it is not stopped while in use."""
        key = version, setup.name
        if key not in self._shared:
            kafka = Kafka(version, brokers=setup.brokers, properties=setup.properties).start()
            self._shared[key] = _Shared(kafka=kafka)
        shared = self._shared[key]
        shared.users += 1
        try:
            yield shared.kafka
        finally:
            shared.users -= 1

    def stop(self, *, keep: Collection[tuple[str, str]] = ()) -> None:
        """Stop those that no test uses: an idle broker takes 1.5 % of a processor."""
        for key in [key for key, shared in self._shared.items() if not shared.users and key not in keep]:
            self._shared.pop(key).kafka.stop()


def set_timeout(cluster: Cluster, seconds: float) -> None:
    """Set how long a cluster waits for a response from now on: shortly for a broker that is down or paused."""
    cluster.timeout = cluster.client.timeout = seconds


def by_tier(*versions: str, group: str = "") -> list[Any]:
    """Versions as parameters of a lab test: all but the newest and `OLDER` are in the full tier.

    With a group, tests of one version are run by one worker, whatever file they are in.
    """
    return [pytest.param(each, marks=_marks(each in {OLDER, NEWEST}, group and f"{group} {each}")) for each in versions]


def on_cluster(
    version: str, setup: ClusterSetup, *values: Any, id: str, marks: Sequence[pytest.MarkDecorator] = ()
) -> Any:
    """Parameters ``(version, setup)`` of the fixture ``lab``, and others, in that cluster's group.

    In the first tier are all setups of the newest version, and the everyday one of `OLDER`. Every worker has the
    fixture ``kafka``, so its cluster has no group.
    """
    cluster = version, setup.name
    group = "" if cluster == EVERY_WORKERS else " ".join(cluster)
    is_first = version == NEWEST or cluster == (OLDER, "everyday")
    return pytest.param((version, setup), *values, marks=[*_marks(is_first, group), *marks], id=id)


def _marks(is_first: bool, group: str) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.lab]
    if not is_first:
        marks.append(pytest.mark.full)
    if group:
        marks.append(pytest.mark.xdist_group(group))
    return marks
