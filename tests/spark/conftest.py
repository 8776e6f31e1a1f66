"""One Spark session for every test that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from toolkit.lab.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but for pyspark's own that no one here can cure."""
    # pyspark warns of every pandas from 3 on, the ones that it works with included.
    config.addinivalue_line("filterwarnings", "ignore:.*pandas.*:FutureWarning:pyspark.*")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Classic Spark, two threads."""
    session = local_session(master="local[2]", config=SMALL)
    yield session
    session.stop()
