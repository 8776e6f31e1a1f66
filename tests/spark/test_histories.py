"""Histories and newest states of transactional ids: the rows of pandas."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from toolkit.spark.histories import _how_far, histories, transactions

from tests.analysis.test_coordinator import at, record, transaction
from tests.spark.frames import arrow, assert_rows, damaged, shuffled
from toolkit import LogDir
from toolkit.analysis import coordinator
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import COORDINATOR_EVENTS, HISTORIES, TRANSACTIONS, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

NOW = dt.datetime(2027, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)


@pytest.fixture
def in_another_zone(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    yield
    spark.conf.set("spark.sql.session.timeZone", str(before))


def events_of(spark: SparkSession, files: LogDir) -> DataFrame:
    return shuffled(spark, arrow(files.coordinator_events(), COORDINATOR_EVENTS))


@pytest.mark.lab
@pytest.mark.usefixtures("in_another_zone")
def test_spark_gives_the_histories_of_real_ids(spark: SparkSession, history: Path) -> None:
    files = LogDir(history)
    assert_rows(histories(events_of(spark, files)), arrow(files.histories(), HISTORIES), HISTORIES)


@pytest.mark.lab
def test_spark_gives_the_newest_states_of_real_ids(spark: SparkSession, history: Path) -> None:
    files = LogDir(history)
    expected = [{**row, "observed_at": NOW} for row in files.transaction_rows()]
    found = transactions(events_of(spark, files), observed_at=NOW)
    assert_rows(found, TRANSACTIONS.arrow(expected), TRANSACTIONS)


@pytest.mark.lab
def test_spark_gives_the_histories_of_damaged_logs(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    """In the middle, and at the end of what was written last."""
    folder = damaged(history, tmp_path / "logs")
    for log in folder.glob(f"{STATE_TOPIC}-*[02468]/*.log"):
        data = log.read_bytes()
        log.write_bytes(data[:-20] + bytes(len(data[-20:])))
    files = LogDir(folder)
    assert "CORRUPT_BATCH" in str(files.coordinator_events()["error"].unique())
    assert_rows(histories(events_of(spark, files)), arrow(files.histories(), HISTORIES), HISTORIES)


@pytest.mark.lab
def test_spark_reads_the_replica_that_has_most_of_its_log(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    """Each of two brokers lacks the end of some logs."""
    written = sorted({log.parent.name for log in history.glob(f"{STATE_TOPIC}-*/*.log") if log.stat().st_size})
    assert len(written) > 2
    for number in (1, 2):
        copy = Path(shutil.copytree(history, tmp_path / str(number) / "logs"))
        properties = copy / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", f"node.id={number}"))
        for name in (*written[number - 1 :: 3], *written[2::3]):
            folder = copy / name
            log = max(folder.glob("*.log"))
            log.write_bytes(log.read_bytes()[: log.stat().st_size // number // 2])
            for snapshot in folder.glob("*.snapshot"):
                snapshot.unlink()
    files = LogDir(tmp_path)
    expected = arrow(files.histories(), HISTORIES)
    assert set(expected["broker_id"].to_pylist()) == {1, 2}
    assert_rows(histories(events_of(spark, files)), expected, HISTORIES)


def test_spark_gives_the_histories_of_what_brokers_sent(spark: SparkSession) -> None:
    """As it was asked at a time that is given; though the leader has changed, and some was sent twice."""
    events = [{**event, "broker_id": 1 + (event["offset"] > 1)} for event in transaction("Commit", decide=100)]
    events.append({**record(3, 200, "Ongoing", start=200), "broker_id": 2})
    lost = {
        **dict.fromkeys(COORDINATOR_EVENTS.names),
        "txn_state_partition": 3,
        "broker_id": 2,
        "error": "LOST: it is.",
    }
    for more in ([], [lost]):
        sent = shuffled(spark, COORDINATOR_EVENTS.arrow([*events, *events[:2], *more]))
        of_one = [{**event, "broker_id": 2} for event in events]
        expected = coordinator.histories([*of_one, *more], as_of=at(5000))
        assert [row["error"] for row in expected] == [None, "LOST: it is." if more else None]
        assert_rows(histories(sent, as_of=at(5000)), HISTORIES.arrow(expected), HISTORIES)


def test_spark_tells_that_a_newest_state_may_be_lost(spark: SparkSession) -> None:
    place = {**dict.fromkeys(COORDINATOR_EVENTS.names), "txn_state_partition": 3, "broker_id": 1}
    torn, lost = ({**place, "error": error} for error in ("TORN_TAIL: the end.", "CORRUPT_BATCH: no."))
    sent = COORDINATOR_EVENTS.arrow([*transaction("Commit", decide=100), lost, torn])
    found = transactions(shuffled(spark, sent), observed_at=NOW).toArrow()
    assert sorted(zip(found["transactional_id"].to_pylist(), found["error"].to_pylist(), strict=True), key=str) == [
        ("payments", None),
        (None, "CORRUPT_BATCH: no."),
    ]
    nothing = shuffled(spark, sent).where("offset < 0")
    assert transactions(nothing, observed_at=NOW).count() == histories(nothing).count() == 0


def test_of_replicas_the_newest_leader_epoch_counts_then_the_longest_log_then_the_soundest() -> None:
    def files(epoch: int | None, end: int | None, errors: int = 0, broker: int = 1) -> list[Row]:
        return [{"leader_epoch": epoch, "last_offset": end, "errors": errors, "broker_id": broker}]

    order = [files(None, None), files(3, 90), files(4, 50), files(4, 60, 1), files(4, 60, 0, 2), files(4, 60)]
    assert sorted(order, key=_how_far) == order
