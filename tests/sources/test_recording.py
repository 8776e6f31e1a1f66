"""Writing and reading the samples of a simulated cluster; a kill loses nothing and leaves nothing twice."""

import datetime as dt
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.analysis.build import clock
from tests.analysis.test_exposure import IMITATED
from tests.process import ROOT, started
from tests.sources.killed import SCENES
from tests.sources.recorded import NINE, files, rows_of, sample, take_sample
from toolkit import Cluster, Recording
from toolkit.analysis import findings_over_time
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart
from toolkit.analysis.exposure import software_gaps
from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.lab.samples import load
from toolkit.schema import PARTITIONS, PRODUCERS, RECORDED, TABLES, Row
from toolkit.schema.recorded import RecordedSample
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import longest_timeout_ms
from toolkit.sources.live.partition_log import read_excerpts
from toolkit.sources.recording.recorder import SampleWriter, resume
from toolkit.sources.recording.recording import Sample, files_of, read, read_sample, recorded_sample, table_file
from toolkit.views.report import collect_incident

MINUTE, SECOND = dt.timedelta(minutes=1), dt.timedelta(seconds=1)


def every(minutes: int, count: int, **more: Any) -> list[Sample]:
    return [sample(NINE + each * minutes * MINUTE, **more) for each in range(count)]


def write(directory: Path, samples: Sequence[Sample]) -> Path:
    with SampleWriter(directory) as writer:
        assert all(writer.write(each) for each in samples)
    return directory


@pytest.fixture
def six(tmp_path: Path) -> Path:
    """Samples of 9:00 to 9:50; that of 9:40 failed."""
    samples = every(10, 6)
    samples[4] = failed(samples[4].due)
    return write(tmp_path / "recording", samples)


def failed(due: dt.datetime) -> Sample:
    row = sample(due, error="NETWORK_EXCEPTION: The broker is gone.").row
    return Sample(due=due, row=replace(row, brokers=None, proofs=None, gaps=None, topic_gaps=None, first_batches=None))


def test_a_recording_has_its_cluster_and_the_brokers_time_of_each_sample(six: Path, tmp_path: Path) -> None:
    """The cluster was null in every envelope."""
    recording = Recording(six)
    assert recording.observe().brokers_time == clock(NINE + 50 * MINUTE)
    assert [row["brokers_time"] for row in recording.finding_rows()] == [NINE + 50 * MINUTE]
    assert recording.cluster_id == "of-a-test"
    assert Recording(write(tmp_path / "failed", [failed(NINE)])).cluster_id is None


@pytest.mark.parametrize("name", IMITATED)
def test_in_a_recording_of_other_software_no_transaction_hangs(tmp_path: Path, name: str) -> None:
    """Its coordinators' silence proves nothing, also with the log evidence that the sample has, and without it."""
    gaps = software_gaps([IMITATED[name]])
    recording = Recording(write(tmp_path / "recording", every(1, 2, gaps=gaps)))
    assert recording.sample_row()["gaps"] == gaps
    for log_evidence in (True, False):
        (row,) = [row for row in recording.finding_rows(log_evidence=log_evidence) if row["start_offset"] is not None]
        assert (row["verdict"], row["action"], row["missing"]) == ("unknown", None, gaps)
        assert row["remedy"].startswith("Do not abort.")
    assert set(recording.findings_over_time()["verdict"]) == {"unknown"}


def test_every_table_can_be_read_completely(tmp_path: Path) -> None:
    SampleWriter(tmp_path / "new").close()
    for name, table in RECORDED.items():
        frame = pd.read_parquet(tmp_path / "new" / name)
        assert (list(frame.columns), len(frame)) == (table.names, 0)


def test_plain_parquet_readers_find_columns_and_rows(tmp_path: Path) -> None:
    samples = every(10, 3)
    write(tmp_path, samples)
    for name, table in RECORDED.items():
        found = pq.read_table(tmp_path / name)
        assert found.schema.remove_metadata().equals(table.arrow_schema.remove_metadata())
        assert found.to_pylist() == rows_of(samples, name).to_pylist()
        assert len(pd.read_parquet(tmp_path / name)) == len(found)


