"""Topics with remote storage (KIP-405) on a real broker: what is told of them, live and from files."""

from __future__ import annotations

import io
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

import toolkit
from tests.tiered import create_tiered_topic, tiered_kafka, wait_until_local_log_starts_after, write
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until

pytestmark = [pytest.mark.lab, pytest.mark.full]

HELD, HEALTHY, UNREADABLE, NO_INDEX, SLOW = "held", "healthy", "unreadable", "no-index", "slow"
COMMITTED, ABORTED = range(20), range(21, 41)  # and a marker after each


class TieredTopics(NamedTuple):
    """A broker with a hanging transaction behind remote segments, and remote storage that fails for some topics."""

    kafka: Kafka
    cluster: Cluster
    remote: Path
    start: int  # of the hanging transaction


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredTopics]:
    remote = tmp_path_factory.mktemp("remote")
    with tiered_kafka(remote) as kafka, Cluster(kafka.bootstrap_servers, timeout=3) as cluster:
        for topic in (HELD, HEALTHY, UNREADABLE, NO_INDEX, SLOW):
            create_tiered_topic(kafka, topic)
            write(kafka, topic, segments=2, transactional_id=f"commits-{topic}")
            write(kafka, topic, segments=2, transactional_id=f"aborts-{topic}", commit=False)
        start = TxnProducer(cluster.client, "hung").init().send(HELD, 0)
        for topic in (HELD, HEALTHY, UNREADABLE, NO_INDEX, SLOW):
            write(kafka, topic, segments=2)
            wait_until_local_log_starts_after(cluster, topic, ABORTED[0] if topic == HELD else ABORTED[-1])
        yield TieredTopics(kafka, cluster, remote, start)


def files_of(tiered: TieredTopics, topic: str, ending: str) -> list[Path]:
    return [path for path in tiered.remote.glob(f"*/{topic}-0-*/*{ending}") if path.stat().st_size]


