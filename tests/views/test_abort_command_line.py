"""The line of Kafka's tool for a transaction found in files, and what speaks for and against it."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from tests.actions.rows import committed, found, producer
from tests.stored import compare
from toolkit.errors import NotFound
from toolkit.schema import Row
from toolkit.schema.live import Finding
from toolkit.views.action_document import abort_advice

EPOCHS = [producer(8, coordinator_epoch=2), producer(partition=1, coordinator_epoch=3), producer(coordinator_epoch=5)]
OVER = producer(start=None, coordinator_epoch=5)
REPLICAS = [producer(broker_id=1, coordinator_epoch=5), producer(broker_id=2, coordinator_epoch=4)]
UNREAD = found(producer_id=None, start_offset=None, verdict="unknown", offsets_held=None, error="CORRUPT_BATCH: x")
CASES: dict[str, tuple[list[Finding], dict[str, Any]]] = {  # of producer 7, and what else the files show
    "proven": ([found()], {"producers": [producer()]}),
    "the coordinator epoch of its own partition": ([found()], {"producers": EPOCHS}),
    "that of another one": ([found(partition=1)], {"producers": EPOCHS}),
    "of another producer": ([found()], {"producers": EPOCHS[:2]}),
    "that is not known": ([found()], {"producers": [producer(coordinator_epoch=None)]}),
    # It was 0, that of a producer without a marker; of two copies without a broker's id it was that of the last.
    "that of a state that has ended": ([found()], {"producers": [OVER]}),
    "of which copies differ": ([found()], {"producers": [producer(coordinator_epoch=each) for each in (5, 4)]}),
    "of which one copy has ended": ([found()], {"producers": [producer(coordinator_epoch=5), OVER]}),
    # It was that of the last replica among the files, which may lag: the leader refuses it.
    "that of the replica that was diagnosed": ([found(broker_id=1)], {"producers": REPLICAS}),
    "a partition that was not read may have its transaction": ([UNREAD], {}),
    "each of the producer": (
        [found(producer_id=8), found(partition=2), found(start_offset=None), found(partition=1)], {}),
    "none of the producer": ([found(producer_id=8)], {}),
    "live": ([found(verdict="ongoing", action=None, reason="it is alive")], {}),
    "unknown": ([found(verdict="unknown", outcome="unknown", action=None, reason="perhaps", missing=["a", "b"])], {}),
    "committed": ([committed(reason="it was committed")], {}),
    "another epoch than that of the transaction proves nothing": ([found()], {"epoch": 2}),
    "a known cause speaks for it": ([found(cause="late_message")], {}),
}  # fmt: skip


def advice(findings: list[Finding], *, producers: Sequence[Row] = (), epoch: int = 0) -> Iterator[str]:
    def finding_rows(*, topics: list[str], partitions: list[int]) -> Sequence[Row]:
        assert (topics, partitions) == (["orders"], [0])
        return [each.row() for each in findings]

    files: Any = SimpleNamespace(paths=["logs"], finding_rows=finding_rows, producer_rows=lambda: producers)
    try:
        found = abort_advice(files, producer_id=7, producer_epoch=epoch, topics=["orders"], partitions=[0])
    except NotFound as error:
        yield f"{error.what} | {error.means}"
        return
    for each in found:
        yield f"{each.target} is {'proven' if each.proven else 'not proven'}: {each.line}"
        yield f"    before 3.0: {' '.join(each.old_command)}"
        assert each.line.removeprefix("# ") == " ".join(each.command)
        yield from (f"    for: {text}" for text in each.speaks_for)
        yield from (f"    against: {text}" for text in each.speaks_against)


def test_the_line_of_kafkas_tool() -> None:
    """What is not proven is a comment, with its reasons."""
    lines = []
    for name, (findings, files) in CASES.items():
        lines += [f"# {name}", *advice(findings, **files)]
    compare("abort_advice.txt", lines)
