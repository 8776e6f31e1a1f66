"""What a report is made of, put together from a log directory and a recording of the same incident."""

import datetime as dt
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from tests.analysis.build import clock, observation, partition, producer, transaction
from tests.analysis.logged import sample_diagnosis
from tests.sources.log_files import HIGH_WATERMARK, after, data, marker, write_checkpoint, write_log, write_root
from tests.sources.recorded import NINE
from toolkit import Cluster, LogDir, Recording
from toolkit.errors import NotFound
from toolkit.lab.samples import IncidentSample, load
from toolkit.schema import RECORDED, Row
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import Sample, recorded_sample
from toolkit.views.report import collect_incident, report, timeline_of


def test_a_log_and_a_recording_are_combined_into_one_incident() -> None:
    sample = load("flight-recording")
    recording = sample.recording()
    assert recording
    one, other = (
        collect_incident(*sources, min_held_ms=1000)
        for sources in ((sample.log_dir(), recording), (recording, sample.log_dir()))
    )
    assert one == other, "in any order"
    (row,) = one["findings"]
    assert row["verdict"] == "ended", "the log has its end"
    assert row["groups_held"] == ["billing"], "only the recorder has them"
    assert row["reason"].endswith("While it was open it was hanging.")
    assert not one.pop("problems")
    assert {name: bool(rows) for name, rows in one.items()} == dict.fromkeys(
        (
            *("findings", "log_transactions", "lso_timeline", "transaction_history", "partitions", "cluster_events"),
            *("recorded_findings", "offsets_log", "exposure"),
        ),
        True,
    )
    audit = sample.audit()
    assert audit
    page = report(**one, actions=audit.rows()).markdown
    assert 'group "billing" could not move' in page
    assert "abort, outcome" in page


def test_what_one_source_could_not_read_is_that_of_the_other(tmp_path: Path) -> None:
    """The tables of a second copy, without the coordinators' log and the metadata log, replaced the first one's."""
    log_dir = load("late-message").path / "log-dir"
    for name in ("orders-0", "meta.properties"):
        copy = shutil.copytree if (log_dir / name).is_dir() else shutil.copy
        copy(log_dir / name, tmp_path / name)
    alone: Any = collect_incident(LogDir(log_dir))
    both: Any = collect_incident(LogDir(log_dir), LogDir(tmp_path))
    for name in ("transaction_history", "cluster_events"):
        assert both[name] == alone[name] != []


def test_a_recording_alone_gives_start_and_end() -> None:
    recording = load("flight-recording").recording()
    assert recording
    tables = collect_incident(recording)
    (row,) = tables["findings"]
    assert row["held_from"] < row["held_to"]
    assert row["verdict"] == "ended", "no report may call it hanging, as the recorder has its end"
    assert "While it was open it was hanging" in row["reason"]
    assert set(tables) == {"findings", "partitions", "recorded_findings", "problems"}
    markdown = report(**tables).markdown
    assert "Not included: log\\_transactions (the log: its markers" in markdown
    assert "actions (the audit trail: what was done, and by whom)." in markdown


def test_only_a_log_dates_the_marker_and_samples_give_a_range() -> None:
    """The next sample came after the marker: its time is no time of the marker, and not from the log."""
    sample = load("flight-recording")
    recording = sample.recording()
    assert recording
    (row,) = collect_incident(recording)["findings"]
    (log_transaction,) = (
        each
        for each in collect_incident(sample.log_dir(), min_held_ms=0)["log_transactions"]
        if (each["producer_id"], each["first_offset"]) == (row["producer_id"], row["start_offset"])
    )
    assert log_transaction["end"] < row["held_to"]
    recorded = report(**collect_incident(recording)).markdown
    (end,) = (line for line in recorded.splitlines() if "the first sample without it; it was last seen open" in line)
    assert end.endswith("| the recording (the recorder's clock) |")
    assert f"{row['held_to']:%H:%M:%S}" in end
    assert "marker ended it" not in recorded
    assert " was held for " not in recorded, "this recording has no broker's time, and the two ends are of two clocks"
    together = report(**collect_incident(recording, sample.log_dir(), min_held_ms=1000)).markdown
    (end,) = (line for line in together.splitlines() if line.endswith("ended it | the log (the leader's clock) |"))
    assert f"{log_transaction['end']:%H:%M:%S}.{log_transaction['end'].microsecond // 1000:03}" in end
    assert " for at most " not in together


