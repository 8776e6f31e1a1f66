"""Ids that brokers really keep: a grid as Flink's, beside one as of pods of Spring Kafka."""

import uuid

import pytest

from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.producer import TxnProducer
from toolkit.schema import Row

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def run() -> str:
    """Part of the ids of this run; a letter at its end, so that the ids have the prefix as a whole."""
    return f"{uuid.uuid4().hex[:6]}x"


def grid(run: str, first: int) -> list[str]:
    return [f"grid.{run}-{subtask}-{number}" for subtask in range(2) for number in range(first, first + 3)]


@pytest.fixture(scope="module")
def ids(kafka: Kafka, run: str) -> dict[str, list[str]]:
    """Ids of a Flink job, of pods that number their producers from 0, and random ones."""
    with Cluster(kafka.bootstrap_servers) as cluster:
        found = {
            "flink": grid(f"flink{run}", 7),
            "spring": grid(f"spring{run}", 0),
            "random": [f"random{run}-{uuid.uuid4()}" for _ in range(3)],
        }
        for name, names in found.items():
            for each in names:
                producer = TxnProducer(cluster.client, each, timeout_ms=60_000 if name == "random" else 600_000)
                producer.init()
    return found


def owners(rows: list[Row]) -> dict[str, str | None]:
    return {row["transactional_id"]: row["application"] for row in rows}


def test_a_grid_of_subtasks_and_checkpoints_is_flinks(kafka: Kafka, ids: dict[str, list[str]], run: str) -> None:
    with Cluster(kafka.bootstrap_servers) as cluster:
        found = owners(cluster.transaction_owner_rows())
        assert {found[each] for each in ids["flink"]} == {f"grid.flink{run}"}
        assert {found[each] for each in (*ids["spring"], *ids["random"])} == {None}
        (named,) = cluster.transaction_owner_rows(transactional_ids=ids["flink"][:1])
        assert (named["framework"], named["task"], named["confidence"]) == ("Apache Flink", "subtask 0", "likely")
