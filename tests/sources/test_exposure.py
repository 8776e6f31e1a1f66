"""What keeps transactions from hanging, on real brokers from 2.8 on, and where a right is missing."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders import stage, upgrade
from tests.sources.fake import FakeCluster, Node
from tests.sources.recorded import RECORDED_APIS
from toolkit import Cluster, LogDir
from toolkit.analysis.exposure import CLIENT_VERSION
from toolkit.errors import BrokerError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.samples import load
from toolkit.schema import Row
from toolkit.sources.live.coordinator_logs import read_exposure


def values(rows: list[Row]) -> dict[str, str | None]:
    return {row["name"]: row["value"] for row in rows if row["subject"] != "transactional_id"}


@pytest.mark.full
@pytest.mark.lab
def test_a_half_upgraded_cluster_is_exposed_until_every_coordinator_verifies() -> None:
    with Kafka("3.5.2", brokers=2, properties={"transaction.state.log.replication.factor": 1}) as kafka:
        upgrade(kafka, 2, "3.9.2")
        with Cluster(kafka.bootstrap_servers, timeout=20) as cluster:
            rows = cluster.exposure_rows()
            assert values(rows)["mixed versions"] == "3.5 (broker 1), 3.9 (broker 2)"
            verification = [row for row in rows if row["name"] == "transaction.partition.verification.enable"]
            assert [(row["value"], row["exposed"]) for row in verification] == [(None, True), ("true", True)]
            staged = stage(kafka, "half-upgraded", [2], 1)
            assert staged, "the newer leader accepted what the older coordinator could not verify"
            (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
            assert (row["verdict"], row["outcome"], row["action"]) == ("hanging", "undecided", "abort")
            upgrade(kafka, 1, "3.9.2")
            rows = cluster.exposure_rows()
            assert "mixed versions" not in values(rows)
            assert {row["exposed"] for row in rows if row["name"].endswith("verification.enable")} == {False}
            assert stage(kafka, "upgraded", [2], 1) is None
            (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
            assert row["verdict"] == "hanging", "an upgrade frees nothing"


@pytest.mark.parametrize(("level", "release"), [(7, "3.3"), (8, "3.4"), (None, None)])
def test_releases_that_list_the_same_apis_are_told_apart_by_the_level_of_metadata(
    level: int | None, release: str | None
) -> None:
    """No cluster of the corpus is of such a release, so nothing noticed when the levels were not read."""

    def denied(*_: object) -> Any:
        raise BrokerError("denied", code="CLUSTER_AUTHORIZATION_FAILED")

    features = [] if level is None else [Node(name="metadata.version", max_version=level)]
    answer = Node(error_code=0, supported_features=features, finalized_features=[])
    cluster: Any = FakeCluster(ApiVersions=lambda broker, request: answer, DescribeConfigs=denied)
    cluster.apis = lambda broker: RECORDED_APIS["3.3.2"]
    rows = [row for row in read_exposure(cluster) if row.name == "kafka version"]
    assert [(row.broker_id, row.value) for row in rows] == [(1, release), (2, release)]


def test_clients_whose_coordinators_were_not_copied_are_unknown(tmp_path: Path) -> None:
    """Without ``__transaction_state`` among the files no client was named, as if every one were of version 2."""
    copied = shutil.copytree(str(load("late-message").log_dir().paths[0]), tmp_path / "data")
    known = [row for row in LogDir(copied).exposure_rows() if row["name"] == CLIENT_VERSION]
    assert (len(known), {row["error"] for row in known}) == (3, {None})
    shutil.rmtree(copied / f"{STATE_TOPIC}-25")
    rows = [row for row in LogDir(copied).exposure_rows() if row["name"] == CLIENT_VERSION]
    (unread,) = (row for row in rows if row["transactional_id"] is None)
    assert len(rows) == 3
    assert "49 of its 50 partitions are among the files, not 25" in unread["error"]
