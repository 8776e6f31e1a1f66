"""A cluster and an audit trail for the panel."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.lab import Kafka


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def trail(tmp_path: Path) -> Audit:
    return Audit(tmp_path / "audit.jsonl")