def test_an_existing_sample_is_not_written_again(six: Path) -> None:
    before = files(six)
    with SampleWriter(six) as writer:
        assert not writer.write(sample(NINE))
        assert not writer.write(sample(NINE + 40 * MINUTE)), "a failed sample is a sample too"
        assert files(six) == before
        writer.merge(now=NINE + dt.timedelta(days=2))
        assert not writer.write(sample(NINE))
        assert writer.write(sample(NINE + MINUTE))


def test_past_hours_and_days_are_merged_into_one_file(tmp_path: Path) -> None:
    samples = every(20, 9)
    write(tmp_path, samples)
    with SampleWriter(tmp_path) as writer:
        assert writer.merge(now=samples[-1].due) == 2 * 2 * 5, "two hours, of three files each, in five tables"
        assert names(tmp_path) == ["20261121T09.1.parquet", "20261121T10.1.parquet", *stamps(samples[6:])]
        assert writer.merge(now=samples[-1].due) == 0
        writer.merge(now=NINE + dt.timedelta(days=1))
        assert names(tmp_path) == ["20261121.2.parquet"]
        writer.write(sample(NINE + MINUTE))  # after the clock was set back
        assert names(tmp_path) == ["20261121.2.parquet", "20261121T090100000.2.parquet"]
    with SampleWriter(tmp_path) as writer:
        writer.write(sample(NINE + 2 * MINUTE))
        assert names(tmp_path)[1:] == ["20261121T090100000.2.parquet", "20261121T090200000.2.parquet"]
        writer.merge(now=NINE + dt.timedelta(days=1))
        assert names(tmp_path) == ["20261121.3.parquet"]
    for name in RECORDED:
        assert read(tmp_path, name).equals(rows_of([samples[0], *every(1, 3)[1:], *samples[1:]], name))


def test_what_a_failed_merge_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a full or slow disk: the merged file is there, and some of those that it replaces."""
    samples = every(20, 9)
    write(tmp_path, samples)
    unlink, last = Path.unlink, stamps(samples)[2]

    def unlink_but_one(path: Path, **options: bool) -> None:
        if path.name == last:
            raise OSError("no space left")
        unlink(path, **options)

    with SampleWriter(tmp_path) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink_but_one)
            with pytest.raises(OSError, match="no space left"):
                writer.merge(now=samples[-1].due)
        assert (tmp_path / "samples" / last).exists()
        writer.merge(now=samples[-1].due)
        assert not (tmp_path / "samples" / last).exists()
    assert all(read(tmp_path, name).equals(rows_of(samples, name)) for name in RECORDED)


def names(directory: Path) -> list[str]:
    return [file.name for file in files_of(directory, "samples")]


def stamps(samples: Sequence[Sample]) -> list[str]:
    return [f"{each.due:%Y%m%dT%H%M%S}000.parquet" for each in samples]


def test_a_large_day_is_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, every(20, 9))
    monkeypatch.setattr("toolkit.sources.recording.recorder.MAX_DAY_BYTES", 1)
    with SampleWriter(tmp_path) as writer:
        writer.merge(now=NINE + dt.timedelta(days=1))
    assert names(tmp_path) == ["20261121T09.1.parquet", "20261121T10.1.parquet", "20261121T11.1.parquet"]


def test_old_samples_are_deleted_on_request(tmp_path: Path) -> None:
    samples = every(20, 9)
    write(tmp_path, samples)
    with SampleWriter(tmp_path) as writer:
        writer.merge(now=samples[-1].due)
        writer.retire(before=samples[5].due)
    for name in ("samples", "producers"):
        kept = sorted({row["sampled_at"] for row in read(tmp_path, name).to_pylist()})
        assert kept == [each.due for each in samples[3:]], "an hour is deleted completely"


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """The system lets no file grow any larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_write_keeps_earlier_samples(six: Path) -> None:
    before, rows = files(six), {name: read(six, name) for name in RECORDED}
    with SampleWriter(six) as writer:
        with room_for(8_000), pytest.raises(OSError, match="File too large"):  # some of its files fit
            writer.write(sample(NINE + 60 * MINUTE, partitions=3_000))
        assert files(six) == before
        with room_for(4_000), pytest.raises(OSError, match="File too large"):
            writer.merge(now=NINE + 60 * MINUTE)
        assert files(six) == before
        assert all(read(six, name).equals(rows[name]) for name in RECORDED)
        assert writer.write(sample(NINE + 60 * MINUTE)), "and goes on when there is room"


