"""A timeline that grows while a cluster runs, and one from a recording."""

import datetime as dt
from pathlib import Path

import pytest

from tests.sources.recorded import NINE, sample
from tests.views.plots.busy import NOW
from tests.views.plots.drawn import bars, traces, words
from toolkit import Cluster, Recording
from toolkit.errors import NotFound, UsageError
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.producer import write_committed
from toolkit.schema.live import Producer
from toolkit.sources.recording.sample_writer import SampleWriter
from toolkit.views.plots import LiveTimeline
from toolkit.views.plots.live_timeline import sampled_log_transactions

SECOND = dt.timedelta(seconds=1)


@pytest.mark.lab
def test_the_timeline_grows_while_the_cluster_runs(kafka: Kafka) -> None:
    staged = INCIDENTS["late_message"](kafka)
    with Cluster(kafka.bootstrap_servers) as cluster:
        timeline = LiveTimeline(cluster, staged.topic, staged.partition, recheck_after=1.1)
        before = timeline.figure()
        write_committed(cluster.client, staged.topic, staged.partition)
        after = timeline.figure()
    assert timeline.problems == []
    for figure in (before, after):
        assert [offset for _, _, offset in bars(traces(figure)["HANGING ◆"])] == [staged.start_offset]
        assert traces(figure)["LSO"]["y"][-1] == staged.start_offset
        assert staged.transactional_id in traces(figure)["CompleteAbort"]["y"]
    ends = [traces(figure)["high watermark"]["y"][-1] for figure in (before, after)]
    assert ends[1] > ends[0]
    assert traces(after)["high watermark"]["x"][-1] > traces(before)["high watermark"]["x"][-1]


def test_a_recording_is_drawn_from_its_samples(tmp_path: Path) -> None:
    with SampleWriter(tmp_path) as writer:
        for number in range(5):
            writer.write(sample(NINE + number * 10 * SECOND))
    figure = LiveTimeline(Recording(tmp_path), "orders", 0).figure()
    assert "orders-0: LSO held at 100" in words(figure)
    assert [offset for _, _, offset in bars(traces(figure)["HANGING ◆"])] == [100]
    with pytest.raises(NotFound):
        LiveTimeline(Recording(tmp_path), "nowhere", 0).figure()


def producer(seconds: int, producer_id: int, start: int | None) -> Producer:
    return Producer(
        topic="orders",
        partition=0,
        producer_id=producer_id,
        producer_epoch=1,
        current_txn_start_offset=start,
        observed_at=NOW + seconds * SECOND,
    )


def test_an_open_transaction_ends_at_the_first_sample_without_it() -> None:
    rows = [producer(0, 1, 5), producer(10, 1, 5), producer(20, 1, None), producer(20, 2, 9), producer(30, 1, 12)]
    log_transactions = sampled_log_transactions(rows, [NOW + seconds * SECOND for seconds in (0, 10, 20, 30)])
    found = [(txn.producer_id, txn.first_offset, txn.outcome, txn.end) for txn in log_transactions]
    assert found == [(1, 5, None, NOW + 20 * SECOND), (2, 9, None, NOW + 30 * SECOND), (1, 12, "open", None)]
    assert (log_transactions[0].error or "").startswith("SAMPLED")


def test_another_object_is_rejected_as_source() -> None:
    with pytest.raises(UsageError, match="no source"):
        LiveTimeline("localhost:9092", "orders", 0).figure()  # type: ignore[arg-type]
