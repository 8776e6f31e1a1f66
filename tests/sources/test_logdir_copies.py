"""Copies of a live broker's files in the worst order: a healthy transaction never hangs in them.

The margin for clocks is none here: all brokers are one, so that content proves what it can prove within milliseconds.
What proves it, piece by piece, is in `test_logdir_consistency`.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.process import PATIENCE_S
from tests.sources.log_files import CLEANED, HIGH_WATERMARK, META, STATE_TOPIC
from tests.tiers import amount
from tests.workload import BUSY, Worker
from toolkit import LogDir
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.sources.logdir import consistency, coordinator_state

pytestmark = pytest.mark.lab

PROPERTIES = {
    **BUSY,
    **EVERYDAY.properties,
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.roll.ms": "300",  # segments by the second, so that the cleaner works while they are copied
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
DURATION_S = amount(3, full=20)


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (consistency, coordinator_state):
        monkeypatch.setattr(module, "CLOCKS_APART", dt.timedelta(0))


@pytest.fixture(scope="module")
def busy() -> Iterator[Kafka]:
    with Kafka("4.3.1", properties=PROPERTIES) as kafka:
        yield kafka


def copy(root: Path, to: Path, names: Sequence[str]) -> None:
    """Copy folders and files one after the other, as a copy tool does while the broker writes."""
    to.mkdir(exist_ok=True)
    for name in names:
        if not (root / name).is_dir():
            shutil.copy(root / name, to / name)
            continue
        (to / name).mkdir(exist_ok=True)
        for file in sorted((root / name).iterdir()):
            try:
                if file.suffix not in {".index", ".timeindex"}:
                    shutil.copy(file, to / name / file.name)
            except FileNotFoundError:
                continue  # the cleaner or the deleter was there first


def folders(root: Path, *, of_coordinators: bool) -> list[str]:
    names = [path.name for path in root.iterdir() if path.is_dir() and path.name != "__cluster_metadata-0"]
    return [name for name in names if name.startswith(STATE_TOPIC) == of_coordinators]


MARKS = [META, CLEANED, HIGH_WATERMARK]


@pytest.mark.longer
def test_copies_in_any_order_under_load_have_no_false_hanging(busy: Kafka, tmp_path: Path) -> None:
    root = busy.log_dirs[1]
    topics = [INCIDENTS["marker_only"](busy).topic for _ in range(2)]
    stop, dice = threading.Event(), random.Random("copies")
    topic_partitions = [(topic, number) for topic in topics for number in (0, 1)]
    workers = [Worker(busy, topic_partitions, f"healthy-{number}", stop) for number in range(4)]
    for worker in workers:
        worker.start()
    verdicts = set[str]()

    def has_seen_load() -> bool:
        return sum(worker.endings["commit"] for worker in workers) > 10 and bool({"ongoing", "unknown"} & verdicts)

    try:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < DURATION_S or not has_seen_load():
            assert passed < PATIENCE_S, f"{verdicts}, {[worker.endings for worker in workers]}"
            to = tmp_path / "copy"
            names = [*folders(root, of_coordinators=False), *folders(root, of_coordinators=True), *MARKS]
            dice.shuffle(names)
            cut = dice.randrange(len(names))
            copy(root, to, names[:cut])
            stop.wait(dice.choice([0, 0.1, 0.5]))
            copy(root, to, names[cut:])
            for paths in ([to], [root]):
                rows = LogDir(*paths).finding_rows(topics=topics)
                verdicts |= {row["verdict"] for row in rows}
                assert not [row for row in rows if row["verdict"] == "hanging"]
            shutil.rmtree(to)
    finally:
        stop.set()
        for worker in workers:
            worker.join(PATIENCE_S)