def test_only_one_recorder_per_folder(tmp_path: Path) -> None:
    with SampleWriter(tmp_path / "recording"), pytest.raises(UsageError, match=r"is in use by process \d+\. Use one"):
        SampleWriter(tmp_path / "recording")
    SampleWriter(tmp_path / "recording").close()


def test_a_writer_that_cannot_start_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk its process id did not fit, and until the process ended, no other could start there."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(UsageError, match="cannot be written to: No space left on device"):
            SampleWriter(tmp_path)
    SampleWriter(tmp_path).close()


def test_a_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not a recording and not empty"):
        SampleWriter(tmp_path)
    assert files(tmp_path) == ["thesis.tex"]
    with pytest.raises(UsageError, match="cannot be written to: Not a directory"):
        SampleWriter(tmp_path / "thesis.tex" / "recording")
    for path, what in ((tmp_path, "is not a recording"), (tmp_path / "nowhere", "does not exist")):
        with pytest.raises(NotFound, match=what):
            Recording(path)


def test_files_with_other_names_are_ignored(six: Path) -> None:
    for name in ("notes.parquet", "20261399.3.parquet", ".20261121T095000000.parquet.part", "20261121.parquet.crc"):
        (six / "samples" / name).touch()
        assert table_file(name) is None
    assert len(Recording(six).samples()) == 6


def test_incomplete_files_are_ignored(six: Path) -> None:
    late = sample(NINE + 55 * MINUTE)
    for name in ("partitions", "producers", "findings"):
        pq.write_table(rows_of([late], name), six / name / "20261121T095500000.parquet")
    recording = Recording(six)
    assert recording.finding_rows()[0]["observed_at"] == NINE + 50 * MINUTE
    for name in ("partitions", "findings"):
        assert recording.history(name)["sampled_at"].max() == NINE + 50 * MINUTE
    SampleWriter(six).close()
    assert not list(six.glob("*/20261121T095500000.parquet")), "a start takes it away"


def test_a_failed_sample_leaves_no_files(six: Path) -> None:
    due = NINE + 55 * MINUTE
    with SampleWriter(six) as writer:
        pq.write_table(rows_of([sample(due)], "findings"), six / "findings" / "20261121T095500000.parquet")
        writer.write(failed(due))
    assert NINE + 55 * MINUTE not in set(Recording(six).history("findings")["sampled_at"])


def test_a_damaged_file_is_an_error(six: Path) -> None:
    (six / "producers" / "20261121T091000000.parquet").write_bytes(b"PAR1, once")
    assert len(Recording(six).findings()) == 1, "what it holds is not of the newest two"
    with pytest.raises(
        DecodeError, match=rf"^A file in {six}/producers is damaged: .* Move it out of the recording\.$"
    ):
        Recording(six).history("producers")
    before = files(six)
    with SampleWriter(six) as writer:
        with pytest.raises(DecodeError, match="is damaged"):
            writer.merge(now=NINE + 60 * MINUTE)
        merged = {path for path in before if path.startswith(("samples/", "partitions/"))}
        assert set(before) - merged <= set(files(six))
        assert writer.write(sample(NINE + 60 * MINUTE))
    (six / "samples" / "20261121T09.1.parquet").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(DecodeError, match="/samples is damaged"):
            SampleWriter(six)


@pytest.mark.parametrize("damage", ["page", "text"])
def test_damage_within_a_file_is_an_error(six: Path, damage: str) -> None:
    """A page was an OSError without a number, which no file system raises; a text was a UnicodeDecodeError."""
    path = six / "findings" / "20261121T095000000.parquet"
    data = path.read_bytes()
    if damage == "page":
        path.write_bytes(data[:20] + bytes(8) + data[28:])
        with SampleWriter(six) as writer, pytest.raises(DecodeError, match="/findings is damaged"):
            writer.merge(now=NINE + 60 * MINUTE)
    else:
        path.write_bytes(data.replace(b"orders", b"\xffrders"))
    for read_findings in (Recording(six).finding_rows, lambda: Recording(six).history("findings")):
        with pytest.raises(DecodeError, match=f"/findings is damaged{'' if damage == 'page' else ': .* Invalid UTF8'}"):
            read_findings()


