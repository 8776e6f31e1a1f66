"""What was committed is never aborted: open transactions on real brokers, by what was decided about their records.

Markers are skipped or lost by the brokers themselves; nothing is mocked. See `tests.outcomes`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.outcomes import ALWAYS_UP, LEFT, Case, Expected, Loss, Origin, OutcomeCluster, Sequel, StagedCase, cases
from tests.sources.log_files import compact_state_topic
from tests.tiers import is_full
from toolkit import Cluster, LogDir, Recording
from toolkit.actions.abort import plan_abort
from toolkit.actions.complete import plan_complete
from toolkit.errors import ActionRefused
from toolkit.schema import Row
from toolkit.sources.live.logs import log_evidence
from toolkit.sources.recording.sample_files.sample_writer import SampleWriter
from toolkit.sources.recording.sampling.sample import take_sample
from toolkit.sources.source import Source

FEW = [
    *(
        Case(origin=Origin.MARKER_MISSING, commit=True, sequel=sequel)
        for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.OPEN, Sequel.NEW_INSTANCE)
    ),
    Case(origin=Origin.MARKER_MISSING, commit=True, sequel=Sequel.ABORT, earlier=0),
    Case(origin=Origin.MARKER_MISSING, commit=True, sequel=Sequel.THREE_COMMITS, earlier=1),
    Case(origin=Origin.MARKER_MISSING, commit=False, sequel=Sequel.THREE_COMMITS),
    Case(origin=Origin.LATE_BATCH, commit=True, sequel=Sequel.THREE_COMMITS),
    Case(origin=Origin.LATE_BATCH, commit=False, sequel=Sequel.NOTHING),
    Case(origin=Origin.NEVER_ADDED, sequel=Sequel.OPEN),
    Case(origin=Origin.SUPERSEDED, sequel=Sequel.NEW_INSTANCE),
]
FEW_OF_VERSION_2 = [
    *(
        Case(origin=Origin.MARKER_MISSING, commit=True, sequel=sequel, transaction_version=2)
        for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.NEW_INSTANCE_OPEN)
    ),
    Case(origin=Origin.LATE_BATCH, commit=True, sequel=Sequel.NOTHING, transaction_version=2),
]

UNKNOWN = Expected(verdict="unknown", outcome="unknown", action=None)

FULL = pytest.mark.full
CLUSTERS = [
    pytest.param("4.3.1", Loss.SKIPPED, marks=pytest.mark.longer),
    pytest.param("3.5.2", Loss.ELECTION, marks=pytest.mark.longer),
    pytest.param("4.4.0", Loss.SKIPPED, marks=FULL),
    *(
        pytest.param(version, Loss.ELECTION, marks=FULL)
        for version in ("2.8.2", "3.3.2", "3.9.2", "4.0.1", "4.1.2", "4.2.1", "4.3.1", "4.4.0")
    ),
]
RETRIED = ("3.5.2", "3.9.2", "4.0.1", "4.1.2", "4.2.1")
"""Versions whose coordinator writes the marker once the partition has a leader again."""


def cases_of(version: str) -> Sequence[Case]:
    """The cases of this tier that a version can have."""
    has_version_2 = version >= "4"
    if is_full():
        return cases(transaction_versions=(1, 2) if has_version_2 else (1,))
    return [*FEW, *(FEW_OF_VERSION_2 if has_version_2 else [])]


@pytest.mark.lab
@pytest.mark.parametrize(("version", "loss"), CLUSTERS)
def test_what_was_committed_is_never_aborted(version: str, loss: Loss, tmp_path: Path) -> None:
    """Whatever the producer did afterwards: verdict, outcome and action are right, and so is the preflight of abort."""
    with OutcomeCluster.start(version, loss, cases_of(version)) as staged:
        assert staged.still_open() == staged.staged, "every case has its transaction open"
        with Cluster(staged.kafka.bootstrap_servers) as cluster:
            check_findings(cluster, staged.staged)
            assert {columns_of(row) for row in rows_of(cluster, staged.staged, log_evidence=False)} == {UNKNOWN}
            check_preflights(cluster, few(staged.staged))
            check_without_older_records(cluster, staged.staged, tmp_path / "recording")
        check_files(staged, tmp_path / "copy")
        if version != "2.8.2":  # its brokers do not tell which ids are left
            idle = staged.expire_ids()
            with Cluster(staged.kafka.bootstrap_servers) as cluster:
                check_findings(cluster, idle)
                check_preflights(cluster, idle[:3])
                staged.restart_producers(idle)
                check_findings(cluster, idle)
                check_preflights(cluster, idle[:3])
        with Cluster(staged.kafka.bootstrap_servers) as cluster:
            ended = follow_remedies(cluster, few(staged.staged))
        check_received(staged, ended)


def check_without_older_records(cluster: Cluster, staged: Sequence[StagedCase], path: Path) -> None:
    """Where only the last record of the coordinators' log is read, markers on other partitions prove an outcome.

    They do with transaction version 2, if one of them is a COMMIT marker: an abort raises the epoch in both versions.
    Else the outcome is unknown, or the last record shows the true one. A recording keeps the proof.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_evidence, "MAX_RECORDS", 1)
        rows = rows_of(cluster, staged)
        record_twice(cluster, path)
    check_by_markers(rows, staged)
    recorded = rows_of(Recording(path), staged)
    check_by_markers(recorded, staged)
    markers, in_recording = (
        [entry for row in found for entry in row["evidence"] if entry["name"] == "marker_elsewhere"]
        for found in (rows, recorded)
    )
    assert [entry["value"] for entry in in_recording] == [entry["value"] for entry in markers]
    assert bool(markers) == any(each.case.transaction_version == 2 for each in staged)


