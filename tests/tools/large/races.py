"""Races of markers against producers: on the model of the exploration, and on real brokers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.actions.test_complete import PROPERTIES
from tests.tools.large import broker_races, model_races, skipped_races
from tests.tools.large.broker_races import Race
from tests.tools.large.recorder import PATIENCE_S
from tests.tools.large.sitting import Sitting
from toolkit.actions.audit import Audit
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka

SLOW = {**PROPERTIES, "broker.session.timeout.ms": "60000"}  # a broker that is slow is not fenced
PARTS = ("model", "brokers")
COUNT, PRODUCERS, AT_ONCE = 400, 32, 16  # of a race


def run(sitting: Sitting, *parts: str) -> None:
    """On the model, on brokers, or half of the time on each."""
    names = parts or PARTS
    if "model" in names:
        model_races.run(sitting, sitting.seconds / len(names))
    if "brokers" in names:
        _on_brokers(sitting)


def _on_brokers(sitting: Sitting) -> None:
    with (
        Kafka("4.3.1", brokers=2, properties=SLOW, timeout=PATIENCE_S) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        for number in sitting.numbers():
            name = f"race-{sitting.seed}-{number}"
            race = Race(name, name, COUNT, producers=PRODUCERS, at_once=AT_ONCE)
            audit = Audit(Path(folder) / f"{name}.jsonl")
            kind = broker_races if number % 2 == 0 else skipped_races
            try:
                kind.run_race(kafka, race, audit)
                sitting.counts["brokers: committed without a marker, completed"] += len(race.unfinished)
                sitting.counts["brokers: hanging, aborted"] += len(race.hanging)
            except (AssertionError, ToolkitError) as error:
                sitting.check(False, f"{kind.__name__.rpartition('.')[2]}, {name}: {error!r:.2000}")
            print(f"{time.strftime('%H:%M:%S')} {name}: {race.attempts} attempts", flush=True)
            sitting.counts["brokers: transactions"] += race.count
            sitting.counts["brokers: attempts to abort or complete"] += race.attempts
            sitting.counts["brokers: refused"] += race.refusals.total()
