"""Segments of real brokers, with what Kafka's own tool reads in them."""

import pytest

from tests.formats.written import EXPIRING, Segment, write_and_dump
from toolkit.lab import Kafka

VERSIONS = ["4.3.1", "3.5.2", *(pytest.param(each, marks=pytest.mark.full) for each in ("3.9.2", "4.3.1 expiring"))]


@pytest.fixture(scope="session")
def written() -> dict[str, list[Segment]]:
    """By version, so that none is written twice: the names of topics are the same."""
    return {}


@pytest.fixture(params=VERSIONS)
def segments(request: pytest.FixtureRequest, written: dict[str, list[Segment]]) -> list[Segment]:
    """The segments of one broker; but for the shared one they hold what time brings: tombstones, delete horizons."""
    version = request.param
    if version not in written:
        if version == "4.3.1":
            written[version] = write_and_dump(request.getfixturevalue("kafka"), expiring=False)
        else:
            with Kafka(version.split()[0], properties=EXPIRING) as kafka:
                written[version] = write_and_dump(kafka, expiring=True)
    return written[version]
