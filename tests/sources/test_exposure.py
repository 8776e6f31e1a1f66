"""What keeps transactions from hanging, on real brokers from 2.8 on, and where a right is missing."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tests.brokers import by_tier
from tests.process import on
from tests.rolling_upgrade import Rolling, stage
from toolkit import Cluster, LogDir
from toolkit.analysis.exposure_rules import VERIFICATION
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.queries import until
from toolkit.schema import EXPOSURE, Row

pytestmark = pytest.mark.lab

BUGS = {  # of the minor release, as brokers report no more; those in brackets depend on the patch release
    "2.8.2": "14055 14402 15449 16352 17507 20090",
    "3.5.2": "14402 15449 16352 17507 20090",
    "3.9.2": "(17507) (19690) 20090",
    "4.3.1": "20357 20734 20785",
    "4.4.0": "20357 20734 20785",
}
VERSIONS = {  # verification, transaction.version, whether the id's client is known to write as before
    "2.8.2": (None, None),
    "3.5.2": (None, None),
    "3.9.2": ("true", None),
    "4.3.1": ("true", "2"),
    "4.4.0": ("true", "2"),
}


def values(rows: list[Row]) -> dict[str, str | None]:
    return {row["name"]: row["value"] for row in rows if row["subject"] != "transactional_id"}


def bugs(rows: list[Row]) -> str:
    found = [(row["name"].removeprefix("KAFKA-"), row["exposed"]) for row in rows if row["name"].startswith("KAFKA-")]
    return " ".join(key if exposed else f"({key})" for key, exposed in found)


def release(rows: list[Row]) -> str | None:
    (value,) = [row["value"] for row in rows if row["name"] == "kafka version"]
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", by_tier(*VERSIONS))
def test_the_exposure_of_each_kafka_version(version: str) -> None:
    with Kafka(version) as kafka:
        with INCIDENTS["open_young"](kafka) as staged:  # by a client as those before 4.0 are
            pass
        with Cluster(kafka.bootstrap_servers) as cluster:
            rows = cluster.exposure_rows()
            stored = (kafka.log_dirs[1] / "meta.properties").read_text().splitlines()
            assert f"cluster.id={cluster.client.cluster_id}" in stored
            assert len(cluster.exposure()) == len(rows)
            named = cluster.exposure_rows(kafka_version=version)
            contradicted = cluster.exposure_rows(kafka_version="4.1.2")
        files = in_files(kafka)
        changed, expected = [], []
        if VERSIONS[version][0]:
            changed, expected = without_verification(kafka), [(1, VERIFICATION, True)]
    assert [row["error"] for row in rows if row["error"]] == []
    assert (bugs(rows), release(rows)) == (BUGS[version], version.rpartition(".")[0])
    assert (bugs(named), release(named)) == (re.sub(r"\(\d+\) ?", "", BUGS[version]).strip(), version)
    of_version_2 = "20785" if VERSIONS[version][1] == "2" else "(20785)"
    assert bugs(contradicted) == f"20090 20310 20357 {of_version_2}"
    assert "API versions are those of" in next(row["means"] for row in contradicted if row["name"] == "kafka version")
    found = values(rows)
    assert found["broker software"] == f"Apache Kafka {version.rpartition('.')[0]}"
    verification, transaction_version = VERSIONS[version]
    assert found[VERIFICATION] == verification
    assert found["transaction.version"] == transaction_version
    assert found["transaction.max.timeout.ms"] == "900000"
    assert (found["metadata.version"] is None) == (version == "2.8.2")
    by_name = {row["name"]: row["exposed"] for row in rows if row["subject"] != "transactional_id"}
    assert by_name[VERIFICATION] == (verification != "true")
    assert by_name["transaction.version"] == (transaction_version != "2")
    clients = [row for row in rows if row["subject"] == "transactional_id"]
    assert (staged.transactional_id, True) in [(row["transactional_id"], row["exposed"]) for row in clients]
    check_files(files, rows)
    assert [(row["broker_id"], row["name"], row["exposed"]) for row in changed] == expected


def without_verification(kafka: Kafka) -> list[Row]:
    """What files say of the setting once it was changed while the broker runs."""
    admin = AdminClient({**kafka.client_config()})
    setting = ConfigEntry(VERIFICATION, "false", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[setting])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    return until(lambda: [row for row in in_files(kafka) if row["value"] == "false"] or None, awaited="the setting")


def in_files(kafka: Kafka) -> list[Row]:
    return LogDir(kafka.log_dirs[1]).exposure_rows()


def check_files(files: list[Row], live: list[Row]) -> None:
    """Files say what the cluster says, but for server.properties, whose values are unknown."""
    if values(live)["metadata.version"] is None:
        missing = {row["name"] for row in files if (row["error"] or "").startswith("NO_METADATA_LOG")}
        assert missing == {"metadata.version", "transaction.version"}, "ZooKeeper"
        return
    assert [row["error"] for row in files if row["error"]] == []
    static = {VERIFICATION, "transaction.max.timeout.ms", "broker software"}
    columns = ("subject", "name", "transactional_id", "value", "exposed")
    of_files, of_cluster = (
        {tuple(row[column] for column in columns) for row in rows if row["name"] not in static}
        for rows in (files, live)
    )
    assert of_files == of_cluster
    assert {(row["value"], row["exposed"]) for row in files if row["name"] in static} == {(None, None)}


@pytest.mark.full
def test_a_half_upgraded_cluster_is_exposed_until_every_coordinator_verifies() -> None:
    """`python -m tests.rolling_upgrade` goes on from here, with load and through all versions."""
    with Kafka("3.5.2", brokers=2, properties={"transaction.state.log.replication.factor": 1}) as kafka:
        rolling = Rolling(kafka)
        rolling.upgrade(2, "3.9.2")
        with Cluster(kafka.bootstrap_servers, timeout=20) as cluster:
            rows = cluster.exposure_rows()
            assert values(rows)["mixed versions"] == "3.5 (broker 1), 3.9 (broker 2)"
            verification = [row for row in rows if row["name"] == "transaction.partition.verification.enable"]
            assert [(row["value"], row["exposed"]) for row in verification] == [(None, True), ("true", True)]
            staged = stage(kafka, "half-upgraded", [2], 1)
            assert staged, "the newer leader accepted what the older coordinator could not verify"
            (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
            assert (row["verdict"], row["outcome"], row["action"]) == ("hanging", "undecided", "abort")
            rolling.upgrade(1, "3.9.2")
            rows = cluster.exposure_rows()
            assert "mixed versions" not in values(rows)
            assert {row["exposed"] for row in rows if row["name"].endswith("verification.enable")} == {False}
            assert stage(kafka, "upgraded", [2], 1) is None
            (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
            assert row["verdict"] == "hanging", "an upgrade frees nothing"


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


def test_disabled_verification_is_exposed(cluster: Cluster) -> None:
    exposed = {row["name"]: row["exposed"] for row in cluster.exposure_rows() if row["subject"] == "broker"}
    assert exposed.pop("broker software") is None
    assert exposed == {"transaction.partition.verification.enable": True, "transaction.max.timeout.ms": True}


def test_the_command(kafka: Kafka) -> None:
    done = on(kafka, "exposure", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(",".join(EXPOSURE.names))
    assert "verification" in on(kafka, "exposure").stdout
    assert "KAFKA-20322" in on(kafka, "exposure", "--kafka-version", "4.2.0", "--format", "csv").stdout
    assert "is not a Kafka version" in on(kafka, "exposure", "--kafka-version", "newest").stderr
