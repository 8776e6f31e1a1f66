"""Samples of a real Kafka with real incidents, and the tables of their recording."""

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sources.recorded import take_sample
from toolkit import Cluster
from toolkit.actions.marker_actions import plan_abort
from toolkit.analysis import findings_over_time
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import longest_timeout_ms
from toolkit.sources.live.observe import LiveEvidence
from toolkit.sources.live.partition_log import read_excerpts
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import Sample

pytestmark = pytest.mark.lab

SECOND = dt.timedelta(seconds=1)


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


def test_what_joins_a_hanging_transaction_has_the_log_read_again(
    kafka: Kafka, cluster: Cluster, sampled: Callable[..., Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of a commit whose marker is missing: what was known of the records before is not known of it."""
    staged = INCIDENTS["never_added"](kafka)
    sampled()
    of(sampled().tables["findings"], staged)
    topics = topics_read(monkeypatch)
    sampled()
    assert staged.topic not in topics
    owner = TxnProducer(cluster.client, staged.transactional_id)
    owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
    owner._sequences[staged.topic, staged.partition] = 1
    owner.send(staged.topic, staged.partition)
    row = of(sampled().tables["findings"], staged)
    assert staged.topic in topics
    assert (row["verdict"], row["offsets_held"]) == ("hanging", 2)


def test_brokers_of_another_cluster_at_the_address_fail_the_sample(kafka: Kafka) -> None:
    """A port-forward led to another cluster: what hung on the first had `ended`, as no sample had it any more."""
    with Cluster(kafka.bootstrap_servers) as cluster:
        first = take_sample(cluster, due=dt.datetime.now(dt.UTC).replace(microsecond=0))
        assert take_sample(cluster, due=first.due + SECOND, before=first).error is None
        other = replace(first, row=replace(first.row, cluster_id="another"))
        sample = take_sample(cluster, due=first.due + SECOND, before=other)
    assert (sample.error or "").startswith("OTHER_CLUSTER: These brokers are of cluster "), sample.error
    assert (sample.tables["findings"], sample.observation) == ([], first.observation)


def test_what_was_read_while_a_coordinator_was_away_is_read_again(
    kafka: Kafka, cluster: Cluster, sampled: Callable[..., Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker was killed within a sample, before its log was read: that stayed `unknown` for a minute."""
    staged = INCIDENTS["never_added"](kafka)
    sampled()

    def observe(self: Cluster) -> Observation:
        found = really(self)
        return replace(found, coverage=replace(found.coverage, gaps=["broker 2 did not answer"]))

    really = Cluster.observe
    with monkeypatch.context() as away:
        away.setattr(LiveEvidence, "coordinator_logs", lambda self, cases: iter(()))
        for answer in (really, observe):
            away.setattr(Cluster, "observe", answer)
            row = of(sampled().tables["findings"], staged)
            assert (row["verdict"], row["outcome"]) == ("unknown", "unknown")
    sampled()  # with the gaps of the one before
    row = of(sampled().tables["findings"], staged)
    assert (row["verdict"], row["outcome"], row["action"]) == ("hanging", "undecided", "abort")


def test_what_holds_the_lso_next_is_explained_in_the_same_sample(
    kafka: Kafka, cluster: Cluster, sampled: Callable[..., Sample]
) -> None:
    """Its evidence was read while another transaction held the LSO, without groups and times; it was not read again."""
    first = INCIDENTS["late_after_commit"](kafka)
    following = INCIDENTS["never_added"](kafka, topic=first.topic)
    sampled()
    behind = of(sampled().tables["findings"], following)
    assert (behind["queue_position"], behind["held_from"], behind["compaction_held"]) == (2, None, None)
    plan = plan_abort(cluster, of(cluster.finding_rows(topics=[first.topic]), first))
    plan.execute(confirm=plan.target, recheck_after=0)
    row = of(sampled().tables["findings"], following)
    assert (row["queue_position"], row["compaction_held"], row["groups_held"]) == (1, False, [])
    assert row["held_from"]
    assert row["cause"] == behind["cause"]


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