def test_at_selects_the_last_sample_by_that_time(six: Path) -> None:
    recording = Recording(six)
    assert recording.partition_rows()[0]["observed_at"] == NINE + 50 * MINUTE
    for minutes, answering in ((0, 0), (5, 0), (10, 10), (29, 20), (45, 30), (300, 50)):
        (row, _) = recording.partition_rows(at=NINE + minutes * MINUTE)
        assert row["observed_at"] == NINE + answering * MINUTE
    assert recording.sample_row(at=NINE + 45 * MINUTE)["sampled_at"] == NINE + 30 * MINUTE
    elsewhere = dt.timezone(dt.timedelta(hours=2))
    assert recording.observe(at=dt.datetime(2026, 11, 21, 11, 12, tzinfo=elsewhere)).observed_at == NINE + 10 * MINUTE
    with pytest.raises(NotFound, match=r"No successful sample in .* by 2026-11-21T08:59:00"):
        recording.partitions(at=NINE - MINUTE)
    with pytest.raises(UsageError, match="has no time zone"):
        recording.findings(at=dt.datetime(2026, 11, 21))
    SampleWriter(six.parent / "empty").close()
    with pytest.raises(NotFound, match=r"No successful sample in .*\.$"):
        Recording(six.parent / "empty").findings()


def test_the_tables_match_those_of_a_cluster(six: Path) -> None:
    with Recording(six) as recording:
        assert list(recording.partitions().columns) == PARTITIONS.names
        assert list(recording.producers(topics=["orders"], partitions=[0]).columns) == PRODUCERS.names
        assert [row["partition"] for row in recording.partition_rows(topics=["orders"], partitions=[1])] == [1]
        assert [row["partition"] for row in recording.partition_rows(partitions=[("orders", 0)])] == [0]
        assert [row["producer_id"] for row in recording.producer_rows()] == [8, 9]
        assert [row["state"] for row in recording.transaction_rows(states=["Empty"])] == ["Empty"]
        assert recording.transaction_rows(states=["Ongoing"]) == []
        known, unknown = recording.transaction_rows(transactional_ids=["payments-7", "who"])
        assert (known["producer_id"], known["error"]) == (8, None)
        assert unknown["error"].startswith("TRANSACTIONAL_ID_NOT_FOUND: this id had no open transaction")
        for ask in (recording.partitions, recording.findings):
            with pytest.raises(NotFound, match="has no topic 'invoices'"):
                ask(topics=["invoices"])
            with pytest.raises(NotFound, match="has no partition orders-7"):
                ask(topics=["orders"], partitions=[7])


def test_an_observation_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    """What may be hidden was read as what is missing of the coordinators, and back."""
    one = sample(NINE, gaps=["broker 2 did not answer ListTransactions"])
    assert one.observation is not None
    coverage = replace(one.observation.coverage, brokers=(1, 2), proofs=("a",), topic_gaps=("DESCRIBE on Topic '*'",))
    observed = replace(one.observation, coverage=coverage, absent={TopicPartition("gone", 3): None})
    row = recorded_sample(observed, due=NINE, interval_ms=10_000, seconds=0.5, cluster_id="of-a-test")
    write(tmp_path, [replace(one, observation=observed, row=row)])
    (listed,) = RecordedSample.of_table(read(tmp_path, "samples", start=NINE, stop=NINE + MINUTE))
    _, found = read_sample(tmp_path, listed)
    assert found.coverage == replace(coverage, gaps=tuple(coverage.gaps))
    for rows, recorded in [
        (found.partitions, observed.partitions),
        (found.producers_after, observed.producers_after),
        (found.transactions, observed.transactions),
        (found.absent, [("gone", 3)]),
    ]:
        assert [*rows] == [*recorded]


def test_what_a_sample_did_not_read_is_not_absent(tmp_path: Path) -> None:
    """A principal without READ: no transaction was open. A coordinator away: its ids had no open one."""
    one = sample(NINE, gaps=["broker 2 did not answer ListTransactions: NETWORK_EXCEPTION"])
    assert one.observation is not None
    unread = [replace(each, producer_id=None, current_txn_start_offset=None, error="TOPIC_AUTHORIZATION_FAILED: no")
              for each in one.observation.producers]  # fmt: skip
    observed = replace(one.observation, producers=unread, producers_after=unread)
    recording = Recording(write(tmp_path, [replace(one, observation=observed)]))
    (row,) = recording.offset_visibility_rows("orders", 0, 120)
    assert (row["error"], row["holder_producer_id"]) == ("TOPIC_AUTHORIZATION_FAILED: no", None)
    assert row["reason"] == "It was beyond the LSO 100, and what held it was not read."
    (txn,) = recording.transaction_rows(transactional_ids=["who"])
    assert txn["error"] == (
        "NOT_OBSERVED: its coordinator may not have answered; "
        "missing: broker 2 did not answer ListTransactions: NETWORK_EXCEPTION"
    )


