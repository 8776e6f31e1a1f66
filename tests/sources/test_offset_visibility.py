"""Every offset of a complex log, against the records that real consumers get; live and from files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sources.chaotic_topic import chaos, compacted_chaos, consumed
from tests.tiers import amount, seed
from tests.workload import BUSY
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import LOG_TRANSACTIONS, Row

pytestmark = [pytest.mark.lab, pytest.mark.longer]

LEVELS = ("read_committed", "read_uncommitted")
STEPS = int(amount(60, full=300))


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic, the records that consumers got, and the live cluster's rows of each offset and of the gaps."""

    name: str
    partition: Row
    delivered: Mapping[str, set[int]]
    offsets: Sequence[Row]
    gaps: Mapping[str, Sequence[Row]]


@dataclass(frozen=True, kw_only=True)
class Left:
    folder: Path
    topics: Sequence[Topic]


@pytest.fixture(scope="module")
def left() -> Iterator[Left]:
    name = seed() or "offsets"
    with Kafka("4.3.1", properties={**EVERYDAY.properties, **BUSY}) as kafka:
        names = [chaos(kafka, seed=name, steps=STEPS), compacted_chaos(kafka, seed=name, steps=STEPS)]
        topics = [live_topic(kafka, each) for each in names]
        kafka.stop_broker(1)
        yield Left(folder=kafka.log_dirs[1], topics=topics)


def live_topic(kafka: Kafka, name: str) -> Topic:
    with Cluster(kafka.bootstrap_servers) as cluster:
        (partition,) = cluster.partition_rows(topics=[name])
        stop = partition["log_end_offset"] + 3
        return Topic(
            name=name,
            partition=partition,
            delivered={level: consumed(kafka, name, level) for level in LEVELS},
            offsets=[row for at in range(stop) for row in cluster.offset_visibility_rows(name, 0, at)],
            gaps={
                level: cluster.missing_offset_rows(name, 0, start=0, stop=stop, read_committed=level == LEVELS[0])
                for level in LEVELS
            },
        )


def without_time(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "observed_at"} for row in rows]


def test_each_offset_is_delivered_as_its_row_states(left: Left) -> None:
    for topic in left.topics:
        for level in LEVELS:
            ours = {row["offset"] for row in topic.offsets if row[level]}
            assert ours == topic.delivered[level], (topic.name, level, ours ^ topic.delivered[level])
        assert [row for row in topic.offsets if row["status"] is None or row["error"]] == []


def test_every_status_occurs(left: Left) -> None:
    plain, compacted = ({row["status"] for row in topic.offsets} for topic in left.topics)
    everywhere = {"non_transactional", "committed", "aborted", "open", "marker", "beyond_log_end"}
    assert plain == everywhere | {"deleted"}
    assert compacted >= everywhere | {"compacted"}


def test_missing_and_consumed_offsets_cover_the_range(left: Left) -> None:
    for topic in left.topics:
        for level, rows in topic.gaps.items():
            missing = [at for row in rows for at in range(row["first_offset"], row["last_offset"] + 1)]
            assert len(missing) == len(set(missing)) == sum(row["offsets"] for row in rows)
            assert topic.delivered[level].isdisjoint(missing)
            assert topic.delivered[level] | set(missing) == {row["offset"] for row in topic.offsets}, (
                topic.name,
                level,
            )
            assert not any(row["status"] in {None, "unexplained"} for row in rows)
            by_offset = {row["offset"]: row["status"] for row in topic.offsets}
            for row in rows:
                reported = {by_offset[at] for at in range(row["first_offset"], row["last_offset"] + 1)}
                beyond = {"committed", "non_transactional"}
                assert reported == {row["status"]} or (row["status"] == "beyond_lso" and reported <= beyond), row


def test_files_give_the_same_rows(left: Left) -> None:
    files = LogDir(left.folder)
    for topic in left.topics:
        with files:
            ours = [row for one in topic.offsets for row in files.offset_visibility_rows(topic.name, 0, one["offset"])]
            assert without_time(ours) == without_time(topic.offsets)
            for level, rows in topic.gaps.items():
                is_committed, stop = level == LEVELS[0], len(topic.offsets)
                found = files.missing_offset_rows(topic.name, 0, start=0, stop=stop, read_committed=is_committed)
                assert without_time(found) == without_time(rows)


def test_a_smaller_range_gives_a_subset_of_the_rows(left: Left) -> None:
    """Wherever it is cut, also in the middle of a transaction or a batch."""
    files = LogDir(left.folder)
    for topic in left.topics:
        whole = {at: row["status"] for row in topic.gaps["read_committed"]
                 for at in range(row["first_offset"], row["last_offset"] + 1)}  # fmt: skip
        end = len(topic.offsets)
        with files:
            for start in range(0, end, 7):
                stop = min(start + 1 + start % 13, end)
                rows = files.missing_offset_rows(topic.name, 0, start=start, stop=stop)
                found = {at: row["status"] for row in rows for at in range(row["first_offset"], row["last_offset"] + 1)}
                assert found == {at: whole[at] for at in range(start, stop) if at in whole}


def test_a_transaction_is_reported_from_first_record_to_marker(left: Left) -> None:
    topic = left.topics[0]
    files = LogDir(left.folder)
    log_start = topic.partition["log_start_offset"]
    rows = LOG_TRANSACTIONS.rows(files.log_transactions(topics=[topic.name], partitions=0))
    with_data = [row for row in rows if row["first_offset"] is not None and row["last_offset"] is not None]
    transactions = {(row["producer_id"], at): row for row in with_data
                    for at in range(row["first_offset"], row["last_offset"] + 1)}  # fmt: skip
    for row in topic.offsets:
        if row["outcome"] is None or row["status"] == "marker":
            continue
        transaction = transactions[row["producer_id"], row["offset"]]
        assert row["outcome"] == transaction["outcome"]
        first = transaction["first_offset"]
        earlier = {each["marker_offset"] or -1 for each in rows if each["producer_id"] == row["producer_id"]}
        is_known = log_start == 0 or any(log_start <= marker < first for marker in earlier)
        assert row["first_offset"] in ({first} if is_known else {first, None}), "never the log start instead"
        assert row["transactional_id"] is not None
        if row["outcome"] != "open":
            assert row["marker_offset"] == transaction["marker_offset"]
            assert row["marker_time"] == transaction["end"]


def test_files_without_transaction_index_give_the_same_rows(left: Left, tmp_path: Path) -> None:
    topic = left.topics[0]
    copy = Path(shutil.copytree(left.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*.txnindex")))
    rows = LogDir(copy).missing_offset_rows(topic.name, 0, start=0, stop=len(topic.offsets))
    assert without_time(rows) == without_time(topic.gaps["read_committed"])
