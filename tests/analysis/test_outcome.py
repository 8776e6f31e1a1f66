"""What was decided about open records, by the coordinator's log: case by case, and against a model."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.analysis.outcome_model import (
    Failover,
    LateBatch,
    NewInstance,
    OperatorAbort,
    OtherMarker,
    Step,
    Txn,
    World,
    after,
)

gaps = st.one_of(st.integers(1, 60), st.integers(1, 12_000))
short = st.integers(1, 20)
clocks = st.one_of(st.just(0), st.integers(-2_500, 2_500))  # of three brokers, so that two differ by 5 s at most
healthy = st.builds(
    Txn, end=st.sampled_from(["Commit", "Abort"]), here=st.sampled_from([True, True, False]), gap=gaps,
    lasts=st.one_of(short, gaps), delay=st.one_of(short, gaps),
)  # fmt: skip
faulty = st.builds(
    Txn,
    end=st.sampled_from(["Commit", "Abort"]),
    here=st.sampled_from([True, True, True, False]),
    writes=st.sampled_from([True, True, False]),
    by_coordinator=st.booleans(),
    marker=st.booleans(),
    twice=st.booleans(),
    gap=gaps,
    lasts=st.one_of(short, gaps),
    delay=st.one_of(short, gaps),
)
others = st.one_of(
    st.builds(LateBatch, gap=gaps),
    st.builds(OperatorAbort, gap=gaps),
    st.builds(NewInstance, gap=gaps),
    st.builds(OtherMarker, gap=gaps),
    st.builds(Failover, of_partition=st.booleans(), clock=clocks, gap=gaps),
)
steps = st.lists(st.one_of(healthy, healthy, faulty, others), max_size=10)
open_at_end = st.builds(Txn, end=st.none(), here=st.booleans(), writes=st.booleans(), gap=gaps)
last_steps = st.lists(st.one_of(faulty, st.builds(LateBatch, gap=gaps), open_at_end), min_size=1, max_size=3)


def check(world: World, name: str) -> None:
    """An answer is right, or `unknown`."""
    truth = world.of_open_records
    if name in {"undecided", "abort"}:
        assert "commit" not in truth, f"{name}: committed records would be lost"
    if name == "commit":
        assert "commit" in world.decisions, "nothing was committed without a marker"
        assert "abort" not in truth, "aborted records would become visible"
    if name == "abort":
        assert "abort" in world.decisions


@settings(max_examples=3000)
@given(steps, last_steps, st.sampled_from([1, 1, 1, 2]), clocks, clocks, st.data())
def test_the_outcome_is_right_or_unknown(
    first: list[Step], last: list[Step], version: int, leader: int, coordinator: int, data: st.DataObject
) -> None:
    world = after(*first, *last, version=version, leader_clock=leader, coordinator_clock=coordinator)
    assume(world.open)
    records, batches = len(world.records), len(world.batches)
    name = world.outcome(
        compacted=data.draw(st.integers(0, records)),
        first_record=data.draw(st.one_of(st.just(0), st.integers(0, records - 1))),
        first_batch=data.draw(st.one_of(st.just(0), st.integers(0, batches - 1))),
        is_one_clock=world.is_one_clock and data.draw(st.booleans()),
    ).name
    check(world, name)


@settings(max_examples=1000)
@given(steps, last_steps, st.sampled_from([1, 1, 1, 2]))
def test_with_all_records_and_one_clock_the_outcome_is_known(first: list[Step], last: list[Step], version: int) -> None:
    world = after(*first, *last, version=version)
    assume(world.open and world.is_one_clock)
    name = world.outcome(is_one_clock=True).name
    check(world, name)
    assert name != "unknown" or len(world.decisions) > 1
