"""What an abort discards is saved first: every record with its headers, readable by its owner only, or no abort."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.actions.test_abort import ClusterWithGap, finding, read_committed, with_gap
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import plan_abort, planned_with_impact
from toolkit.actions.transaction import save_records
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, write_committed
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema import SAVED_RECORDS
from toolkit.schema.live import Finding

pytestmark = pytest.mark.lab


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_all_of_a_transaction_is_saved_and_nothing_else(
    kafka: Kafka, cluster: Cluster, tmp_path: Path, codec: str
) -> None:
    """Keys, values and headers of each kind; other producers write before, between and after."""
    staged = INCIDENTS["never_added"](kafka)
    topic = staged.topic
    producer = Producer(
        {**kafka.client_config(), "transactional.id": f"saved-{uuid.uuid4().hex[:6]}", "compression.type": codec}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    expected = []
    for number in range(3):
        write_committed(cluster.client, topic, 0)
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00\xff"), ("empty", None), ("trace", b"twice")]
        headers = headers[: number + 1]
        value = None if number == 1 else b"\x80value" * 1000
        producer.produce(topic, value, b"key" if number else None, 0, headers=headers, timestamp=1_000 + number)
        producer.flush(30)
        expected.append(
            (b"key" if number else None, value, [{"key": k, "value": v} for k, v in headers], 1_000 + number)
        )
    write_committed(cluster.client, topic, 0)
    rows = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0)
    live = max(map(Finding.of, rows), key=lambda each: each.start_offset or -1)
    txn = planned_with_impact(cluster, live)
    saved = save_records(cluster, txn, tmp_path / "records" / "orders.parquet")
    table = pq.read_table(saved.path)
    assert table.schema.equals(SAVED_RECORDS.arrow_schema)
    rows = table.to_pylist()
    found = [(r["key"], r["value"], r["headers"], round(r["timestamp"].timestamp() * 1000)) for r in rows]
    assert found == expected
    assert (saved.records, {r["producer_id"] for r in rows}) == (3, {txn.producer_id})
    assert saved.path.stat().st_mode & 0o777 == 0o600
    assert saved.path.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in saved.path.parent.iterdir()] == ["orders.parquet"]
    producer.abort_transaction(30)


def test_an_abort_saves_the_records_beside_the_audit_trail(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    assert plan.impact.size
    path = audit.records_path(plan.target, plan.transaction.producer_id)
    assert path.parent == audit.path.parent / "trail.records"
    done = plan.execute(confirm=plan.target, recheck_after=0)
    assert (done.records_file, done.records_saved) == (path, 1)
    (row,) = pq.read_table(path).to_pylist()
    assert (row["offset"], row["key"]) == (staged.start_offset, (staged.transactional_id or "").encode())
    assert [row["records_file"] for row in audit.rows()] == [str(path)] * 2


def test_the_offsets_of_groups_are_decoded(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["offsets_never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    done = plan.execute(confirm=plan.target, recheck_after=0)
    assert done.records_file is not None
    rows = pq.read_table(done.records_file).to_pylist()
    assert rows
    assert all(row["group_id"] and row["committed_topic"] and row["committed_offset"] is not None for row in rows)


def test_a_refused_abort_leaves_no_copy(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    owner = TxnProducer(cluster.client, staged.transactional_id or "")
    owner.producer_id, owner.producer_epoch = staged.producer_id, staged.producer_epoch
    owner.add(staged.topic, staged.partition)
    with pytest.raises(ActionRefused, match="is ongoing now"):
        plan.execute(confirm=plan.target, recheck_after=0)
    assert not audit.records_path(plan.target, plan.transaction.producer_id).parent.exists()
    owner.end(commit=True)


def test_what_cannot_be_saved_is_not_aborted(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    size = plan.impact.size
    assert size
    with pytest.raises(ActionRefused, match=rf"take more than {size - 1} bytes.*Nothing was written.*--max-save-bytes"):
        plan.execute(confirm=plan.target, max_save_bytes=size - 1, recheck_after=0)
    folder = audit.records_path(plan.target, plan.transaction.producer_id).parent
    assert not folder.exists()
    folder.touch()  # a file where the folder should be
    with pytest.raises(
        ActionRefused, match=r"could not be saved to .*: (File exists|Not a directory).*Nothing was written"
    ):
        plan.execute(confirm=plan.target, recheck_after=0)
    assert [row["step"] for row in audit.rows()] == ["refused", "refused"]
    assert finding(cluster, staged)["verdict"] == "hanging"
    done = plan.execute(confirm=plan.target, save=False, recheck_after=0)
    assert done.records_file is None
    assert read_committed(kafka, staged.topic, staged.partition) >= 0


def test_a_last_batch_that_is_not_replicated_yet_is_missed(kafka: Kafka, cluster: Cluster, tmp_path: Path) -> None:
    """It is above the high watermark, up to which was read: the marker discarded it, and the copy was without it."""
    txn = plan_abort(cluster, finding(cluster, INCIDENTS["never_added"](kafka))).transaction
    ahead = replace(txn, last_sequence=(txn.last_sequence or 0) + 1)
    with pytest.raises(ActionRefused, match=r"has no batch of producer \d+ with its last sequence number 1 below the"):
        save_records(cluster, ahead, tmp_path / "orders.parquet")
    assert not (tmp_path / "orders.parquet").exists()


def test_records_of_unknown_outcome_are_always_saved(kafka: Kafka, cluster: Cluster) -> None:
    staged = INCIDENTS["never_added"](kafka)
    with ClusterWithGap(kafka.bootstrap_servers) as connected:
        plan = plan_abort(connected, with_gap(finding(cluster, staged)))
        with pytest.raises(ActionRefused, match="have to be saved"):
            plan.execute(confirm=plan.target, override=plan.needed_override, save=False, recheck_after=0)
        done = plan.execute(confirm=plan.target, override=plan.needed_override, recheck_after=0)
    assert done.records_saved == 1


def test_a_second_copy_never_replaces_the_first(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    path = audit.records_path(plan.target, plan.transaction.producer_id)
    path.parent.mkdir(parents=True)
    path.write_text("of another cluster")
    done = plan.execute(confirm=plan.target, recheck_after=0)
    assert done.records_file == path.with_name(f"{path.stem}.2.parquet")
    assert path.read_text() == "of another cluster"


def test_a_cancelled_abort_writes_nothing_and_leaves_no_copy(kafka: Kafka, cluster: Cluster, audit: Audit) -> None:
    staged = INCIDENTS["never_added"](kafka)
    plan = plan_abort(cluster, finding(cluster, staged))
    cancel = threading.Event()
    errors: list[ActionRefused] = []

    def run() -> None:
        with suppress(ActionRefused):
            try:
                plan.execute(confirm=plan.target, recheck_after=3600, cancel=cancel)
            except ActionRefused as error:
                errors.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    cancel.set()
    running.join(timeout=60)
    assert not running.is_alive(), "it waits for its recheck all the same"
    assert [str(error) for error in errors] == ["The action was cancelled. Nothing was written."]
    assert [row["step"] for row in audit.rows()] == ["refused"]
    assert finding(cluster, staged)["verdict"] == "hanging"
