"""A cluster and an audit trail for the panel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toolkit import Cluster
    from toolkit.actions.audit import Audit
    from toolkit.lab import Kafka


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    from toolkit import Cluster  # it imports kafka-python, which has to wait for the filters of warnings

    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def trail(tmp_path: Path) -> Audit:
    from toolkit.actions.audit import Audit

    return Audit(tmp_path / "audit.jsonl")