def poll(kafka: Kafka, topic: str, *, count: int | None, text: str = "") -> tuple[list[int], str]:
    """The offsets that a read_committed consumer receives, and what librdkafka logs, until there is as much of it."""
    log = io.StringIO()
    logger = logging.getLogger(f"tiered-{topic}")
    logger.handlers = [logging.StreamHandler(log)]
    config = {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({**kafka.client_config(), **config}, logger=logger)
    consumer.subscribe([topic])
    offsets: list[int] = []

    def polled() -> bool | None:
        message = consumer.poll(1)
        if message is not None and message.error():
            log.write(f"{message.error()}\n")
        elif message is not None and (offset := message.offset()) is not None:
            offsets.append(offset)
        is_enough = len(offsets) == count if count is not None else text in log.getvalue()
        return True if is_enough else None

    try:
        until(polled, awaited=f"{count or text} from {topic}")
    finally:
        consumer.close()
    return offsets, log.getvalue()


def test_offsets_show_what_is_in_remote_storage(tiered: TieredTopics) -> None:
    healthy, held = tiered.cluster.partition_rows(topics=[HELD, HEALTHY])
    assert healthy["log_start_offset"] == held["log_start_offset"] == 0
    assert ABORTED[-1] < healthy["local_log_start_offset"] == healthy["latest_tiered_offset"] + 1
    # The segment with the LSO and all after it stay on disk: an open transaction has its head there.
    assert ABORTED[0] < held["local_log_start_offset"] <= tiered.start == held["last_stable_offset"]
    assert held["latest_tiered_offset"] < tiered.start
    [state] = tiered.cluster.partition_rows(topics=["__transaction_state"], partitions=[0])
    assert (state["local_log_start_offset"], state["latest_tiered_offset"]) == (state["log_start_offset"], None)


def test_the_hanging_transaction_is_found_and_no_other(tiered: TieredTopics) -> None:
    [row] = tiered.cluster.finding_rows(recheck_after=1)
    assert (row["topic"], row["verdict"], row["outcome"]) == (HELD, "hanging", "undecided")
    assert row["start_offset"] == tiered.start


def test_a_live_log_is_read_through_remote_storage(tiered: TieredTopics) -> None:
    for topic in (HELD, HEALTHY):
        found = tiered.cluster.log_transaction_rows(topics=[topic])
        assert [(each["outcome"], each["first_offset"], each["last_offset"]) for each in found[:2]] == [
            ("commit", COMMITTED[0], COMMITTED[-1]),
            ("abort", ABORTED[0], ABORTED[-1]),
        ]
        assert [each["first_offset"] for each in found[2:]] == ([tiered.start] if topic == HELD else [])


def test_remote_storage_that_does_not_answer_is_an_error_and_no_end_of_the_log(tiered: TieredTopics) -> None:
    segments = files_of(tiered, SLOW, ".log")
    for segment in segments:
        segment.unlink()
        os.mkfifo(segment)  # a read of it never returns
    [row] = tiered.cluster.batch_rows(topics=[SLOW])
    assert row["error"].startswith("REMOTE_STORAGE: the leader returns nothing at offset 0, ")
    for segment in segments:  # let the leader's readers go
        with suppress(OSError):
            os.close(os.open(segment, os.O_WRONLY | os.O_NONBLOCK))
        segment.unlink()


def test_a_transaction_index_that_cannot_be_read_has_its_own_symptom(tiered: TieredTopics) -> None:
    for index in files_of(tiered, UNREADABLE, ".txnindex"):
        index.unlink()
        index.mkdir()
    _, text = poll(tiered.kafka, UNREADABLE, count=None, text="Unknown broker error")
    assert toolkit.explain(text).symptoms == ("remote-storage-read",)
    log = (tiered.kafka.log_dirs[1].parent / "server.log").read_text()
    line = next(line for line in log.splitlines() if "reading the remote data" in line)
    assert toolkit.explain(line).symptoms == ("remote-storage-read",)
    [row] = tiered.cluster.finding_rows(topics=[UNREADABLE])
    assert row["verdict"] == "clear"


def test_a_transaction_index_that_is_gone_hides_an_abort(tiered: TieredTopics) -> None:
    """Kafka takes it for a segment without aborted transactions; hence the warning of the symptom."""
    visible = [*COMMITTED, *range(ABORTED[-1] + 2, ABORTED[-1] + 22)]
    assert poll(tiered.kafka, HEALTHY, count=len(visible))[0] == visible
    for index in files_of(tiered, NO_INDEX, ".txnindex"):
        index.unlink()
    offsets, _ = poll(tiered.kafka, NO_INDEX, count=len(visible) + len(ABORTED))
    assert {*ABORTED} < {*offsets}


def test_files_of_the_broker_and_of_remote_storage(tiered: TieredTopics, tmp_path: Path) -> None:
    """Together they are the log that the leader serves; the end of a log is only in the broker's files."""
    served = {topic: tiered.cluster.batch_rows(topics=[topic]) for topic in (HELD, HEALTHY)}
    broker, remote, state = tmp_path / "broker", tmp_path / "remote", tmp_path / "state"
    tiered.kafka.stop_broker(1)
    shutil.copytree(tiered.kafka.log_dirs[1], broker, copy_function=shutil.copy2)
    tiered.kafka.start_broker(1)
    for topic in (HELD, HEALTHY):
        for folder in tiered.remote.glob(f"*/{topic}-0-*"):
            shutil.copytree(folder, remote / folder.name, copy_function=shutil.copy2)
    shutil.copytree(broker, state, ignore=shutil.ignore_patterns(*(f"{topic}-0" for topic in (HELD, HEALTHY))))
    for paths in ([broker], [broker, remote]):
        files = LogDir(*paths, consistent_copy=True)
        [row] = files.finding_rows()
        assert (row["topic"], row["verdict"], row["start_offset"]) == (HELD, "hanging", tiered.start)
        [held] = files.partition_rows(topics=[HELD])
        assert held["log_start_offset"] == 0
        assert ABORTED[0] < held["local_log_start_offset"] <= tiered.start
    for topic, rows in served.items():
        same = ("base_offset", "last_offset", "size", "leader_epoch")
        found = files.batch_rows(topics=[topic])
        assert sorted([row[each] for each in same] for row in found) == [[row[each] for each in same] for row in rows]
    [aborted] = files.aborted_rows(topics=[HEALTHY])
    assert (aborted["first_offset"], aborted["last_offset"]) == (ABORTED[0], ABORTED[-1] + 1)
    assert aborted["error"] is None
    for index in remote.glob(f"{HEALTHY}-0-*/*.txnindex"):
        index.unlink()
    [lost] = LogDir(broker, remote).aborted_rows(topics=[HEALTHY])
    assert lost["error"].startswith("NO_INDEX: ")
    assert [lost[each] for each in ("producer_id", "first_offset", "last_offset")] == [
        aborted[each] for each in ("producer_id", "first_offset", "last_offset")
    ]
    for paths in ([remote], [state, remote]):
        files = LogDir(*paths, consistent_copy=True)
        assert {row["outcome"] for row in files.log_transaction_rows(topics=[HELD])} >= {"commit", "open"}
        rows = files.finding_rows(topics=[HELD, HEALTHY])
        assert {row["verdict"] for row in rows} == {"unknown"}
        assert any("remote storage" in each for row in rows for each in row["missing"])
