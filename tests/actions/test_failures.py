"""An action that fails on its way says which of three it is: nothing was written, it was, or it is uncertain."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.actions.test_abort import finding
from tests.brokers import set_timeout
from toolkit import Cluster
from toolkit.actions import marker_actions
from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import plan_abort
from toolkit.actions.plan import Plan, Result
from toolkit.errors import ActionFailed, ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("test_failures")]

FIND_OUT = "To find out, diagnose the partition"


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """One that is paused, and in the end killed."""
    with Kafka("4.3.1", properties=EVERYDAY.properties) as kafka:
        yield kafka


@pytest.fixture
def plan(broker: Kafka) -> Iterator[Plan]:
    staged = INCIDENTS["never_added"](broker)
    with Cluster(broker.bootstrap_servers) as cluster:
        yield plan_abort(cluster, finding(cluster, staged))


def pause(broker: Kafka, cluster: Cluster) -> None:
    """Pause the broker, and wait no longer than 2 s for a response from then on; before, a busy one has 30 s."""
    broker.pause(1)
    set_timeout(cluster, 2)


def failure(plan: Plan) -> ActionFailed:
    with pytest.raises(ActionFailed) as raised:
        plan.execute(confirm=plan.target)
    return raised.value


def around_send(
    monkeypatch: pytest.MonkeyPatch, *, before: Callable[[int], None], after: Callable[[int], None]
) -> None:
    """Do something to the broker right before the request is sent, and right after its response or error."""
    send = marker_actions.write_marker

    def sent(*arguments: Any, leader: int) -> str:
        before(leader)
        try:
            return send(*arguments, leader=leader)
        finally:
            after(leader)

    monkeypatch.setattr(marker_actions, "write_marker", sent)


def is_open(broker: Kafka, plan: Plan) -> bool:
    with Cluster(broker.bootstrap_servers) as cluster:
        rows = cluster.producer_rows(topics=[plan.transaction.topic], partitions=[plan.transaction.partition])
    return plan.transaction.start_offset in [row["current_txn_start_offset"] for row in rows]


def test_without_a_response_it_is_uncertain(
    broker: Kafka, plan: Plan, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker got the request, and answered too late: here it wrote the marker all the same."""
    around_send(monkeypatch, before=lambda _: pause(broker, plan.cluster), after=broker.resume)
    error = failure(plan)
    assert error.effect == "uncertain"
    assert "It is uncertain whether the ABORT marker was written." in str(error)
    assert f"{FIND_OUT}: the marker was not written so far if producer" in str(error)
    assert str(error).splitlines()[-1] == f"kafka-txn diagnose --topic {plan.transaction.topic} --partition 0"
    until(lambda: None if is_open(broker, plan) else True, awaited="the marker")
    assert [row["step"] for row in audit.rows()] == ["intent", "outcome"]
    assert "uncertain" in audit.rows()[-1]["error"]
    assert audit.records_path(plan.target, plan.transaction.producer_id).exists(), "the records may have been discarded"


def test_a_marker_that_could_not_be_verified_was_written(
    broker: Kafka, plan: Plan, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    around_send(monkeypatch, before=lambda _: None, after=lambda _: pause(broker, plan.cluster))
    try:
        error = failure(plan)
    finally:
        broker.resume(1)
    assert error.effect == "written"
    assert f"The ABORT marker was written. {FIND_OUT}" in str(error)
    assert (audit.rows()[-1]["response"], audit.rows()[-1]["last_stable_offset_after"]) == ("NONE", None)
    assert not is_open(broker, plan)


def test_of_two_aborts_at_once_one_finds_it_ended(broker: Kafka, audit: Audit) -> None:
    """A leader accepts the second marker, too, and both would report success."""
    staged = INCIDENTS["never_added"](broker)
    start = threading.Barrier(2)

    def run(cluster: Cluster) -> Result | ActionRefused:
        plan = plan_abort(cluster, finding(cluster, staged))
        start.wait(timeout=60)
        try:
            return plan.execute(confirm=plan.target, audit=Audit(audit.path), recheck_after=0)
        except ActionRefused as refused:
            return refused

    with (
        Cluster(broker.bootstrap_servers) as one,
        Cluster(broker.bootstrap_servers) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        results = list(threads.map(run, (one, other)))
        batches = one.batches(topics=[staged.topic], partitions=[staged.partition])
    (refused,) = [each for each in results if isinstance(each, ActionRefused)]
    assert "ended just now" in str(refused) or "has no transaction open" in str(refused)
    markers = batches[(batches["producer_id"] == staged.producer_id) & batches["marker"].notna()]
    assert len(markers) == 1
    (result,) = [each for each in results if isinstance(each, Result)]
    assert result.records_file is not None
    assert result.records_file.exists()
    assert len(list(result.records_file.parent.iterdir())) == 1, "that of the refused one is gone"