@pytest.mark.parametrize("table", ["partitions", "producers", "transactions", "findings"])
def test_a_sample_of_which_a_copy_lacks_rows_is_a_failed_one(table: str, tmp_path: Path) -> None:
    """Copied by name while the recorder wrote: the newest sample had no partition, so nothing hung."""
    copy = write(tmp_path, every(1, 3))
    (copy / table / files_of(copy, table)[-1].name).unlink()
    recording = Recording(copy)
    hanging, doubt = recording.finding_rows()
    assert (hanging["verdict"], hanging["observed_at"]) == ("hanging", NINE + MINUTE)
    assert (doubt["verdict"], doubt["error"].split(",")[0]) == ("unknown", f"INCOMPLETE: it lacks rows of {table}")
    assert [row["verdict"] for row in TABLES["findings"].rows(recording.findings_over_time())] == ["hanging"]
    known = resume(copy)
    assert known is not None
    assert known.due == NINE + MINUTE


def test_an_answer_names_the_time_of_its_sample(six: Path) -> None:
    """A recorder that was killed days ago: nothing hung, at a time that no answer said."""
    recording = Recording(six)
    recording.finding_rows()
    assert (recording.scope_text or "").endswith("; sample of 2026-11-21 09:50:00 UTC")


def test_a_newest_sample_of_the_future_is_not_known_to_be_the_newest(tmp_path: Path) -> None:
    """The clock of a recorder was two hours ahead and set back: for as long, its older samples were the answer."""
    due = dt.datetime.now(dt.UTC).replace(microsecond=0) + 2 * 60 * MINUTE
    recording = Recording(write(tmp_path, [sample(NINE), sample(due)]))
    assert [(row["topic"], row["verdict"]) for row in recording.finding_rows()][-1] == (None, "unknown")
    assert [each.verdict for each in recording.unreachable()] == ["unknown"]
    assert [row["topic"] for row in recording.finding_rows(at=due)] == ["orders"]


def test_a_sample_of_a_clock_that_was_set_back_is_not_known_to_be_the_newest(tmp_path: Path) -> None:
    """An hour later it was the answer: ongoing, though the samples after it show that it has ended."""
    ahead = sample(NINE + 60 * MINUTE)
    ahead = replace(ahead, row=replace(ahead.row, brokers_time=NINE))
    recording = Recording(write(tmp_path, [ahead, sample(NINE + 5 * MINUTE)]))
    doubt = recording.finding_rows()[-1]
    assert (doubt["topic"], doubt["verdict"]) == (None, "unknown")
    assert "2026-11-21 09:00:00 UTC by the brokers' clocks, and that of an earlier one is" in doubt["reason"]
    assert [each.verdict for each in recording.unreachable()] == ["unknown"]
    write(tmp_path, [sample(NINE + 61 * MINUTE)])
    assert recording.unreachable() == []


def test_coordinators_by_hash_and_by_response(tmp_path: Path) -> None:
    one = sample(NINE)
    assert one.observation is not None
    known = one.observation.partitions
    state = [replace(known[0], topic="__transaction_state", partition=number, leader=3) for number in range(50)]
    one = replace(one, observation=replace(one.observation, partitions=[*known, *state]))
    recording = Recording(write(tmp_path, [one]))
    ours, other = recording.coordinator_rows(groups=["readers"])
    assert (ours["key_type"], ours["error"][:27]) == ("group", "UNKNOWN_TOPIC_OR_PARTITION:")
    assert (other["key"], other["leader"], other["coordinator_id"], other["agrees"]) == ("payments-7", 3, 3, True)
    assert len(recording.coordinators()) == 1


