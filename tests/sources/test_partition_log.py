"""The log of a live partition over the network, against the very files of its broker; coordinators' likewise."""

import datetime as dt
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pytest
from kafka.protocol import admin

from toolkit import Cluster
from toolkit.errors import BrokerError, NotFound
from toolkit.formats.coordinator_records import coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema import BATCHES, Row
from toolkit.schema.live import Partition
from toolkit.sources.live import broker_client, coordinator_logs, partition_log
from toolkit.sources.live.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.leaders import read_partitions
from toolkit.sources.live.partition_log import FetchedChunk, batch_tables_of, fetch_range


def fetched_chunks(cluster: Cluster, topic: str, *, crc: bool = False) -> Iterator[FetchedChunk]:
    """The whole log of partition 0, read lazily."""
    (row,) = cluster.partition_rows(topics=[topic], partitions=[0])
    return fetch_range(cluster.client, Partition.of(row), "log_start", "high_watermark", crc=crc).chunks


pytestmark = pytest.mark.lab

AHEAD = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(minutes=50)  # of any time in a long test run


@pytest.fixture(scope="module")
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(scope="module")
def staged(kafka: Kafka) -> Iterator[StagedIncident]:
    """A partition with transactions committed, aborted and open, idempotent batches among them."""
    with INCIDENTS["several_open"](kafka) as staged, Cluster(kafka.bootstrap_servers) as cluster:
        producer = TxnProducer(cluster.client, f"busy-{uuid.uuid4().hex[:6]}").init()
        for number in range(20):
            producer.add(staged.topic, 0)
            producer.send(staged.topic, 0, records=1 + number % 3, timestamp=AHEAD + dt.timedelta(seconds=number))
            producer.end(commit=bool(number % 2))
        yield staged


def delete_records(cluster: Cluster, topic: str, *, before: int) -> None:
    request = broker_client.DeleteRecords.DeleteRecordsTopic
    one = request.DeleteRecordsPartition(partition_index=0, offset=before)
    requests = broker_client.DeleteRecords(
        topics=[request(name=topic, partitions=[one])], timeout_ms=10_000, max_version=1
    )
    answer = cluster.client.send_one(requests, broker_id=1)
    assert answer.topics[0].partitions[0].error_code == 0


def row_of(cluster: Cluster, topic: str) -> Row:
    (row,) = cluster.partition_rows(topics=[topic], partitions=[0])
    return row


def offsets(frame: pd.DataFrame) -> list[int]:
    return [int(offset) for offset in frame["base_offset"].dropna()]


