"""What was committed is never aborted: open transactions on real brokers, by what was decided about their records.

Markers are skipped or lost by the brokers themselves; nothing is mocked. See `tests.outcomes`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.actions.rows import forged
from tests.broker_files import copy_logs
from tests.outcomes import (
    FOLLOWER,
    LEADER,
    SKIPPING,
    STATE_PARTITIONS,
    Case,
    Client,
    Expected,
    Origin,
    OutcomeCluster,
    Sequel,
    StagedCase,
    cases,
    columns_of,
    few_cases,
    follow_remedies,
    real_cases,
    retried_cases,
    rows_of,
)
from tests.sources.log_files import compact_state_topic
from tests.sources.recorded import take_sample
from tests.tiers import is_full
from toolkit import Cluster, LogDir, Recording
from toolkit.actions.marker_actions import plan_abort
from toolkit.analysis.cluster_events import UNCLEAN
from toolkit.analysis.diagnosis.causes import MAX_EVENTS
from toolkit.errors import ActionRefused
from toolkit.formats.broker_logs import BrokerLogs, broker_log_events
from toolkit.lab import Kafka
from toolkit.lab.clients import ALWAYS_UP
from toolkit.schema import Row
from toolkit.schema.log import FROM_BROKER_LOG, FROM_METADATA
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import coordinator_logs
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.source import Source

MARKER_EVENTS = ("marker_skipped", "marker_refused")  # lines of brokers' own logs
UNKNOWN = Expected(verdict=Verdict.UNKNOWN, outcome="unknown", action=None)
NOT_COMMITTED = Expected(verdict=Verdict.HANGING, outcome="undecided", action="abort")
COMPLETED = Expected(verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")

VERSIONS = [
    pytest.param(version, marks=pytest.mark.longer if version == "4.3.1" else pytest.mark.full)
    for version in ("2.8.2", "3.5.2", "3.9.2", "4.2.1", "4.3.1", "4.4.0")
]
"""The coordinators of 3.3.2, 4.0.1 and 4.1.2 are those of one of these."""
RETRIED = ("3.5.2", "3.9.2", "4.2.1")
"""Versions whose coordinator writes the marker once the partition has a leader again."""


def cases_of(version: str) -> Sequence[Case]:
    """The cases of this tier that a version can have."""
    retried = retried_cases() if version in RETRIED else []
    if is_full() and version not in {"3.9.2", "4.2.1", "4.4.0"}:
        return [*cases(version), *retried]
    return [*few_cases(version), *real_cases(version, [Client.LIBRDKAFKA]), *retried]


@pytest.mark.lab
@pytest.mark.xdist_group("outcomes")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_committed_is_never_aborted(version: str, tmp_path: Path) -> None:
    """Whatever the producer did afterwards: verdict, outcome and action are right, and so is the check of abort."""
    with OutcomeCluster.start(version, cases_of(version)) as staged:
        healthy = check_retried(staged)
        undone = [each for each in staged.staged if each not in healthy]
        disowned = [each for each in undone if each.case.origin is not Origin.REFUSED]
        few = [each for each in staged.few() if each in disowned]
        committed = [each for each in few if each.case.expected.action == "complete" and each.case.client is Client.LAB]
        assert staged.still_open() == undone, "every other case has its transaction open"
        with Cluster(staged.kafka.bootstrap_servers) as cluster:
            check_findings(cluster, undone)
            assert {columns_of(row) for row in rows_of(cluster, disowned, log_evidence=False)} == {UNKNOWN}
            check_plans(cluster, committed)
            check_without_older_records(cluster, disowned, tmp_path / "recording")
        # From files, a log with missing offsets proves nothing.
        whole = [each for each in disowned if not each.group and each.case.origin is not Origin.COMPACTED]
        check_files(staged, whole, tmp_path / "copy")
        staged.restart_coordinator()
        check_coordinator_lines(staged)
        if version != "2.8.2":  # its brokers do not tell which ids are left
            idle = staged.expire_ids(disowned)
            with Cluster(staged.kafka.bootstrap_servers) as cluster:
                check_findings(cluster, idle)
                check_plans(cluster, idle[:3])
                staged.restart_producers(idle)
                check_findings(cluster, idle)
                check_plans(cluster, idle[:3])
        with Cluster(staged.kafka.bootstrap_servers) as cluster:
            ended = follow_remedies(cluster, few)
        check_received(staged, [*ended, *healthy, *(each for each in undone if each not in disowned)])


def check_retried(staged: OutcomeCluster) -> list[StagedCase]:
    """The healthy cases that look most like a skipped marker: it follows once the partition has a leader again."""
    if staged.kafka.version in SKIPPING:
        return []
    retried = [each for each in staged.staged if each.case.origin is Origin.SKIPPED]
    topics = sorted({each.topic for each in retried})
    with Cluster(staged.kafka.bootstrap_servers) as cluster:
        assert {row["verdict"] for row in cluster.finding_rows(topics=topics)} <= {"clear"}
    return retried


def check_without_older_records(cluster: Cluster, staged: Sequence[StagedCase], path: Path) -> None:
    """Where only the last record of the coordinators' log is read, markers on other partitions prove an outcome.

    They do with transaction version 2, if a COMMIT marker began the epoch: an abort raises it in both versions.
    Else the outcome is unknown, or the last record shows the true one. A recording keeps the proof.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator_logs, "MAX_RECORDS", 1)
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
    assert bool(markers) == any(each.case.transaction_version == 2 and each.case.earlier for each in staged)


