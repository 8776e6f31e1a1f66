"""Segments of real brokers, with what Kafka's own tool reads in them."""

import pytest

from tests.formats.written import EXPIRING, Segment, write_and_dump
from toolkit.lab import Kafka

VERSIONS = ["4.3.1", "3.5.2", *(pytest.param(each, marks=pytest.mark.full) for each in ("3.9.2", "4.3.1 expiring"))]


@pytest.fixture(scope="session", params=VERSIONS)
def segments(request: pytest.FixtureRequest) -> list[Segment]:
    """The segments of one broker; but for the shared one they hold what time brings: tombstones, delete horizons."""
    version = request.param
    if version == "4.3.1":
        return write_and_dump(request.getfixturevalue("kafka"), expiring=False)
    with Kafka(version.split()[0], properties=EXPIRING) as kafka:
        return write_and_dump(kafka, expiring=True)