def test_findings_name_partitions_without_later_samples(six: Path) -> None:
    recording = Recording(six)
    (row,) = recording.finding_rows(at=NINE + 30.5 * MINUTE)
    assert (row["verdict"], row["observed_at"]) == ("hanging", NINE + 30 * MINUTE)
    row, unknown = recording.finding_rows(at=NINE + 35 * MINUTE)
    assert (row["verdict"], unknown["verdict"]) == ("hanging", "unknown"), "an hour after the last sample it was clear"
    assert unknown["reason"].startswith("There is no sample from 2026-11-21 09:30:00 UTC to 2026-11-21 09:35:00 UTC")
    hanging, unknown = recording.finding_rows(at=NINE + 45 * MINUTE)
    assert (hanging["verdict"], hanging["observed_at"]) == ("hanging", NINE + 30 * MINUTE)
    assert (unknown["topic"], unknown["verdict"], unknown["error"]) == (
        None, "unknown", "NETWORK_EXCEPTION: The broker is gone.",
    )  # fmt: skip
    assert "the sample of 2026-11-21 09:40:00 UTC failed" in unknown["reason"]
    (row,) = recording.finding_rows()
    assert row["verdict"] == "hanging", "9:30 and 9:50 are two observations"
    assert [row["verdict"] for row in recording.finding_rows(at=NINE)] == ["unknown"], "the first one proves nothing"


def test_a_report_says_that_the_newest_samples_failed(tmp_path: Path) -> None:
    """`diagnose` did, with exit code 3; a report of the same recording said that nothing is open, with 0."""
    healthy = replace(sample(NINE), findings=())
    recording = Recording(write(tmp_path, [healthy, failed(NINE + dt.timedelta(minutes=10))]))
    (row,) = collect_incident(recording)["findings"]
    assert (row["topic"], row["verdict"]) == (None, "unknown")
    assert "What is open now is not known" in row["reason"]


def test_a_sample_of_another_cluster_is_no_second_look(tmp_path: Path) -> None:
    """Before recorders checked it: producer ids and offsets of another cluster are the same numbers."""
    first, last = every(1, 2)
    path = write(tmp_path, [replace(first, row=replace(first.row, cluster_id="another-one")), last])
    (row,) = Recording(path).finding_rows()
    assert (row["verdict"], row["action"]) == ("unknown", None)
    assert "a second sample: it was seen in one only" in row["missing"]


def test_a_sample_of_another_cluster_ends_nothing(tmp_path: Path) -> None:
    """Of two recordings in one folder, what was open in the first had `ended` by the sample of the second."""
    first, last = every(1, 2)
    last = replace(last, findings=(), row=replace(last.row, cluster_id="another-one"))
    recording = Recording(write(tmp_path, [first, last]))
    for name, options in (("findings_over_time", {}), ("lso_holds", {}), ("findings", {"min_held_ms": 0})):
        with pytest.raises(UsageError, match=r"are of the clusters another-one, of-a-test\."):
            getattr(recording, name)(**options)
    assert len(recording.findings_over_time(stop=last.due)) == 1


def test_requested_partitions_have_a_finding(six: Path) -> None:
    recording = Recording(six)
    assert len(recording.findings(topics=["orders"])) == 2
    assert [row["verdict"] for row in recording.finding_rows(topics=["orders"], partitions=[1])] == ["clear"]
    assert len(recording.finding_rows(broker_id=2)) == 2
    with pytest.raises(NotFound, match=r"^The sample of \S+ has no broker 9, only 1, 2, 3\."):  # it was "nothing hangs"
        recording.finding_rows(broker_id=9)


def test_history_has_the_findings_of_each_sample(six: Path) -> None:
    recording = Recording(six)
    everything = recording.history("findings")
    assert everything["sampled_at"].nunique() == 5
    assert set(everything["topic"]) == {"orders"}
    window = recording.history("findings", start=NINE + 10 * MINUTE, stop=NINE + 30 * MINUTE)
    assert sorted(window["sampled_at"].unique()) == [NINE + 10 * MINUTE, NINE + 20 * MINUTE]
    assert len(recording.late_transactions()) == 0
    with pytest.raises(UsageError, match=r"has no table 'batches'\. Use samples, partitions"):
        recording.history("batches")
    (row,) = recording.finding_over_time_rows()
    assert (row["topic"], row["partition"], row["verdict"], row["start_offset"]) == ("orders", 0, "hanging", 100)
    assert row["held_to"] is None, "the last sample still has it"
    assert row["held_from"] < row["observed_at"]
    for selected in ({"topics": "orders", "partitions": [0]}, {"partitions": [("orders", 0)]}):
        assert recording.findings_over_time(**selected)["start_offset"].tolist() == [100]
    assert recording.finding_over_time_rows(topics=["others"]) == []


