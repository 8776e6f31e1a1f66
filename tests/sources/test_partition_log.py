"""The log of a live partition over the network, against the very files of its broker; coordinators' likewise."""

import datetime as dt
import json
import uuid
from collections.abc import Iterator

import pandas as pd
import pytest

from tests.brokers import on_cluster
from tests.builders import delete_records
from tests.process import on
from toolkit import Cluster
from toolkit.formats.coordinator_records import STATE_TOPIC, coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, config_of
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import BATCHES, Row
from toolkit.schema.live import Partition
from toolkit.schema.table import Error
from toolkit.sources.live import partition_log
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.coordinators import CoordinatorTopic
from toolkit.sources.live.partition_log import FetchedChunk, batch_tables_of, fetch_range
from toolkit.sources.live.transactions import TransactionLog, read_state_log


def fetched_chunks(cluster: Cluster, topic: str, *, crc: bool = False) -> Iterator[FetchedChunk]:
    """The whole log of partition 0, read lazily."""
    (row,) = cluster.partition_rows(topics=[topic], partitions=[0])
    return fetch_range(cluster.client, Partition.of(row), "log_start", "high_watermark", crc=crc).chunks


AHEAD = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(minutes=50)  # of any time in a long test run


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
        steps = cluster.lso_timeline(topics=staged.topic, partitions=0, start=0)
        unread = steps[steps["error"].notna()]
        assert unread["error"].str.startswith(f"OFFSET_OUT_OF_RANGE: the log starts at {start} now").tolist() == [True]
        assert unread["offset"].tolist() == [0], "what is open is not known from here on"


