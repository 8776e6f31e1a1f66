"""Plots of a real broker, stopped and running."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.views.plots.drawn import bars, hovers, traces, words
from toolkit import LogDir
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.views.plots import plot_timeline

pytestmark = pytest.mark.lab


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A broker's files after it stopped, and what was staged on it."""

    path: Path
    staged: dict[str, StagedIncident]


@pytest.fixture(scope="module")
def stopped() -> Iterator[Stopped]:
    with Kafka("4.3.1", properties=EVERYDAY.properties) as kafka:
        staged = {name: INCIDENTS[name](kafka) for name in ("late_message", "several_open")}
        kafka.stop_broker(1)
        yield Stopped(path=kafka.log_dirs[1], staged=staged)


@pytest.mark.parametrize("name", ["late_message", "several_open"])
def test_the_timeline_of_a_log_directory_shows_partition_and_coordinator(stopped: Stopped, name: str) -> None:
    staged = stopped.staged[name]
    files = LogDir(stopped.path, consistent_copy=True)
    topics, partitions = [staged.topic], [staged.partition]
    figure = plot_timeline(
        files.log_transactions(topics=topics, partitions=partitions),
        lso_timeline=files.lso_timeline(topics=topics, partitions=partitions),
        partitions=files.partitions(topics=topics, partitions=partitions),
        findings=files.findings(topics=topics, partitions=partitions),
        transaction_log=files.transaction_log(),
    )
    everything = [each for each in (staged, *staged.also) if each.topic == staged.topic]
    hanging = [each.start_offset for each in everything if each.expected == "hanging"]
    assert [offset for _, _, offset in bars(traces(figure)["HANGING ◆"])] == hanging
    assert f"LSO held at {staged.start_offset}" in words(figure)
    text = "\n".join(hovers(figure))
    assert all(f"producer <b>{each.producer_id}<" in text for each in everything)
    assert all(f"transactional id <b>{each.transactional_id}<" in text for each in everything)
    lso = traces(figure)["LSO"]["y"]
    assert lso[-1] == staged.start_offset
    assert staged.transactional_id in traces(figure)["CompleteAbort" if name == "late_message" else "Empty"]["y"]