def test_lso_holds_have_the_times_without_verdicts() -> None:
    """What the findings are is stored in the corpus."""
    sample = load("flight-recording")
    recording = sample.recording()
    assert recording
    (finding,), (hold,) = recording.finding_over_time_rows(), recording.lso_hold_rows()
    for name in ("topic", "partition", "producer_id", "transactional_id", "held_from", "held_to", "held_ms"):
        assert hold[name] == finding[name]
    assert (hold["first_offset"], hold["as_of"], hold["marker_offset"]) == (15, finding["observed_at"], None)
    assert recording.lso_hold_rows(stop=sample.at)[0]["held_to"] is None, "not over yet"
    assert recording.lso_hold_rows(topics=["others"]) == []


def test_reading_while_a_recorder_writes_and_merges(tmp_path: Path) -> None:
    directory, count = tmp_path / "recording", 60
    SampleWriter(directory).close()
    arguments = [sys.executable, "-m", "tests.sources.recorded", str(directory), str(count)]
    with started(arguments, cwd=ROOT) as writing:
        observed = 0
        while writing.poll() is None:
            for name in ("findings", "producers"):
                frame = Recording(directory).history(name)
                each = frame.groupby("sampled_at").size()
                assert (each == each.iloc[0]).all() if len(each) else True
                assert len(each) >= observed or name != "findings"
                observed = max(observed, len(each)) if name == "findings" else observed
        assert writing.returncode == 0
    assert observed > 0
    assert Recording(directory).history("findings")["sampled_at"].nunique() == count


def test_a_sample_that_is_written_while_others_are_read_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hung was over: its sample counted as one without it. And a partition that could not be read was left out."""
    of_partition = replace(*sample(NINE).findings, start_offset=None, producer_id=None, error="NOT_READ: no.")
    read_table = Recording._history
    with SampleWriter(tmp_path) as writer:

        def write(number: int) -> None:
            new = sample(NINE + number * dt.timedelta(seconds=10))
            writer.write(replace(new, findings=(*new.findings, replace(of_partition, observed_at=new.due))))

        def read_and_write(recording: Recording, table: str, *bounds: Any) -> Any:
            rows = read_table(recording, table, *bounds)
            write(len(files_of(tmp_path, "samples")))
            return rows

        write(0)
        monkeypatch.setattr(Recording, "_history", read_and_write)
        recording = Recording(tmp_path)
        (finding, _) = recording.finding_over_time_rows()
        assert (finding["verdict"], finding["held_to"]) == ("hanging", None)
        (hold, *_) = recording.lso_hold_rows()
        assert hold["held_ms"] is None
        assert {row["error"] for row in collect_incident(recording)["findings"]} == {None, "NOT_READ: no."}


def test_files_merged_while_a_folder_is_listed_are_listed_again(six: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir

    def list_while_merging(path: Any) -> list[str]:
        """Neither the merged file, added meanwhile, nor those that it replaces, removed meanwhile."""
        names = listdir(path)
        if path != six / "findings":
            return names
        monkeypatch.setattr(os, "listdir", listdir)
        with SampleWriter(six) as writer:
            writer.merge(now=NINE + 3 * 60 * MINUTE)
        return [name for name in names if (path / name).exists()]

    expected = Recording(six).history("findings")
    monkeypatch.setattr(os, "listdir", list_while_merging)
    actual = Recording(six).history("findings")
    assert os.listdir is listdir
    pd.testing.assert_frame_equal(actual, expected)


def test_a_restarted_recorder_resumes_its_state(six: Path) -> None:
    went_on = resume(six)
    assert went_on is not None
    assert went_on.observation is not None
    assert went_on.due == NINE + 50 * MINUTE
    assert went_on.first_seen == {("orders", 0, 8, 100): NINE}
    SampleWriter(six.parent / "new").close()
    assert resume(six.parent / "new") is None


FULL = dict.fromkeys(("merge_again", "merge_what_a_kill_left"), pytest.mark.full)


@pytest.mark.parametrize("context", [pytest.param(each, marks=FULL.get(each, pytest.mark.longer)) for each in SCENES])
def test_killed_before_every_operation_on_files(context: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "tests.sources.killed", context, str(tmp_path)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15, "so many times it was killed"


# Samples of a real Kafka with real incidents, and the tables of their recording.


@pytest.fixture
def sampled(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Sample]]:
    """Takes the next sample and writes it."""
    before: list[Sample] = []
    due = dt.datetime.now(dt.UTC).replace(microsecond=0)
    with SampleWriter(tmp_path) as writer:

        def take(**options: Any) -> Sample:
            sample = take_sample(
                cluster, **options, due=due + len(before) * SECOND, before=before[-1] if before else None
            )
            writer.write(sample)
            before.append(sample)
            return sample

        yield take


def of(rows: Sequence[Row], staged: StagedIncident) -> Row:
    """The finding of what was staged."""
    (row,) = [
        row
        for row in rows
        if (row["topic"], row["partition"], row["producer_id"], row["start_offset"])
        == (staged.topic, staged.partition, staged.producer_id, staged.start_offset)
    ]
    return row


def topics_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose logs are read from now on."""
    topics: list[str] = []

    def read_others(
        client: BrokerClient, starts: Sequence[ExcerptStart], **options: Any
    ) -> Mapping[TopicPartition, Excerpt]:
        topics.extend(each.tp.topic for each in starts)
        return read_excerpts(client, starts, **options)

    monkeypatch.setattr("toolkit.sources.live.partition_log.read_excerpts", read_others)
    return topics


