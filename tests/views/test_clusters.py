"""Findings of several clusters, concatenated: a partition of one name is a partition of each."""

import pandas as pd
import pytest

from toolkit.errors import UsageError
from toolkit.lab.samples import load
from toolkit.views import next_steps, show
from toolkit.views.finding_document import summary
from toolkit.views.plots import plot_overview, plot_timeline
from toolkit.views.report import collect_incident, report

SAMPLES = ("late-message", "never-added", "several-open")


def test_what_hangs_is_counted_and_queued_by_cluster() -> None:
    """Three clusters with a partition orders-0 each were "1 partition hangs", in one queue."""
    logs = [load(name).log_dir() for name in SAMPLES]
    findings = pd.concat([log.findings() for log in logs], ignore_index=True)
    assert findings.cluster_id.nunique() == len(SAMPLES)
    assert summary(findings).startswith("3 partitions hang")
    assert "3 partitions hang" in plot_overview(findings).layout.title.text
    text, page, steps = repr(show(findings)), show(findings)._repr_html_(), repr(next_steps(findings))
    for cluster in findings.cluster_id:
        assert f"orders-0 of cluster {cluster}" in text
        assert f"<i>cluster</i> {cluster}" in page
        assert f"`orders-0` of `{cluster}`" in steps
    for one_cluster in (
        lambda: report(findings),
        lambda: collect_incident(*logs),
        lambda: plot_timeline(logs[0].log_transactions(topics="orders", partitions=0), findings=findings),
    ):
        with pytest.raises(UsageError, match=r"clusters|of 3"):
            one_cluster()