def record_twice(cluster: Cluster, path: Path) -> None:
    """Two samples: one alone decides nothing."""
    due = dt.datetime.now(dt.UTC).replace(microsecond=0)
    with SampleWriter(path) as writer:
        before = take_sample(cluster, due=due)
        writer.write(before)
        writer.write(take_sample(cluster, due=due + dt.timedelta(seconds=1), before=before))


def check_by_markers(rows: Sequence[Row], staged: Sequence[StagedCase]) -> None:
    for each, row in zip(staged, rows, strict=True):
        has_commit = each.case.commit or each.case.sequel is Sequel.THREE_COMMITS
        is_missing = each.case.origin.is_marker_missing
        # The commit before it shows that its epoch began with version 2.
        is_proven = each.case.transaction_version == 2 and has_commit and is_missing and each.case.earlier > 0
        allowed = {each.case.expected} if is_proven else {each.case.expected, UNKNOWN}
        assert columns_of(row) in allowed, (str(each.case), row["reason"], row["missing"])


def check_files(staged: OutcomeCluster, disowned: Sequence[StagedCase], path: Path) -> None:
    """A copy of the logs proves what the cluster does, also if the coordinators' log is compacted."""
    with LogDir(copy_logs(staged.kafka, path), consistent_copy=True, txn_state_partitions=STATE_PARTITIONS) as files:
        check_findings(files, disowned)
        if staged.kafka.version != "2.8.2":  # ZooKeeper: no metadata log
            check_causes(files, disowned)
    check_lines(staged, disowned, path)
    compact_state_topic(path / str(ALWAYS_UP))
    check_by_markers(
        rows_of(LogDir(path, consistent_copy=True, txn_state_partitions=STATE_PARTITIONS), disowned), disowned
    )


def check_causes(files: LogDir, staged: Sequence[StagedCase]) -> None:
    """The metadata log shows who lost a marker: a replica that led without it, or a partition without a leader."""
    names = {Origin.LOST: "(marker-lost)", Origin.SKIPPED: "(marker-skipped)"}
    texts = {Origin.LOST: "by an unclean election", Origin.SKIPPED: "nobody leads now"}
    for each, row in zip(staged, rows_of(files, staged), strict=True):
        if columns_of(row) == UNKNOWN:
            continue
        cause, origin, is_decided = row["cause"] or "", each.case.origin, row["outcome"] in {"commit", "abort"}
        of_metadata = [entry["name"] for entry in row["evidence"] if entry["source"] == FROM_METADATA]
        # On a busy machine the ISR changes more often than a finding shows.
        assert "broker_fenced" in of_metadata or len(of_metadata) == MAX_EVENTS, str(each.case)
        for other, text in texts.items():
            assert (text in cause) == (other is origin and is_decided), cause
        assert names.get(origin, "") in cause or not is_decided