@pytest.mark.parametrize("kind", ["log directory", "cluster"])
def test_a_transaction_that_ended_after_the_last_sample_is_ended(kind: str, tmp_path: Path) -> None:
    """The log leaves it out, as it was held for only 14 s, and a cluster has nothing of it any more."""
    sample = load("flight-recording")
    recording = _stopped(sample, tmp_path / "recording")
    assert [row["verdict"] for row in recording.finding_over_time_rows()] == ["hanging"]
    source = sample.log_dir() if kind == "log directory" else cast(Cluster, _Afterwards(sample))
    for sources in ((recording, source), (source, recording)):
        (row,) = collect_incident(*sources, min_held_ms=60_000, remark=lambda _: None)["findings"]
        assert row["verdict"] == "ended"
        assert "While it was open it was hanging" in row["reason"]
        assert row["held_from"] < row["held_to"]


def _stopped(sample: IncidentSample, path: Path) -> Recording:
    """What the recorder of the sample had written when `expected` was true."""
    recording = sample.recording()
    assert recording
    assert sample.at
    path.mkdir()
    for name, table in RECORDED.items():
        rows = table.rows(recording.history(name, stop=sample.at + dt.timedelta(milliseconds=1)))
        (path / name).mkdir()
        pq.write_table(table.arrow(rows), path / name / "20261122.parquet")
    return Recording(path)


class _Afterwards:
    """The cluster of a sample in its last recorded state; its log is that of the log directory."""

    def __init__(self, sample: IncidentSample) -> None:
        self.recording, self.log = sample.recording(), sample.log_dir()

    def finding_rows(self, topics: Any = None, partitions: Any = None, **_: object) -> list[Row]:
        assert self.recording
        return self.recording.finding_rows(topics=topics, partitions=partitions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


def test_a_report_is_of_the_replica_that_was_diagnosed(tmp_path: Path) -> None:
    """A deposed leader's longer log has the marker that an unclean election has lost: the LSO was said to move on."""

    def of_next_leader(batch: bytes) -> bytes:
        return batch[:12] + (1).to_bytes(4) + batch[16:]

    first = data(0, 7, after(seconds=1))
    deposed = [first, marker(1, 7, after(seconds=2)), data(2, 9, after(seconds=3)), marker(3, 9, after(seconds=4))]
    leader = [first, of_next_leader(data(1, 8, after(minutes=1))), of_next_leader(marker(2, 8, after(minutes=2)))]
    for broker_id, batches in ((1, deposed), (2, leader)):
        root = write_root(tmp_path / str(broker_id), broker_id=broker_id)
        write_log(root, "orders-0", batches)
        write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): len(batches)})
    tables = collect_incident(LogDir(tmp_path), remark=lambda _: None)
    (finding,) = tables["findings"]
    assert (finding["broker_id"], finding["producer_id"], finding["start_offset"]) == (2, 7, 0)
    assert [(row["producer_id"], row["outcome"]) for row in tables["log_transactions"]] == [(7, "open"), (8, "commit")]
    assert {row["holder_producer_id"] for row in tables["lso_timeline"]} == {7}


def test_an_unreadable_source_is_reported_and_left_out(tmp_path: Path) -> None:
    sample = load("late-message")
    copied = shutil.copytree(sample.path / "log-dir" / "orders-0", tmp_path / "orders-0")
    remarks: list[str] = []
    tables = collect_incident(LogDir(copied, consistent_copy=True), remark=remarks.append)
    (row,) = tables["findings"]
    assert row["verdict"] == "unknown"
    assert tables["transaction_history"] == []
    with pytest.raises(NotFound):
        collect_incident(LogDir(copied), topics=["others"])


def test_without_data_there_is_no_timeline() -> None:
    assert timeline_of({"findings": []}) is None


def test_of_a_recording_too_a_report_calls_long_what_is_older_than_asked_for(tmp_path: Path) -> None:
    """It left `--max-transaction-timeout` out where no time of a sample was given."""
    with SampleWriter(tmp_path) as writer:
        for due in (NINE, NINE + dt.timedelta(seconds=10)):
            start = NINE - dt.timedelta(minutes=5)
            live = replace(
                observation(
                    transaction(8, start_time=start, timeout_ms=3_600_000),
                    partitions=[partition(lso=100, observed_at=due)],
                    producers=[producer(8, observed_at=due)],
                ),
                observed_at=due,
                brokers_time=clock(due),
            )
            row = recorded_sample(live, due=due, interval_ms=10_000, seconds=0.5, cluster_id="of-a-test")
            findings = sample_diagnosis(live).findings()
            writer.write(Sample(due=due, observation=live, findings=findings, row=row))
    verdicts = []
    for minutes in (None, 15, 1):
        timeout_ms = minutes and minutes * 60_000
        (finding,) = collect_incident(Recording(tmp_path), max_transaction_timeout_ms=timeout_ms)["findings"]
        verdicts.append((finding["verdict"], finding["observed_at"]))
    assert [each[0] for each in verdicts] == ["ongoing", "ongoing", "long"]
    assert len({each[1] for each in verdicts}) == 1
