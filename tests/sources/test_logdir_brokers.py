"""Log directories of real brokers, running and stopped: the files match the brokers' responses."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.log_invariants import log_dir_violations
from tests.causes import cause_names
from toolkit import Cluster, LogDir
from toolkit.analysis.diagnosis.decision import owned_rules
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.lab.producer import write_committed
from toolkit.schema import FINDINGS, Row

pytestmark = pytest.mark.lab

STAGED = [incident for incident in INCIDENTS.values() if incident.setup is EVERYDAY]


@dataclass(kw_only=True)
class Played:
    """The responses of a broker before it was stopped, and its files.

    Parameters
    ----------
    live
        What files told while it ran.
    """

    root: Path
    version: str
    staged: Sequence[StagedIncident]
    live: dict[str, Any] = field(default_factory=dict)
    partitions: Sequence[Row] = ()
    producers: Sequence[Row] = ()
    transactions: Sequence[Row] = ()
    findings: Sequence[Row] = ()

    @property
    def everything(self) -> list[StagedIncident]:
        return [each for one in self.staged for each in (one, *one.also)]

    @property
    def topic_partitions(self) -> list[tuple[str, int]]:
        return sorted({(one.topic, one.partition) for one in self.everything})

    @property
    def topics(self) -> list[str]:
        """Topics that only producers of the lab write to."""
        return sorted({row["topic"] for row in self.partitions if not row["topic"].startswith("__")})


@pytest.fixture(scope="module", autouse=True)
def no_youth() -> Iterator[None]:
    """Logs of live transactions are read at any age: the cluster is diagnosed some seconds before its files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_rules, "COMPARED_AFTER", dt.timedelta(0))
        yield


@pytest.fixture(scope="module", params=[pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    """Every incident of a single broker, from its files while it runs, by requests, and from files after the stop."""
    with Kafka(request.param, properties=EVERYDAY.properties) as kafka, Cluster(kafka.bootstrap_servers) as cluster:
        broker = Played(root=kafka.log_dirs[1], version=request.param, staged=[incident(kafka) for incident in STAGED])
        read_live(broker)
        write_committed(cluster.client, broker.staged[0].topic, broker.staged[0].partition + 1)  # it keeps running
        broker.partitions, broker.producers = cluster.partition_rows(), cluster.producer_rows()
        broker.transactions = cluster.transaction_rows()
        broker.findings = cluster.finding_rows(partitions=broker.topic_partitions, recheck_after=0)
        kafka.stop_broker(1)
        yield broker


def read_live(broker: Played) -> None:
    before = stamps(broker.root)
    broker.live["findings"] = LogDir(broker.root).finding_rows()
    broker.live["at rest"] = LogDir(broker.root, consistent_copy=True).finding_rows()
    for name in ("batches", "log_transactions", "transaction_log", "offsets_log", "aborted", "checkpoints"):
        broker.live[name] = getattr(LogDir(broker.root), name)()
    broker.live["violations"] = log_dir_violations(LogDir(broker.root))
    after = stamps(broker.root)
    broker.live["changed"] = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def stamps(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file, but for what a broker rewrites all the time."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if "checkpoint" not in name and "__cluster_metadata" not in folder:
                stat = os.stat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (stat.st_size, stat.st_mtime_ns)
    return found


def test_reading_the_directory_of_a_running_broker_changes_nothing(played: Played) -> None:
    assert played.live["changed"] == set()
    assert played.live["violations"] == []
    for name in ("batches", "log_transactions", "transaction_log", "offsets_log", "aborted", "checkpoints"):
        assert not played.live[name].empty
        assert played.live[name]["error"].isna().all(), name


def test_nothing_is_hanging_in_files_of_a_running_broker_despite_an_assertion(played: Played) -> None:
    for rows in (played.live["findings"], played.live["at rest"]):
        assert "hanging" not in {row["verdict"] for row in rows}
        assert "unknown" in {row["verdict"] for row in rows}
    missing = {text for row in played.live["at rest"] for text in row["missing"]}
    assert f"stopped brokers: one runs on {played.root} and holds its lock" in missing


def test_every_incident_gets_its_verdict_from_a_stopped_brokers_files(played: Played) -> None:
    rows = LogDir(played.root, consistent_copy=True).finding_rows(partitions=played.topic_partitions)
    FINDINGS.arrow(rows)
    found = {(row["topic"], row["partition"], row["producer_id"]): row["verdict"] for row in rows}
    broker = {one: found.get((one.topic, one.partition, producer_of(one))) for one in played.everything}
    assert broker == {one: one.expected for one in played.everything}


JUDGED = (
    *(
        "topic",
        "partition",
        "queue_position",
        "producer_id",
        "producer_epoch",
        "transactional_id",
        "start_offset",
        "verdict",
        "remedy",
    ),
    *(
        "opened_at",
        "opened_at_clock",
        "expires_at",
        "high_watermark",
        "records_held",
        "bytes_held",
        "broker_id",
        "error",
    ),
)


def test_findings_match_the_live_cluster_with_cause_and_impact(played: Played) -> None:
    rows = LogDir(played.root, consistent_copy=True).finding_rows(partitions=played.topic_partitions)
    assert len(rows) == len(played.findings)
    for mine, broker in zip(rows, played.findings, strict=True):
        assert verdict_columns(mine) == verdict_columns(broker)
        # A query of a cluster does not read the complete transaction log.
        assert set(cause_names(broker)) <= set(cause_names(mine))


def verdict_columns(row: Row) -> Row:
    """The columns that must be equal; records deleted before the log start offset are still in the segment."""
    same = {name: row[name] for name in JUDGED}
    return same | ({"opened_at": None, "opened_at_clock": None} if row["topic"].startswith("head-deleted") else {})


def producer_of(staged: StagedIncident) -> int | None:
    return None if staged.expected == "clear" else staged.producer_id


def test_without_an_asserted_consistent_copy_nothing_is_hanging(played: Played) -> None:
    rows = LogDir(played.root).finding_rows()
    assert not [row for row in rows if row["verdict"] == "hanging"]
    assert all(row["missing"] for row in rows if row["verdict"] == "unknown")
    hanging = {one.producer_id for one in played.staged if one.expected == "hanging"}
    assert hanging <= {row["producer_id"] for row in rows if row["verdict"] == "unknown"}


def test_the_files_of_a_stopped_broker_break_no_invariant(played: Played) -> None:
    files = LogDir(played.root)
    assert log_dir_violations(files) == []
    assert files.coordinators()["partition"].notna().all()
    assert files.left_out == []