def test_retention_during_the_read(cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    with INCIDENTS["never_added"](kafka) as staged:
        producer = TxnProducer(cluster.client, f"more-{staged.topic}").init()
        for _ in range(10):
            producer.send(staged.topic, 0)
        monkeypatch.setattr(partition_log, "FETCH_BYTES", 1)
        pieces = fetched_chunks(cluster, staged.topic)
        read = [next(pieces), next(pieces)]
        delete_records(cluster.client, staged.topic, before=8)
        read += pieces
    errors = [each.reason for piece in read for each in piece.damage]
    assert len(errors) == 1
    assert errors[0].startswith("OFFSET_OUT_OF_RANGE: the log starts at 8 now; offsets ")
    observed = [int(offset) for piece in read for offset in piece.headers["base_offset"]]
    assert observed[-5:] == [8, 9, 10, 11, 12]


def test_only_the_newest_records_of_each_partition(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["late_message"](kafka) as staged:
        topic_partitions = read_coordinator_topic(cluster.client, "__transaction_state")
        number = coordinator_partition(staged.transactional_id, 50)
        newest = list(transaction_log_records(cluster.client, topic_partitions, [number], newest=2))
        every = list(transaction_log_records(cluster.client, topic_partitions, [number]))
    assert newest == every[-2:]
    assert newest[-1].state == "CompleteAbort"


# ``__transaction_state`` instead of coordinators: for old brokers, and for columns that no response has


def read(cluster: Cluster, *, timeout: float = 20, only: set[int] | None = None) -> TransactionLog:
    topic_partitions = CoordinatorTopic.read(cluster.client, STATE_TOPIC)
    return read_state_log(cluster.client, topic_partitions, only=only, timeout=timeout)


@pytest.mark.parametrize("lab", [on_cluster("2.8.2", EVERYDAY, id="2.8.2")], indirect=True)
def test_filters_give_the_same_rows_from_the_log(lab: Kafka) -> None:
    """Kafka 2.8 has neither ListTransactions nor DescribeTransactions."""
    name = uuid.uuid4().hex
    topic = f"filters-{name[:6]}"
    with Cluster(lab.bootstrap_servers, timeout=20) as old, INCIDENTS["open_young"](lab, topic=topic):
        idle = TxnProducer(old.client, f"{name}-idle").init()
        busy = TxnProducer(old.client, f"{name}-busy").init()
        busy.add(topic, 1)

        def ids(**filters: object) -> list[str]:
            rows = old.transaction_rows(**filters)  # type: ignore[arg-type]
            return [row["transactional_id"] for row in rows if row["transactional_id"] is not None]

        assert ids(transactional_id_pattern=f"{name}.*") == [busy.transactional_id, idle.transactional_id]
        assert ids(transactional_id_pattern=name) == []
        assert ids(producer_ids=[idle.producer_id]) == [idle.transactional_id]
        assert busy.transactional_id in ids(states=["Ongoing"])
        assert idle.transactional_id not in ids(states=["Ongoing"])
        assert ids(transactional_id_pattern=f"{name}.*", min_duration_ms=0) == [busy.transactional_id]
        # No broker's clock is known: nothing rules out that the newest record is an hour old.
        assert ids(transactional_id_pattern=f"{name}.*", min_duration_ms=3_600_000) == [busy.transactional_id]
        rows = old.transaction_rows(transactional_id_pattern=f"{name}.*", min_duration_ms=3_600_000)
        (why,) = [row["error"] for row in rows if "UNKNOWN_DURATION" in (row["error"] or "")]
        assert why.startswith(
            "UNKNOWN_DURATION: ids of a shorter duration may be listed, too: the brokers' time is at least "
        )
        busy.end(commit=False)


def test_a_timeout_of_the_read_is_an_error_and_no_proof(cluster: Cluster) -> None:
    TxnProducer(cluster.client, "makes-the-topic").init()
    log = read(cluster, timeout=0)
    assert not log.is_complete
    assert {Error.of(each.error).code for each in log.failures} == {"REQUEST_TIMED_OUT"}
    assert log.partitions + len(log.failures) == 50


def test_the_newest_record_wins_and_matches_the_coordinator(kafka: Kafka, cluster: Cluster) -> None:
    with INCIDENTS["busy_elsewhere"](kafka):
        reported = {row["transactional_id"]: row for row in cluster.transaction_rows()}
        log = read(cluster)
    assert log.is_complete
    written = {each.transactional_id: each.row() for each in log.transactions}
    assert written.keys() == reported.keys()
    columns = ("producer_id", "producer_epoch", "state", "timeout_ms", "start_time", "topic_partitions")
    for name, row in reported.items():
        assert {c: written[name][c] for c in columns} == {c: row[c] for c in columns}, name


def test_selected_partitions_can_be_read(cluster: Cluster) -> None:
    producer = TxnProducer(cluster.client, uuid.uuid4().hex).init()
    (row,) = cluster.transaction_rows(transactional_ids=[producer.transactional_id])
    log = read(cluster, only={row["txn_state_partition"]})
    assert log.partitions == 1
    assert producer.transactional_id in {each.transactional_id for each in log.transactions}
    assert {each.txn_state_partition for each in log.transactions} == {row["txn_state_partition"]}


# ``kafka-txn why`` after DeleteRecords: a transaction did not begin where the log now begins


def visibility(kafka: Kafka, topic: str, offset: int) -> Row:
    done = on(kafka, "why", "--topic", topic, "--partition", "0", "--offset", str(offset), "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    found: Row = row
    return found


def test_the_start_of_a_transaction_is_not_the_log_start(kafka: Kafka) -> None:
    with INCIDENTS["open_young"](kafka) as staged, BrokerClient(config_of(kafka)) as client:
        topic = staged.topic
        producer = TxnProducer(client, "why-ended").init()
        producer.add(topic, 0)
        begun = producer.send(topic, 0, records=3)
        last = producer.send(topic, 0, records=3) + 2
        producer.end(commit=True)
        assert visibility(kafka, topic, last)["first_offset"] == begun
        marker = last + 1
        assert f"which began at {begun}" in visibility(kafka, topic, marker)["reason"]
        delete_records(client, topic, before=last)

        ended = visibility(kafka, topic, last)
        assert (ended["outcome"], ended["log_start_offset"], ended["first_offset"]) == ("commit", last, None)
        reason = visibility(kafka, topic, marker)["reason"]
        assert "whose start is deleted or was not read" in reason
        assert f"began at {last}" not in reason


def test_the_start_of_an_open_transaction_is_that_of_its_leader(kafka: Kafka) -> None:
    with INCIDENTS["open_young"](kafka) as staged, BrokerClient(config_of(kafka)) as client:
        producer = TxnProducer(client, "why-open").init()
        producer.add(staged.topic, 0)
        begun = producer.send(staged.topic, 0, records=2)
        last = producer.send(staged.topic, 0, records=2) + 1
        delete_records(client, staged.topic, before=last)
        row = visibility(kafka, staged.topic, last)
        assert (row["status"], row["first_offset"]) == ("open", begun)
        assert f"which began at {begun}, before the log start offset {last}" in row["reason"]
        producer.end(commit=False)