def test_a_known_cause_is_not_read_again_for_a_minute(
    kafka: Kafka, cluster: Cluster, sampled: Callable[..., Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = INCIDENTS["late_after_commit"](kafka)
    sampled()
    read = of(sampled().tables["findings"], staged)
    topics = topics_read(monkeypatch)
    evidence = of(sampled().tables["findings"], staged)
    assert staged.topic not in topics
    for name in ("cause", "opened_at", "opened_at_clock", "records_held", "bytes_held", "held_from", "groups_held"):
        assert evidence[name] == read[name]
    assert "(late-after-commit, torn-transaction)" in evidence["cause"]
    assert [one["name"] for one in evidence["evidence"]][-4:] == [one["name"] for one in read["evidence"]][-4:]


def test_late_transactions_name_their_clock(
    kafka: Kafka, cluster: Cluster, sampled: Callable[..., Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings_over_time, "CLOCKS_DIFFER", dt.timedelta(0))
    assert longest_timeout_ms(cluster.client) == 3_600_000, "as this Kafka is configured"
    hanging = INCIDENTS["late_after_commit"](kafka)
    producers = [TxnProducer(cluster.client, f"{hanging.topic}-{each}", timeout_ms=1_000).init() for each in range(2)]
    producers[0].send(hanging.topic, 1)
    producers[1].send(hanging.topic, 1, timestamp=dt.datetime.now(dt.UTC) + dt.timedelta(minutes=50))
    with INCIDENTS["old_event_times"](kafka) as live:
        first = sampled(late_padding_ms=0)
        threading.Event().wait(1.1)
        last = sampled(late_padding_ms=0)
    observed = {(row["topic"], row["producer_id"]): row for row in last.tables["late_transactions"]}
    assert (live.topic, live.producer_id) not in observed, "its records are a week old, and it is not"
    assert (hanging.topic, hanging.producer_id) not in observed, "its id may have transactions of ten minutes"
    by_producer, by_recorder = (observed[hanging.topic, each.producer_id] for each in producers)
    assert (by_producer["opened_at_clock"], by_producer["timeout_ms"]) == ("producer", 1_000)
    assert first.observation is not None
    assert (by_recorder["opened_at_clock"], by_recorder["opened_at"]) == ("recorder", first.observation.observed_at)
    assert by_recorder["late_since"] == first.observation.observed_at + SECOND
    again = sampled()
    assert hanging.topic not in {row["topic"] for row in again.tables["late_transactions"]}, "five minutes are left"


def test_an_unreachable_cluster_is_a_failed_sample(kafka: Kafka, cluster: Cluster) -> None:
    with Cluster(kafka.bootstrap_servers) as gone:
        before = take_sample(gone, due=dt.datetime.now(dt.UTC))
    with pytest.raises(Exception, match="closed"):
        gone.observe()
    failed = take_sample(gone, due=dt.datetime.now(dt.UTC), before=before)
    assert failed.error is not None
    assert failed.observation is before.observation
    assert [name for name, rows in failed.tables.items() if rows] == ["samples"]
    after = take_sample(cluster, due=dt.datetime.now(dt.UTC), before=failed)
    assert after.error is None
