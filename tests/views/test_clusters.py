"""Findings of several clusters, concatenated: a partition of one name is a partition of each."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from toolkit.errors import UsageError
from toolkit.lab.samples import load
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.sources.logdir import LogDir
from toolkit.views import next_steps, show
from toolkit.views.finding_document import finding_groups, summary
from toolkit.views.plots import number_tiles, plot_holds, plot_overview, plot_timeline
from toolkit.views.report import collect_incident, report

SAMPLES = ("late-message", "never-added", "several-open")


def test_loose_files_do_not_know_their_cluster_and_are_no_queue_of_one(tmp_path: Path) -> None:
    """Two folders of partitions with one name were one partition with two transactions, and one report."""
    copies = [
        shutil.copytree(load(name).path / "log-dir/orders-0", tmp_path / name / "orders-0") for name in SAMPLES[:2]
    ]
    logs = [LogDir(copy) for copy in copies]
    findings = pd.concat([log.findings() for log in logs], ignore_index=True)
    assert findings.cluster_id.isna().all()
    assert set(findings.queue_position) == {1}
    assert set(findings.verdict) == {"unknown"}
    assert {each.name for each in finding_groups(records_of(findings, Finding))} == {
        "orders-0",
        "orders-0 of cluster not known (2)",
    }
    assert "<i>cluster</i> not known (2)" in show(findings)._repr_html_()
    assert "`orders-0` of cluster `not known (2)`" in repr(next_steps(findings))
    assert "<b>2</b>partitions held" in number_tiles(findings)
    with pytest.raises(UsageError, match=r"of 2: not known, not known \(2\)"):
        report(findings)


def test_what_hangs_is_counted_and_queued_by_cluster() -> None:
    """Three clusters with a partition orders-0 each were "1 partition hangs", in one queue."""
    logs = [load(name).log_dir() for name in SAMPLES]
    findings = pd.concat([log.findings() for log in logs], ignore_index=True)
    assert findings.cluster_id.nunique() == len(SAMPLES)
    assert summary(findings).startswith("3 partitions hang")
    assert repr(show([log.findings() for log in logs])) == repr(show(findings))
    assert repr(show({name: log.findings() for name, log in zip(SAMPLES, logs, strict=True)})) == repr(show(findings))
    for shown in (show, plot_overview, summary):
        with pytest.raises(UsageError, match=r"A table is needed, not a LogDir.*source\.findings\(\)"):
            shown(logs[0])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"source\.lso_holds\(\)"):
        plot_holds(logs[0])  # type: ignore[arg-type]
    assert "3 partitions hang" in plot_overview(findings).layout.title.text
    text, page, steps = repr(show(findings)), show(findings)._repr_html_(), repr(next_steps(findings))
    for cluster in findings.cluster_id:
        assert f"orders-0 of cluster {cluster}" in text
        assert f"<i>cluster</i> {cluster}" in page
        assert f"`orders-0` of cluster `{cluster}`" in steps
    for one_cluster in (
        lambda: report(findings),
        lambda: collect_incident(*logs),
        lambda: plot_timeline(logs[0].log_transactions(topics="orders", partitions=0), findings=findings),
    ):
        with pytest.raises(UsageError, match=r"clusters|of 3"):
            one_cluster()


def test_files_of_a_cluster_that_is_not_known_are_no_part_of_anothers_report(tmp_path: Path) -> None:
    """A dump, or a partition's folder alone, beside a known cluster was taken for its own."""
    known = load("late-message")
    copied = shutil.copytree(known.path / "log-dir/orders-0", tmp_path / "orders-0")
    with pytest.raises(UsageError, match=rf"The cluster of {copied} is not known\."):
        collect_incident(known.log_dir(), LogDir(copied))
    assert len(collect_incident(LogDir(copied))["findings"]) == 1
    shutil.copy(known.path / "log-dir/meta.properties", tmp_path)
    assert len(collect_incident(known.log_dir(), LogDir(tmp_path))["findings"]) == 1
