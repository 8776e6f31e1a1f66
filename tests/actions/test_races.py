"""No healthy transaction is ever aborted, whatever a producer does meanwhile: see `tests.tools.large.broker_races`."""

import uuid

import pytest

from tests.tiers import amount, seed
from tests.tools.large.broker_races import Race, run_race
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka

pytestmark = pytest.mark.lab

RACES = int(amount(40, full=400))


@pytest.mark.longer
@pytest.mark.timeout(2 * (600 + 2 * RACES))
def test_no_healthy_transaction_is_ever_aborted(kafka: Kafka, audit: Audit) -> None:
    name = uuid.uuid4().hex[:8]
    run_race(kafka, Race(topic=f"races-{name}", seed=seed() or name, count=RACES), audit)