def check_lines(staged: OutcomeCluster, disowned: Sequence[StagedCase], path: Path) -> None:
    """With the brokers' own logs findings are the same, and cite who skipped a marker, or truncated it away."""
    logs = BrokerLogs(*staged.kafka.broker_logs.values())
    is_older = staged.kafka.version < "4.2"
    if is_older:
        send_newer_markers(staged.kafka)
    with LogDir(path, consistent_copy=True, txn_state_partitions=STATE_PARTITIONS, broker_logs=logs) as files:
        check_findings(files, disowned)
        rows, events = rows_of(files, disowned), files.cluster_event_rows()
    assert not [row for row in events if row["error"]]
    cited = {Origin.SKIPPED: (ALWAYS_UP, "find leader endpoint"), Origin.LOST: (LEADER, "Truncating")}
    for each, row in zip(disowned, rows, strict=True):
        lines = [entry for entry in row["evidence"] if entry["source"] == FROM_BROKER_LOG]
        for origin, (broker_id, text) in cited.items():
            of_broker = [entry for entry in lines if entry["broker_id"] == broker_id and text in entry["value"]]
            assert bool(of_broker) == (origin is each.case.origin), (str(each.case), lines)
            if of_broker and row["outcome"] in {"commit", "abort"}:
                assert f"broker {broker_id} logged at " in row["cause"]
                assert text in row["cause"]
    refusing = {row["affected_broker"] for row in events if row["event"] == "marker_request_failed"}
    assert refusing == ({LEADER} if is_older else set())
    if staged.kafka.version != "2.8.2":  # ZooKeeper's controller does not log it
        lost = {(each.topic, each.partition) for each in disowned if each.case.origin is Origin.LOST}
        lines = [row for row in events if row["event"] == UNCLEAN and row["source"] == FROM_BROKER_LOG]
        of_lost = [row for row in lines if (row["topic"], row["partition"]) in lost]
        assert lost == {(row["topic"], row["partition"]) for row in of_lost}
        assert {row["leader"] for row in of_lost if row["leader_epoch"]} == {FOLLOWER}
    found = {name: {row["transactional_id"] for row in events if row["event"] == name} for name in MARKER_EVENTS}
    origins = {"marker_skipped": Origin.SKIPPED, "marker_refused": Origin.REFUSED}
    for name, origin in origins.items():
        ids = {each.producer.transactional_id for each in staged.staged if each.case.origin is origin}
        is_retried = origin is Origin.SKIPPED and staged.kafka.version not in SKIPPING
        assert found[name] - {None} == (set() if is_retried else ids), name


def check_coordinator_lines(staged: OutcomeCluster) -> None:
    """The restart of the coordinators' broker is in its log, and both times that it loaded each partition."""
    lines = list(broker_log_events(staged.kafka.broker_logs[ALWAYS_UP]))
    loaded = Counter(line.partition for line in lines if line.event == "coordinator_loaded")
    assert loaded.keys() == {*range(STATE_PARTITIONS)}
    assert min(loaded.values()) >= 2
    about_itself = Counter(line.event for line in lines if line.affected_broker == ALWAYS_UP)
    assert (about_itself["broker_started"], about_itself["broker_stopped"]) == (2, 1)


def send_newer_markers(kafka: Kafka) -> None:
    """WriteTxnMarkers of version 2, as brokers of 4.2.0 send it to older ones (KAFKA-20322)."""
    host, port = kafka.bootstrap_servers.split(",")[LEADER - 1].split(":")
    client_id = b"broker-1-txn-marker-sender"
    request = struct.pack(">hhih", 27, 2, 1, len(client_id)) + client_id + b"\0\1\0"
    with socket.create_connection((host, int(port)), timeout=60) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(struct.pack(">i", len(request)) + request)
        assert connection.recv(1) == b"", "the broker closes the connection"


def check_findings(source: Source, staged: Sequence[StagedCase]) -> None:
    """The findings of all partitions in one query."""
    rows = rows_of(source, staged)
    found = {str(each.case): columns_of(row) for each, row in zip(staged, rows, strict=True)}
    expected = {str(each.case): each.case.expected for each in staged}
    for each in staged:
        if each.case.may_be_unknown and found[str(each.case)] == UNKNOWN:
            expected[str(each.case)] = UNKNOWN
        if each.case.transaction_version == 1 and found[str(each.case)] == NOT_COMMITTED == replace(
            expected[str(each.case)], outcome="undecided"
        ):
            expected[str(each.case)] = NOT_COMMITTED  # its marker may have been there
        # Brokers write the times of offsets, which can be old enough to prove the commit.
        if each.case.has_offsets and each.case.is_received and found[str(each.case)] == COMPLETED:
            expected[str(each.case)] = COMPLETED
    assert found == expected, [row["missing"] for row in rows if row["missing"]]
    for row in rows:
        for action in ("abort", "complete"):
            is_likely = action == "complete" and "a commit is likely" in row["remedy"]
            assert (f"kafka-txn {action}" in row["remedy"]) == (row["action"] == action or is_likely), row["remedy"]


def check_plans(cluster: Cluster, staged: Sequence[StagedCase]) -> None:
    """Even a plan that was made when the finding still said `hanging` is refused for what was committed."""
    for each, row in zip(staged, rows_of(cluster, staged), strict=True):
        plan = plan_abort(cluster, forged(row, missing=()))
        if each.case.expected.action == "abort":
            assert plan.check(recheck_after=0.1)
        else:
            with pytest.raises(ActionRefused):
                plan.check(recheck_after=0.1)


def check_received(staged: OutcomeCluster, ended: Sequence[StagedCase]) -> None:
    """A read_committed consumer receives what was committed, and nothing else; so do groups of their offsets."""
    received = staged.received()
    found = {str(each.case): each in received for each in ended}
    assert found == {str(each.case): each.case.is_received for each in ended}