def test_any_fetch_size_gives_the_same_tables(
    cluster: Cluster, staged: StagedIncident, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest are smaller than any batch, which is then returned completely (KIP-74)."""
    whole = [
        table(topics=staged.topic, partitions=0)
        for table in (cluster.batches, cluster.log_transactions, cluster.lso_timeline)
    ]
    for size in (1, 300):
        monkeypatch.setattr(partition_log, "FETCH_BYTES", size)
        pieces = [
            table(topics=staged.topic, partitions=0)
            for table in (cluster.batches, cluster.log_transactions, cluster.lso_timeline)
        ]
        for one, other in zip(whole, pieces, strict=True):
            pd.testing.assert_frame_equal(one, other)


def test_a_range_is_the_batches_that_contain_its_offsets(cluster: Cluster, staged: StagedIncident) -> None:
    every = cluster.batches(topics=staged.topic, partitions=0)
    row = row_of(cluster, staged.topic)
    for start, stop in ((0, 5), (7, 12), (9, 9), (row["high_watermark"] - 1, 10**9), (10**9, 2 * 10**9)):
        held = every[(every["last_offset"] >= start) & (every["base_offset"] < stop)]
        expected = offsets(held) if start < stop else []
        assert offsets(cluster.batches(topics=staged.topic, partitions=0, start=start, stop=stop)) == expected
    after_the_lso = offsets(cluster.batches(topics=staged.topic, partitions=0, start="lso"))
    assert after_the_lso[0] == row["last_stable_offset"] == staged.start_offset
    assert offsets(cluster.batches(topics=staged.topic, partitions=0, stop="lso")) + after_the_lso == offsets(every)
    assert offsets(cluster.batches(topics=staged.topic, partitions=0, start="log_start", stop="log_end")) == offsets(
        every
    )


def test_a_range_by_time(cluster: Cluster, staged: StagedIncident) -> None:
    every = cluster.batches(topics=staged.topic, partitions=0)
    data = every[~every["is_control"]]
    for seconds in (10, 10.0004, 19):
        time = AHEAD + dt.timedelta(seconds=seconds)
        first = offsets(data[data["max_timestamp"] >= time])[0]
        assert offsets(cluster.batches(topics=staged.topic, partitions=0, start=time))[0] == first
        assert offsets(cluster.batches(topics=staged.topic, partitions=0, stop=time))[-1] < first
    assert offsets(cluster.batches(topics=staged.topic, partitions=0, start=AHEAD + dt.timedelta(days=1))) == []


def test_a_response_of_the_old_leader_is_not_used(cluster: Cluster, staged: StagedIncident) -> None:
    """FENCED_LEADER_EPOCH, and a stopped broker: the metadata is read again, and the new leader is queried."""
    row = row_of(cluster, staged.topic)
    for stale in ({"leader_epoch": -1 if not row["leader_epoch"] else row["leader_epoch"] - 1}, {"leader": 9}):
        fetched = fetch_range(cluster.client, Partition.of({**row, **stale}), "log_start", "high_watermark")
        pd.testing.assert_frame_equal(
            BATCHES.frame(batch_tables_of(fetched)), cluster.batches(topics=staged.topic, partitions=0)
        )


def test_deleted_offsets_are_a_row_and_the_rest_is_read(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["head_deleted"](kafka) as staged:
        row = row_of(cluster, staged.topic)
        frame = cluster.batches(topics=staged.topic, partitions=0, start=0)
        gone = frame[frame["error"].notna()]
        start = row["log_start_offset"]
        assert gone["error"].tolist() == [
            f"OFFSET_OUT_OF_RANGE: the log starts at {start} now; offsets 0 to {start - 1} are deleted, by retention "
            "or DeleteRecords"
        ]
        assert gone[["base_offset", "position", "size"]].isna().all(axis=None)
        assert offsets(frame) == offsets(cluster.batches(topics=staged.topic, partitions=0))
        assert cluster.log_transactions(topics=staged.topic, partitions=0, start=0)["error"].notna().sum() == 1
        with pytest.raises(BrokerError, match=rf"^{staged.topic}-0 could not be read: the log starts at {start} now"):
            cluster.lso_timeline(topics=staged.topic, partitions=0, start=0)


def test_retention_during_the_read(cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    with INCIDENTS["never_added"](kafka) as staged:
        producer = TxnProducer(cluster.client, f"more-{staged.topic}").init()
        for _ in range(10):
            producer.send(staged.topic, 0)
        monkeypatch.setattr(partition_log, "FETCH_BYTES", 1)
        pieces = fetched_chunks(cluster, staged.topic)
        read = [next(pieces), next(pieces)]
        delete_records(cluster, staged.topic, before=8)
        read += pieces
    errors = [each.reason for piece in read for each in piece.damage]
    assert len(errors) == 1
    assert errors[0].startswith("OFFSET_OUT_OF_RANGE: the log starts at 8 now; offsets ")
    observed = [int(offset) for piece in read for offset in piece.headers["base_offset"]]
    assert observed[-5:] == [8, 9, 10, 11, 12]


def test_a_log_shorter_than_its_high_watermark_is_reported(cluster: Cluster, staged: StagedIncident) -> None:
    """As after an election, or for unreplicated batches: it is awaited, then reported."""
    row = row_of(cluster, staged.topic)
    end = row["high_watermark"]
    with Cluster(cluster.config, timeout=1) as hasty:
        fetched = fetch_range(hasty.client, Partition.of({**row, "log_end_offset": end + 2}), end - 1, "log_end")
        frame = BATCHES.frame(batch_tables_of(fetched))
    assert frame["error"].dropna().tolist() == [
        f"OFFSET_NOT_AVAILABLE: the high watermark stays at {end}, so later offsets are not replicated yet; "
        f"offsets {end} to {end + 1} were not read"
    ]


def test_a_topic_deleted_during_the_read(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["never_added"](kafka) as staged:
        row = row_of(cluster, staged.topic)
        requests = admin.DeleteTopicsRequest(topic_names=[staged.topic], timeout_ms=10_000, max_version=5)
        assert cluster.client.send_one(requests).responses[0].error_code == 0
        until(lambda: staged.topic not in {r["topic"] for r in cluster.partition_rows()} or None, awaited="its end")
        fetched = fetch_range(cluster.client, Partition.of(row), "log_start", "high_watermark")
        frame = BATCHES.frame(batch_tables_of(fetched))
    (error,) = frame["error"].tolist()
    assert error.startswith("UNKNOWN_TOPIC_OR_PARTITION: ")
    assert error.endswith(f"; offsets 0 to {row['high_watermark'] - 1} were not read")


def test_a_partition_without_a_leader_is_an_error(cluster: Cluster, staged: StagedIncident) -> None:
    row = {**row_of(cluster, staged.topic), "error": "LEADER_NOT_AVAILABLE: the partition has no leader"}
    text = rf"^{staged.topic}-0 cannot be read: LEADER_NOT_AVAILABLE \(the partition has no leader\)\.$"
    with pytest.raises(BrokerError, match=text):
        fetch_range(cluster.client, Partition.of(row), "log_start", "high_watermark")


def test_only_the_newest_records_of_each_partition(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["late_message"](kafka) as staged:
        topic_partitions = read_coordinator_topic(cluster.client, "__transaction_state")
        number = coordinator_partition(staged.transactional_id, 50)
        newest = list(transaction_log_records(cluster.client, topic_partitions, [number], newest=2))
        every = list(transaction_log_records(cluster.client, topic_partitions, [number]))
    assert newest == every[-2:]
    assert newest[-1].state == "CompleteAbort"


def test_missing_logs(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["never_added"](kafka):
        with pytest.raises(NotFound, match=r"^Topic '__transaction_state' has no partition 50: it has 0 to 49"):
            cluster.transaction_log(partitions=[0, 50])
        assert cluster.transaction_log(transactional_ids=["nobody"]).empty


def test_a_partition_without_leader_is_an_error_row(
    cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "LEADER_NOT_AVAILABLE: the partition has no leader"
    with INCIDENTS["never_added"](kafka) as staged:
        number = coordinator_partition(staged.transactional_id, 50)
        leaderless = (number + 1) % 50
        ask = read_partitions
        monkeypatch.setattr(
            coordinator_logs,
            "read_partitions",
            lambda client, leaders: [
                replace(each, error=error, leader=None) if each.partition == leaderless else each
                for each in ask(client, leaders)
            ],
        )
        frame = cluster.transaction_log(partitions=[leaderless, number])
    assert frame[frame["error"].notna()]["txn_state_partition"].tolist() == [leaderless]
    assert staged.transactional_id in set(frame["transactional_id"])
