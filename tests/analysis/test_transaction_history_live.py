"""Every ending of a transaction, staged on real brokers and read back from their files."""

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.analysis.log_invariants import batch_violations, record_violations
from tests.builders import create_topics
from tests.process import PATIENCE_S
from tests.workload import BUSY, ENDINGS, Worker
from toolkit.analysis.transaction_history import newest, transaction_history
from toolkit.formats.broker_logs import broker_log_events
from toolkit.formats.coordinator_log_rows import transaction_log
from toolkit.formats.headers import Headers
from toolkit.formats.scan import scan_file
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, config_of, until
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTIONS, Row
from toolkit.schema.log import ClusterEvent, PastTransaction, TransactionLogRecord
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster

pytestmark = pytest.mark.lab

COMPLETE = ("CompleteCommit", "CompleteAbort")
VERSIONS = [pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"]
TOPIC = "staged"
EXPIRATION = {
    "transactional.id.expiration.ms": 4000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
    "transaction.state.log.num.partitions": 5,
}


@dataclass(frozen=True, kw_only=True)
class StoppedBroker:
    """Responses of a broker before it was stopped, its files, and how its clients ended their transactions."""

    version: str
    folder: Path
    log: Path
    transactions: Sequence[Row]
    workers: Sequence[Worker]
    events: Sequence[TransactionLogRecord]
    lines: Sequence[ClusterEvent]

    def history_of(self, transactional_id: str, *, with_lines: bool = False) -> list[PastTransaction]:
        rows = transaction_history(self.events, broker_log_events=self.lines if with_lines else ())
        return [row for row in rows if row.transactional_id == transactional_id]


@pytest.fixture(scope="module", params=VERSIONS)
def stopped_broker(request: pytest.FixtureRequest) -> Iterator[StoppedBroker]:
    with Kafka(request.param, properties={**BUSY, **EXPIRATION}) as kafka:
        with BrokerClient(config_of(kafka)) as cluster:
            create_topics(kafka, NewTopic(TOPIC, 2, 1, config={"segment.ms": "500"}))
            stage(cluster, version=1, prefix="")
            if request.param == "4.3.1":
                stage(cluster, version=2, prefix="new-")
            stop = threading.Event()
            workers = [Worker(kafka, [(TOPIC, 0), (TOPIC, 1)], f"worker-{number}", stop) for number in range(2)]
            for worker in workers:
                worker.start()
            until(
                lambda: True if all(any(each.endings[kind] for each in workers) for kind in ENDINGS) else None,
                awaited="every ending",
                timeout=PATIENCE_S,
            )
            stop.set()
            for worker in workers:
                worker.join(PATIENCE_S)
        with Cluster(kafka.bootstrap_servers) as requests:
            until(
                lambda: True if only_expected_are_open(requests) else None,
                awaited="the timeouts of abandoned transactions",
            )
            transactions = requests.transaction_rows()
        kafka.stop_broker(1)
        folder, log = kafka.log_dirs[1], kafka.broker_logs[1]
        yield StoppedBroker(
            version=request.param,
            folder=folder,
            log=log,
            transactions=transactions,
            workers=workers,
            events=[TransactionLogRecord.of(row) for row in read_events(folder)],
            lines=list(broker_log_events(log)),
        )


def stage(cluster: BrokerClient, *, version: int, prefix: str) -> None:
    def producer(name: str, *, timeout_ms: int = 60_000) -> TxnProducer:
        return TxnProducer(cluster, prefix + name, timeout_ms=timeout_ms, transaction_version=version).init()

    def write(producer: TxnProducer) -> TxnProducer:
        producer.add(TOPIC, 0, 1)
        producer.send(TOPIC, 0)
        return producer

    def end(producer: TxnProducer, *, commit: bool) -> None:
        """With version 2 once: a second EndTxn may be a second end, and the next step waits for the markers."""
        (producer.end if version == 1 else producer.decide)(commit=commit)

    write(producer("open", timeout_ms=600_000))
    write(producer("timeout", timeout_ms=500))
    for name, commit in {"commit": True, "abort": False}.items():
        one = producer(name)
        for _ in range(2):
            end(write(one), commit=commit)
    write(producer("fence"))
    end(write(producer("fence")), commit=True)
    if version == 2:
        end(producer("unused"), commit=False)
        end(write(producer("restart")), commit=False)
        producer("restart")


def only_expected_are_open(cluster: Cluster) -> bool:
    """Whether only the transactions that should stay open are open, and the others have expired."""
    rows = cluster.transaction_rows()
    left_open = {row["transactional_id"] for row in rows if row["state"] not in {"Empty", *COMPLETE}}
    return left_open <= {"open", "new-open"} and "fence" not in {row["transactional_id"] for row in rows}


def segments(folder: Path) -> Iterator[tuple[str, int, Path]]:
    for path in sorted(folder.glob("*-*/*.log")):
        topic, _, partition = path.parent.name.rpartition("-")
        if not topic.startswith("__cluster"):
            yield topic, int(partition), path


def read_events(folder: Path) -> Iterator[Row]:
    for topic, partition, path in segments(folder):
        if topic == "__transaction_state":
            data = path.read_bytes()
            for part in scan_file(path):
                for position in part.headers["position"].tolist():
                    where = TransactionLogRecord(txn_state_partition=partition, broker_id=1)
                    records = transaction_log(data, position, where=where)
                    yield from (each.row() for each in records)


ENDED = {
    "open": ["open"],
    "timeout": ["timeout"],
    "commit": ["commit", "commit"],
    "abort": ["abort", "abort"],
    "fence": ["fence", "commit"],
}
REASONS = {  # of the first transaction; version 2 writes every abort alike
    "open": "Ongoing for ",
    "timeout": ": by its client or by the coordinator for its timeout. The records do not decide: transaction version",
    "commit": "Its client committed it ",
    "abort": ": no new instance followed at once.",
    "fence": ": by its client or by the fence of a new instance, which followed ",
    "unused": "it had no partition",
}


def test_every_ending_is_recognized_before_transaction_version_2(stopped_broker: StoppedBroker) -> None:
    endings = {
        name: [row.ended for row in stopped_broker.history_of(name) if row.kind == "transaction"] for name in ENDED
    }
    assert endings == ENDED
    rows = transaction_history(stopped_broker.events)
    assert len(TRANSACTION_HISTORY.frame(row.row() for row in rows)) == len(rows)
    assert not any(row.truncated or row.error for row in rows)
    written = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
    assert all(
        row.topic_partitions == written for name in ENDED for row in stopped_broker.history_of(name) if row.ended
    )


def test_endings_of_transaction_version_2_are_narrowed_correctly(stopped_broker: StoppedBroker) -> None:
    if stopped_broker.version == "3.5.2":
        return
    for name, reason in REASONS.items():
        transactions = [row for row in stopped_broker.history_of(f"new-{name}") if row.kind == "transaction"]
        first = transactions[0]
        assert first.ended == (name if name in {"commit", "open"} else "abort"), first
        assert reason in first.reason
        assert first.client_transaction_version == 2
        epochs = [row.producer_epoch for row in transactions]
        assert epochs == {"commit": [0, 1], "abort": [0, 1], "fence": [0, 2]}.get(name, [0])


def test_a_fence_leaves_what_an_abort_and_a_new_instance_leave(stopped_broker: StoppedBroker) -> None:
    """Under transaction version 2 their records differ in nothing, and neither has a line: the history names both."""
    if stopped_broker.version == "3.5.2":
        return

    def left(name: str) -> tuple[list[object], set[str | None]]:
        records = [each for each in stopped_broker.events if each.transactional_id == name][:5]
        fields = ("state", "producer_epoch", "topic_partitions", "timeout_ms", "client_transaction_version")
        lines = {each.event for each in stopped_broker.lines if each.transactional_id == name}
        return [[getattr(each, field) for field in fields] for each in records], lines

    assert left("new-fence") == left("new-restart")
    for name in ("new-fence", "new-restart"):
        aborted = stopped_broker.history_of(name, with_lines=True)[1]
        assert (aborted.ended, "by its client or by the fence" in aborted.reason) == ("abort", True)
        assert aborted.reason.endswith("the earlier client got PRODUCER_FENCED.")


def test_the_log_of_the_broker_shows_which_aborts_were_timeouts(stopped_broker: StoppedBroker) -> None:
    """Also under transaction version 2; everything else ended as the records alone show, but not by a timeout."""
    names = [*ENDED, *(f"new-{name}" for name in REASONS if stopped_broker.version != "3.5.2")]
    for name in names:
        plain = stopped_broker.history_of(name)
        for row, before in zip(stopped_broker.history_of(name, with_lines=True), plain, strict=True):
            if name.removeprefix("new-") == "timeout" and row.ended is not None:
                assert row.ended == "timeout"
                assert row.reason.endswith("past its timeout of 500 ms: broker 1 logged the timeout.")
            else:
                assert row.ended == before.ended
    for worker in stopped_broker.workers:
        rows = stopped_broker.history_of(worker.name, with_lines=True)
        logged = [row for row in rows if row.ended == "timeout" and "logged the timeout" in row.reason]
        assert len(logged) == len([row for row in rows if row.ended == "timeout"])
        timeouts, failed = worker.endings["timeout"], worker.endings["failed"]
        # What is to be fenced times out if the next instance needs more than a second.
        assert timeouts - failed <= len(logged) <= timeouts + failed + worker.endings["fence"]
        of_others = [line for line in stopped_broker.lines if line.event == "transaction_timed_out"]
        assert len(logged) == len([line for line in of_others if line.transactional_id == worker.name])


def test_lines_of_a_real_broker_agree_with_its_records(stopped_broker: StoppedBroker) -> None:
    """Each InitProducerId is a line, by the id, producer id and epoch of its record; the broker starts and stops."""
    lines = stopped_broker.lines
    assert [line for line in lines if line.error] == []
    assert {line.broker_id for line in lines} == {1}
    of_lines = {
        (line.transactional_id, line.producer_id, line.producer_epoch)
        for line in lines
        if line.event == "producer_initialized"
    }
    assert of_lines == {
        (record.transactional_id, record.producer_id, record.producer_epoch)
        for record in stopped_broker.events
        if record.state == "Empty"
    }
    found = {line.event for line in lines}
    assert {"broker_started", "broker_stopping", "broker_stopped", "coordinator_elected", "coordinator_loaded"} <= found
    text = stopped_broker.log.read_text(errors="replace")
    assert text.count("due to timeout") == len([line for line in lines if line.event == "transaction_timed_out"])


def test_an_id_begins_with_init_and_ends_with_a_tombstone(stopped_broker: StoppedBroker) -> None:
    rows = stopped_broker.history_of("fence")
    assert [row.kind for row in rows] == ["init", "transaction", "init", "transaction", "expired"]
    assert rows[2].reason.startswith("InitProducerId raised the epoch from 1 to 2")


def test_endings_match_those_of_the_workload(stopped_broker: StoppedBroker) -> None:
    """Random librdkafka producers: the log matches what they did."""
    for worker in stopped_broker.workers:
        rows = [row for row in stopped_broker.history_of(worker.name) if row.kind == "transaction"]
        by_client = [row for row in rows if row.ended == "abort" and "the epoch stayed" in row.reason]
        commits = sum(row.ended == "commit" for row in rows)
        endings, failed = worker.endings, worker.endings["failed"]
        assert abs(commits - endings["commit"]) <= failed
        # An abort purges unsent records; if there are no others, no coordinator is involved.
        assert len(by_client) <= endings["abort"] + failed
        assert abs(len(rows) - commits - len(by_client) - endings["fence"] - endings["timeout"]) <= failed
        assert {row.ended for row in rows} <= {"commit", "abort", "fence", "timeout"}


def test_the_newest_states_match_describe_transactions(stopped_broker: StoppedBroker) -> None:
    last = {event.transactional_id: event for event in stopped_broker.events}
    rows = {row.transactional_id: row.row() for row in newest(last.values(), observed_at=dt.datetime.now(dt.UTC))}
    assert len(TRANSACTIONS.frame(rows.values())) == len(rows)
    described = {row["transactional_id"]: row for row in stopped_broker.transactions if row["transactional_id"] in rows}
    assert {"open"} <= rows.keys() == described.keys()
    columns = ("producer_id", "producer_epoch", "state", "timeout_ms", "start_time", "error")
    for name, row in rows.items():
        assert [row[column] for column in columns] == [described[name][column] for column in columns], name
        assert sorted(map(str, row["topic_partitions"])) == sorted(map(str, described[name]["topic_partitions"]))


def test_the_log_of_a_real_broker_violates_no_invariant(stopped_broker: StoppedBroker) -> None:
    assert record_violations(stopped_broker.events) == []
    logs: defaultdict[tuple[str, int], list[tuple[Headers, str]]] = defaultdict(list)
    for topic, partition, path in segments(stopped_broker.folder):
        logs[topic, partition] += [(part.headers, str(path)) for part in scan_file(path, crc=True)]
    for (topic, _), parts in logs.items():
        assert batch_violations(parts, is_compacted=topic.startswith("__")) == []
    assert sum(headers.size for parts in logs.values() for headers, _ in parts) > 50
