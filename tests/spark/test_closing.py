"""A transaction of the sample flight-recording that hangs and ends is `ended` in the pipeline's tables, too.

What sources and reports say of it is in the corpus.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from deltalake import DeltaTable

from toolkit import Cluster
from toolkit.actions.marker_actions import plan_abort
from toolkit.errors import ActionRefused
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS
from toolkit.spark.pipeline.pipeline_run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("runs", [["recording"], pytest.param(["log-dir", "recording"], marks=pytest.mark.full)])
def test_a_hanging_transaction_that_ended_is_ended(spark: SparkSession, tmp_path: Path, runs: list[str]) -> None:
    """The second run closes it by the recorder's samples, whatever the log alone has said."""
    sample, out = load("flight-recording"), tmp_path / "out"
    for name in runs:
        held = 10_000 if "log-dir" in runs else 0
        summary = run(spark, sample.path / name, str(out), consistent_copy=name == "log-dir", min_held_ms=held)
    assert summary.findings == [], "nothing is open now"
    table = DeltaTable(out / "findings").to_pyarrow_table(columns=FINDINGS.names)
    rows = table.cast(FINDINGS.arrow_schema).to_pylist()
    assert {row["verdict"] for row in rows} == {"ended"}
    (row,) = (row for row in rows if (row["topic"], row["producer_id"], row["start_offset"]) == ("orders", 1, 15))
    assert [row[name] for name in ("queue_position", "expires_at", "missing", "remedy")] == [
        *(None, None, []),
        "None: it has ended.",
    ]
    assert row["held_from"] < row["held_to"]
    assert f"Last seen open at {sample.at:%Y-%m-%d %H:%M}" in row["reason"]
    assert [entry["value"] for entry in row["evidence"] if entry["name"] == "verdict_before"] == ["hanging"]
    with pytest.raises(ActionRefused, match="orders-0@15 is ended"):
        plan_abort(cast(Cluster, SimpleNamespace(cluster_id=None)), row)
