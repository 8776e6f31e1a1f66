"""One Spark, with a new session for each test, and one history of real clients, shared by the tests."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.settings import QUICK
from tests.tiers import amount, seed
from toolkit.lab import Kafka
from toolkit.spark.spark_session import delta_settings, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGED = ("never_added", "late_message", "superseded_elsewhere", "open_young")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of pyspark itself; all others are errors."""
    # pyspark warns of every pandas from 3 on, even of versions that it supports.
    config.addinivalue_line("filterwarnings", "ignore:.*pandas.*:FutureWarning:pyspark.*")
    config.addinivalue_line("filterwarnings", "ignore:The copy keyword is deprecated:Warning:pyspark.*")


@pytest.fixture(scope="session")
def spark_process() -> Iterator[SparkSession]:
    """Classic Spark with Delta Lake, two threads."""
    session = local_session(master="local[2]", config={**delta_settings(), **QUICK})
    yield session
    session.stop()


@pytest.fixture
def spark(spark_process: SparkSession) -> SparkSession:
    """A session in which no data source is registered, nothing is set, and no view is left of another test."""
    session = spark_process.newSession()
    session.createDataFrame([], "number int")  # makes it the active one, whose data sources Spark compares by name
    return session


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of a cleanly stopped broker: random transactions of real clients, and hanging ones.

    Topics of all kinds in many segments, compaction, deleted records; see `tests.workload`.
    """
    from tests.workload import BUSY, random_workload  # imports kafka-python, which needs the filters
    from toolkit.lab.incidents import EVERYDAY, INCIDENTS

    folder = tmp_path_factory.mktemp("history") / "logs"
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka("4.3.1", properties={**BUSY, **EVERYDAY.properties}))
        stack.enter_context(random_workload(kafka, seed=seed() or uuid.uuid4().hex[:6], seconds=amount(6, full=15)))
        for name in STAGED:
            stack.enter_context(INCIDENTS[name](kafka))
        kafka.stop_broker(1)
        shutil.copytree(kafka.log_dirs[1], folder, copy_function=shutil.copy2)
        kafka.start_broker(1)  # so that the incidents can end their transactions
    return folder
