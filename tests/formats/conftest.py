"""Segments of real brokers, with what Kafka's own tool reads in them."""

import os

import pytest

from tests.formats.written import EXPIRING, Segment, write_and_dump
from toolkit.lab import Kafka

ALL = "KAFKA_TXN_ALL_VERSIONS" in os.environ  # half a minute more
VERSIONS = ["4.3.1", "3.5.2", *(["3.9.2", "4.3.1 expiring"] if ALL else [])]


@pytest.fixture(scope="session", params=VERSIONS)
def segments(request: pytest.FixtureRequest) -> list[Segment]:
    """The segments of one broker; but for the shared one they hold what time brings: tombstones, delete horizons."""
    version = request.param
    if version == "4.3.1":
        return write_and_dump(request.getfixturevalue("kafka"), expiring=False)
    with Kafka(version.split()[0], properties=EXPIRING) as kafka:
        return write_and_dump(kafka, expiring=True)
