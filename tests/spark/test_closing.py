"""One closing rule: a transaction that hangs and ends in the sample flight-recording is `ended` in every table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from toolkit import Cluster, LogDir, Recording
from toolkit.actions.abort import plan_abort
from toolkit.actions.audit import Audit
from toolkit.cli.commands import app
from toolkit.errors import ActionRefused
from toolkit.lab.samples import IncidentSample, load
from toolkit.schema import FINDINGS, Row
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.views.report import collect_incident, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = "flight-recording"
HELD_AT = cast(dt.datetime, load(SAMPLE).at)
LATER = HELD_AT + dt.timedelta(seconds=7)  # the marker was written some seconds after
HANGING_TRANSACTION: Row = {"topic": "orders", "partition": 0, "producer_id": 1, "start_offset": 15}


class SampleSources:
    """The sample, and what the tables are made from."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark, self.tmp_path = spark, tmp_path
        self.sample: IncidentSample = load(SAMPLE)
        recording = self.sample.recording()
        assert recording
        self.recording: Recording = recording
        self.log: LogDir = self.sample.log_dir()
        self.paths = {"recording": self.sample.path / "recording", "log": self.sample.path / "log-dir"}

    def pipeline_findings(self, *runs: str, min_held_ms: int = 0) -> list[Row]:
        """The findings that the pipeline stores after runs over the log directory or the recording."""
        out = self.tmp_path / "out"
        for names in runs:
            paths = [self.paths[name] for name in names.split()]
            summary = run(self.spark, paths, str(out), consistent_copy="log" in names, min_held_ms=min_held_ms)
        assert summary.findings == [], "nothing is open now"
        table = DeltaTable(out / "findings").to_pyarrow_table(columns=FINDINGS.names)
        return list(table.cast(FINDINGS.arrow_schema).to_pylist())

    def panel_findings(self) -> list[Row]:
        """The findings of the panel for recorded data, after an attempt to abort each."""
        from toolkit.views.panel import AbortPanel

        panel = AbortPanel(
            cast(Cluster, RecordedCluster(self.recording, self.log)), audit=Audit(self.tmp_path / "audit.jsonl")
        )
        for row in panel.findings:
            panel.select(row)
            assert panel.buttons["dry_run"].layout.display is None
            assert panel._steps.layout.display == "none", "the steps to an abort marker are hidden"
            panel.dry_run()
            assert isinstance(panel.error, ActionRefused)
        assert panel.buttons["next"].layout.display == "none"
        return [finding.row() for finding in panel.findings]


class RecordedCluster:
    """A cluster whose findings are the holds of a recording; all else is read from the log directory."""

    bootstrap_servers = "recorded:9092"

    def __init__(self, recording: Recording, log: LogDir) -> None:
        self.recording, self.log = recording, log

    def __getattr__(self, name: str) -> object:
        return getattr(self.log, name)

    def finding_rows(self, *_: object, **__: object) -> list[Row]:
        return self.recording.finding_over_time_rows()

    def partition_rows(self, **selection: object) -> list[Row]:
        return self.recording.partition_rows(
            topics=[HANGING_TRANSACTION["topic"]], partitions=[HANGING_TRANSACTION["partition"]]
        )


TABLES: dict[str, Callable[[SampleSources], list[Row]]] = {
    "Recording.findings_over_time": lambda sources: FINDINGS.rows(sources.recording.findings_over_time()),
    "Recording.findings_over_time of the partition": lambda sources: sources.recording.finding_over_time_rows(
        topics=["orders"], partitions=[0]
    ),
    "Recording.findings": lambda sources: sources.recording.finding_rows(min_held_ms=0),
    "Recording.findings at a later time": lambda sources: sources.recording.finding_rows(at=LATER, min_held_ms=0),
    "LogDir.findings": lambda sources: sources.log.finding_rows(min_held_ms=10_000),
    "collect_incident(recording)": lambda sources: collect_incident(sources.recording, min_held_ms=10_000)["findings"],
    "collect_incident(log, recording)": lambda sources: collect_incident(
        sources.log, sources.recording, min_held_ms=10_000
    )["findings"],
    "collect_incident(log without it, recording)": lambda sources: collect_incident(
        sources.log, sources.recording, min_held_ms=60_000
    )["findings"],
    "pipeline of the recording": lambda sources: sources.pipeline_findings("recording"),
    "pipeline of the log, then of the recording": lambda sources: sources.pipeline_findings(
        "log", "recording", min_held_ms=10_000
    ),
    "panel": lambda sources: sources.panel_findings(),
}


@pytest.fixture
def sources(spark: SparkSession, tmp_path: Path) -> SampleSources:
    return SampleSources(spark, tmp_path)


@pytest.mark.parametrize(
    "table", [pytest.param(each, marks=pytest.mark.full if "then of" in each else ()) for each in TABLES]
)
def test_a_hanging_transaction_that_ended_is_ended_in_every_table(table: str, sources: SampleSources) -> None:
    rows = TABLES[table](sources)
    assert {row["verdict"] for row in rows} == {"ended"}
    (row,) = [row for row in rows if {name: row[name] for name in HANGING_TRANSACTION} == HANGING_TRANSACTION]
    assert (row["queue_position"], row["expires_at"], row["missing"], row["remedy"]) == (
        None,
        None,
        [],
        "None: it has ended.",
    )
    assert row["held_from"] < row["held_to"]
    page = report([row])
    for text in (page.markdown, page.html):
        assert "It is over." in text
        assert "has been held" not in text
    with pytest.raises(ActionRefused, match="orders-0@15 is ended"):
        plan_abort(cast(Cluster, None), row)
    if table != "LogDir.findings":  # the log alone does not have the recorder's verdict
        assert f"Last seen open at {HELD_AT:%Y-%m-%d %H:%M}" in row["reason"]
        assert "While it was open it was hanging" in row["reason"]
        (before,) = [entry["value"] for entry in row["evidence"] if entry["name"] == "verdict_before"]
        assert before == "hanging"


@pytest.mark.parametrize("suffix", [".md", ".html"])
@pytest.mark.parametrize("options", [[], ["--at", LATER.isoformat()]])
def test_the_report_command_reports_the_transaction_as_ended(suffix: str, options: list[str], tmp_path: Path) -> None:
    page = tmp_path / f"page{suffix}"
    recording = str(load(SAMPLE).path / "recording")
    options = ["report", "--recording", recording, "--min-held", "10", "--output", str(page), *options]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "It is over." in text
    assert "While it was open it was hanging" in text
    assert "has been held" not in text


def test_an_open_transaction_is_hanging_in_every_table() -> None:
    """The recording up to that time does not contain its end."""
    sample = load(SAMPLE)
    recording = sample.recording()
    assert recording
    assert sample.at
    just_after = sample.at + dt.timedelta(milliseconds=1)
    over_time = recording.finding_over_time_rows(stop=just_after)
    for rows in (over_time, recording.finding_rows(at=sample.at, min_held_ms=0)):
        assert [row["verdict"] for row in rows] == ["hanging"]
    assert recording.finding_rows(at=LATER) == [], "the later sample is diagnosed again, and has no open transaction"
    history = recording.history("findings")
    assert "ended" not in set(history["verdict"]), "recorded verdicts are unchanged"