def record_twice(cluster: Cluster, path: Path) -> None:
    """Two samples: one alone decides nothing."""
    due = dt.datetime.now(dt.UTC).replace(microsecond=0)
    with SampleWriter(path) as writer:
        before = take_sample(cluster, due=due, interval_ms=1_000, before=None)
        writer.write(before)
        writer.write(take_sample(cluster, due=due + dt.timedelta(seconds=1), interval_ms=1_000, before=before))


def check_by_markers(rows: Sequence[Row], staged: Sequence[StagedCase]) -> None:
    for each, row in zip(staged, rows, strict=True):
        has_commit = each.case.commit or each.case.sequel is Sequel.THREE_COMMITS
        is_missing = each.case.origin is Origin.MARKER_MISSING
        is_proven = each.case.transaction_version == 2 and has_commit and is_missing
        allowed = {each.case.expected} if is_proven else {each.case.expected, UNKNOWN}
        assert columns_of(row) in allowed, (str(each.case), row["reason"], row["missing"])


def check_files(staged: OutcomeCluster, path: Path) -> None:
    """A copy of the logs proves what the cluster does, also if the coordinators' log is compacted."""
    with LogDir(staged.copy_logs(path), consistent_copy=True) as files:
        check_findings(files, staged.staged)
    compact_state_topic(path / str(ALWAYS_UP))
    check_by_markers(rows_of(LogDir(path, consistent_copy=True), staged.staged), staged.staged)


def few(staged: Sequence[StagedCase]) -> list[StagedCase]:
    """Those of the first tier: a preflight takes a second, and so does an action."""
    return [each for each in staged if each.case in {*FEW, *FEW_OF_VERSION_2}]


def check_findings(source: Source, staged: Sequence[StagedCase]) -> None:
    """The findings of all partitions in one query."""
    rows = rows_of(source, staged)
    found = {str(each.case): columns_of(row) for each, row in zip(staged, rows, strict=True)}
    expected = {str(each.case): each.case.expected for each in staged}
    for each in staged:
        if each.case.may_be_unknown and found[str(each.case)] == UNKNOWN:
            expected[str(each.case)] = UNKNOWN
    assert found == expected, [row["missing"] for row in rows if row["missing"]]
    for row in rows:
        for action in ("abort", "complete"):
            assert (f"kafka-txn {action}" in row["remedy"]) == (row["action"] == action), row["remedy"]


def rows_of(source: Source, staged: Sequence[StagedCase], **arguments: Any) -> list[Row]:
    if isinstance(source, Cluster):
        arguments["recheck_after"] = 0.1
    rows: Mapping[tuple[int, int], Row] = {
        (row["partition"], row["producer_id"]): row
        for row in source.finding_rows(topics=[LEFT], **arguments)
        if row["producer_id"] is not None
    }
    return [rows[each.partition, each.producer_id] for each in staged]


def columns_of(row: Row) -> Expected:
    return Expected(verdict=row["verdict"], outcome=row["outcome"], action=row["action"])


def check_preflights(cluster: Cluster, staged: Sequence[StagedCase]) -> None:
    """Even a plan that was made when the finding still said `hanging` is refused for what was committed."""
    for each, row in zip(staged, rows_of(cluster, staged), strict=True):
        plan = plan_abort(
            cluster, {**row, "verdict": "hanging", "outcome": "undecided", "action": "abort", "missing": []}
        )
        if each.case.expected.action == "abort":
            assert plan.preflight(recheck_after=0.1)
        else:
            with pytest.raises(ActionRefused):
                plan.preflight(recheck_after=0.1)


def follow_remedies(cluster: Cluster, staged: Sequence[StagedCase]) -> list[StagedCase]:
    """Do what each finding says; those that ended by it."""
    ended = []
    for each, row in zip(staged, rows_of(cluster, staged), strict=True):
        if row["action"] == "complete":
            missing_marker = plan_complete(cluster, row)
            missing_marker.execute(confirm=missing_marker.target, recheck_after=0.1)
        elif row["action"] == "abort":
            plan = plan_abort(cluster, row)
            plan.execute(confirm=plan.target, recheck_after=0.1)
        if row["action"]:
            ended.append(each)
    return ended


def check_received(staged: OutcomeCluster, ended: Sequence[StagedCase]) -> None:
    """A read_committed consumer receives what was committed, and nothing else."""
    received = staged.received()
    found = {str(each.case): (each.partition, each.start_offset) in received for each in ended}
    assert found == {str(each.case): each.case.expected.outcome == "commit" for each in ended}


@pytest.mark.full
@pytest.mark.lab
@pytest.mark.parametrize("version", RETRIED)
def test_the_marker_of_an_offline_partition_follows_once_it_has_a_leader(version: str) -> None:
    """The healthy case that looks most like a skipped marker."""
    retried = [
        Case(origin=Origin.MARKER_MISSING, commit=commit, sequel=sequel)
        for commit in (True, False)
        for sequel in (Sequel.NOTHING, Sequel.OPEN)
    ]
    with OutcomeCluster.start(version, Loss.SKIPPED, retried) as staged:
        assert staged.still_open() == []
        with Cluster(staged.kafka.bootstrap_servers) as cluster:
            verdicts = {row["verdict"] for row in cluster.finding_rows(topics=[LEFT])}
        assert verdicts == {"clear"}
