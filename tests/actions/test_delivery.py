"""What is read back after a marker: records as a consumer receives them, and the offsets of groups."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.actions.rows import RowCluster, abort_plan
from toolkit.actions import transaction as delivery
from toolkit.actions.transaction import OffsetCommitted, PartitionResult, delivered, group_offsets
from toolkit.errors import ActionRefused, BrokerError
from toolkit.sources.live.coordinator_logs import LastBatch
from toolkit.sources.live.transactions import CommittedRead

LAST = LastBatch(0, 3)
BATCHES = ((100, 101), (110,), (120, 125))  # the offsets of their records


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a consumer receives and how far it comes, and the ranges that were read."""
    reads = SimpleNamespace(received=[], reached=200, ranges=[])

    def open_batches(client: object, of: object, **arguments: Any) -> Iterator[Any]:
        assert arguments == {"producer_id": 7, "start_offset": 100, "last": LAST}
        for offsets in BATCHES:
            records = [SimpleNamespace(offset=offset) for offset in offsets]
            yield SimpleNamespace(base_offset=offsets[0], records=lambda records=records: iter(records))

    def read_committed(config: object, *where: Any, **arguments: Any) -> CommittedRead:
        reads.ranges.append(where)
        arguments["check"]()
        return CommittedRead(reads.received, reads.reached)

    monkeypatch.setattr(delivery, "open_batches", open_batches)
    monkeypatch.setattr(delivery, "read_committed", read_committed)
    return reads


def received(lso: int | None, check: Any = lambda: None) -> tuple[int | None, int | None]:
    """Records that were looked for, and those that were received."""
    plan = abort_plan(RowCluster())
    moved = PartitionResult(
        topic="orders",
        partition=0,
        last_stable_offset_before=100,
        last_stable_offset_after=lso,
        high_watermark=150,
        next_start_offset=None,
        observed_at=plan.basis.observed_at,
    )
    done = delivered(plan.cluster, plan.transaction, moved, check)
    return done.records_checked, done.records_delivered


def test_the_records_below_the_lso_are_looked_for(reads: SimpleNamespace) -> None:
    reads.received = [100, 101, 105, 110, 125]
    assert received(150) == (5, 4), "the record at 105 is another producer's"
    assert received(120) == (3, 3)
    assert received(121) == (5, 4)
    assert reads.ranges == [("orders", 0, 100, 126), ("orders", 0, 100, 111), ("orders", 0, 100, 126)]


def test_where_another_transaction_holds_the_lso_nothing_is_looked_for(reads: SimpleNamespace) -> None:
    for lso in (None, 90, 100):
        assert received(lso) == (None, None)
    assert reads.ranges == []


def test_records_that_were_not_reached_in_time_are_not_missing(reads: SimpleNamespace) -> None:
    reads.received, reads.reached = [100], 110
    assert received(150) == (2, 1)


def test_no_batch_is_looked_for_behind_the_limit_of_records(
    reads: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_RECORDS", 3)
    reads.received = [100, 101, 110, 120, 125]
    assert received(150) == (3, 3)


def test_a_cancel_ends_the_read(reads: SimpleNamespace) -> None:
    def cancelled() -> None:
        raise ActionRefused("The action was cancelled.")

    with pytest.raises(ActionRefused):
        received(150, cancelled)
    assert reads.ranges == [], "while the batches are read, too"


# Offsets of groups


def commit(group: str, number: int = 0, offset: int | None = 7) -> OffsetCommitted:
    return OffsetCommitted(group_id=group, topic="orders", partition=number, offset=offset)


PENDING = {("orders", 0): (None, "UNSTABLE_OFFSET_COMMIT: pending"), ("orders", 1): (3, None)}
STABLE = {("orders", 0): (9, None), ("orders", 1): (3, None)}


def offsets_of(
    monkeypatch: pytest.MonkeyPatch, commits: Sequence[OffsetCommitted], *answers: Any
) -> tuple[Sequence[OffsetCommitted], Sequence[str], int]:
    """Offsets and unlisted groups, and the number of requests; the coordinator of `billing` and `late` is broker 4."""
    left, requested = list(answers), []

    def committed_offsets(client: object, group: str, coordinator: int) -> Any:
        requested.append((group, coordinator))
        return left.pop(0) if len(left) > 1 else left[0]

    def group_ids(client: object, brokers: Sequence[int]) -> dict[str, int]:
        assert brokers == [1]
        return {"late": 4, "billing": 4, "another": 1}

    monkeypatch.setattr(delivery, "group_ids", group_ids)
    monkeypatch.setattr(delivery, "committed_offsets", committed_offsets)
    cluster: Any = RowCluster()
    found, unlisted = group_offsets(cluster, commits)
    assert {coordinator for _, coordinator in requested} <= {4}
    assert {group for group, _ in requested} <= {each.group_id for each in commits}
    return found, unlisted, len(requested)


def test_the_offsets_that_groups_have_now_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [commit(name) for name in "gnutella"]
    commits = [commit("late"), commit("billing", 1), commit("billing"), *gone]
    found, unlisted, _ = offsets_of(monkeypatch, commits, STABLE)
    assert found == (commit("billing", 1, 3), commit("billing", 0, 9), commit("late", 0, 9))
    assert unlisted == tuple("aeglntu"), "groups that no broker lists to this principal"
    assert offsets_of(monkeypatch, [commit("late", 2)], STABLE)[0] == (commit("late", 2, None),), "it was removed"


def test_a_pending_offset_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets_of(monkeypatch, [commit("late")], PENDING, PENDING, STABLE) == ((commit("late", 0, 9),), (), 3)
    both = [commit("late", 1), commit("late")]
    assert offsets_of(monkeypatch, both, PENDING, STABLE) == ((commit("late", 1, 3), commit("late", 0, 9)), (), 2)
    other = [commit("late", 1), commit("billing", 0)]
    assert offsets_of(monkeypatch, other, PENDING, STABLE)[2] == 3, "a request for each group"
    assert offsets_of(monkeypatch, [commit("late", 1)], PENDING)[2] == 1, "another partition's is none of its"


def test_an_offset_that_stays_pending_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match="Group 'late' cannot read its offset of orders-0: UNSTABLE_OFF") as raised:
        offsets_of(monkeypatch, [commit("late")], PENDING)
    assert raised.value.code == "UNSTABLE_OFFSET_COMMIT"
