"""The brokers' time on real brokers: what shows it, and that no verdict depends on the clock of the tool's machine."""

import datetime as dt
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.brokers import NEWEST, OLDER, on_cluster
from tests.process import COMMAND, PATIENCE_S, ROOT
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_fence
from toolkit.analysis.diagnosis import observation
from toolkit.analysis.diagnosis.observation import BrokersTime
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, NEGLECTFUL
from toolkit.schema.live import Finding
from toolkit.schema.table import utc_now
from toolkit.sources.live import broker_client
from toolkit.sources.live import cluster as live_cluster
from toolkit.sources.live import leaders as reading
from toolkit.sources.live import observe as live_observation

AHEAD = dt.timedelta(minutes=2)
WARNING = "This machine's clock is 2 min ahead of the brokers': times are the brokers'."
SECOND = dt.timedelta(seconds=1)
VERSIONS = [on_cluster(version, EVERYDAY, id=version) for version in (NEWEST, "3.9.2", OLDER)]


@pytest.fixture
def two_minutes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (broker_client, live_observation):
        monkeypatch.setattr(module, "utc_now", lambda: utc_now() + AHEAD)
    monkeypatch.setattr(Cluster, "on_clock_warning", staticmethod(lambda _: None))


@pytest.mark.parametrize(("took_s", "warning"), [(1, "This machine's clock is 7 s ahead of the"), (3, None)])
@pytest.mark.parametrize("lab", VERSIONS[:1], indirect=True)
def test_a_slow_response_is_no_clock_that_is_ahead(
    lab: Kafka, monkeypatch: pytest.MonkeyPatch, took_s: float, warning: str | None
) -> None:
    """A busy machine got the controller's time 7 s late, and warned of its own clock."""
    monkeypatch.setattr(broker_client, "utc_now", lambda: utc_now() + 7 * SECOND)
    monkeypatch.setattr(Cluster, "on_clock_warning", staticmethod(lambda _: None))
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=iter([0.0, took_s]).__next__))
    with Cluster(lab.bootstrap_servers) as cluster:
        found = cluster.brokers_time().warning
    assert (found is None) is (warning is None)
    assert (found or "").startswith(warning or "")


@pytest.mark.parametrize("lab", VERSIONS[::2], indirect=True)
@pytest.mark.usefixtures("two_minutes_ahead")
def test_a_young_transaction_is_ongoing_for_a_tool_two_minutes_ahead(lab: Kafka, tmp_path: Path) -> None:
    """It was `overdue` "by its coordinator's clock", and fenced without an override."""
    with Cluster(lab.bootstrap_servers) as cluster, INCIDENTS["open_young"](lab, timeout_ms=60_000) as staged:
        (finding,) = _findings(cluster, staged.topic)
        assert (finding.verdict, finding.action) == ("ongoing", None)
        assert finding.brokers_time is not None
        assert finding.observed_at - finding.brokers_time > AHEAD - SECOND
        assert [each.value for each in finding.evidence if each.name == "clock"] == [WARNING]
        assert cluster.clock_warning == WARNING
        plan = plan_fence(cluster, staged.transactional_id)
        assert (plan.verdict, plan.needed_override) == ("ongoing", "ongoing")
        with pytest.raises(ActionRefused, match="is ongoing now"):
            plan.execute(confirm=plan.target, audit=Audit(tmp_path / "trail.jsonl"))
        assert [row["state"] for row in cluster.transaction_rows(transactional_ids=[staged.transactional_id])] == [
            "Ongoing"
        ]
        assert cluster.transaction_rows(producer_ids=[staged.producer_id], min_duration_ms=60_000) == []


@pytest.mark.full
@pytest.mark.skipif(shutil.which("faketime") is None, reason="apt-get install faketime")
def test_the_commands_warn_of_a_clock_that_is_two_minutes_ahead(kafka: Kafka, tmp_path: Path) -> None:
    def ahead(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["faketime", "-f", "+120s", *COMMAND, *arguments, "--bootstrap-server", kafka.bootstrap_servers]
        environment = {**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "HOME": str(tmp_path)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    with INCIDENTS["open_young"](kafka, timeout_ms=60_000) as staged:
        diagnosed = ahead("diagnose", "--topic", staged.topic, "--partition", "0", "--format", "json")
        (row,) = json.loads(diagnosed.stdout)["rows"]
        assert row["verdict"] == "ongoing", row["reason"]
        assert diagnosed.stderr.count(WARNING) == 1
        name = staged.transactional_id
        fenced = ahead("fence", "--transactional-id", name, "--confirm", name)
        assert fenced.returncode != 0
        assert "is ongoing now" in fenced.stderr
        with Cluster(kafka.bootstrap_servers) as cluster:
            (owner,) = cluster.transaction_rows(transactional_ids=[name])
        assert (owner["state"], owner["producer_epoch"]) == ("Ongoing", 0)


@pytest.mark.parametrize(
    "lab", [on_cluster(version, NEGLECTFUL, id=version) for version in (NEWEST, OLDER, "2.8.2")], indirect=True
)
@pytest.mark.parametrize("proof", ["brokers' time", "observed"])
def test_what_is_open_past_its_timeout_is_overdue(lab: Kafka, proof: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "TIMEOUT_GRACE", SECOND)
    if proof == "observed":
        for module in (live_observation, live_cluster):
            monkeypatch.setattr(module, "read_brokers_time", lambda *_: BrokersTime(error="none", is_contradicted=True))
    with Cluster(lab.bootstrap_servers) as cluster, INCIDENTS["overdue"](lab) as staged:

        def overdue() -> Finding | None:
            TxnProducer(cluster.client, "other").init()  # a coordinator writes a record
            recheck_after = 4.0 if proof == "observed" else 0.0
            (finding,) = _findings(cluster, staged.topic, recheck_after=recheck_after)
            assert finding.verdict in {"ongoing", "overdue"}
            return finding if finding.verdict == "overdue" else None

        finding = until(overdue, awaited="overdue", timeout=60)
        assert finding.action == "fence"
        seen = "it has been observed for" if proof == "observed" else " by the "
        assert seen in finding.reason


def _findings(cluster: Cluster, topic: str, *, recheck_after: float = 0.0) -> list[Finding]:
    return cluster.records(Finding, partitions=[(topic, 0)], recheck_after=recheck_after)
