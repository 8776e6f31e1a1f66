"""The line of Kafka's tool for a transaction found in files, and what speaks for and against it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.actions.rows import found, producer
from toolkit.errors import NotFound
from toolkit.schema import Row
from toolkit.views.action_document import FILES_AGE, AbortAdvice, abort_advice

TOOL = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic orders --partition 0"


def advice(*findings: Row, producers: Any = (), epoch: int = 0) -> list[AbortAdvice]:
    """Advice for producer 7."""

    def finding_rows(*, topics: list[str], partitions: list[int]) -> Sequence[Row]:
        assert (topics, partitions) == (["orders"], [0])
        return findings

    files: Any = SimpleNamespace(paths=["logs"], finding_rows=finding_rows, producer_rows=lambda: producers)
    return abort_advice(files, producer_id=7, producer_epoch=epoch, topics=["orders"], partitions=[0])


def only(epoch: int = 0, producers: Any = (), **fields: Any) -> AbortAdvice:
    (line,) = advice(found(**fields).row(), producers=producers, epoch=epoch)
    return line


def test_a_proven_transaction_gets_its_line() -> None:
    one = only(producers=[producer()])
    assert (one.target, one.proven) == ("orders-0@100", True)
    assert one.line == " ".join(one.command) == f"{TOOL} --start-offset 100"
    assert " ".join(one.old_command) == f"{TOOL} --producer-id 7 --producer-epoch 0 --coordinator-epoch 0"
    assert (one.speaks_for, one.speaks_against) == (["no transactional id has it"], [FILES_AGE])


def test_the_line_for_old_brokers_has_the_coordinator_epoch_of_its_own_partition() -> None:
    rows = [producer(8, coordinator_epoch=2), producer(partition=1, coordinator_epoch=3), producer(coordinator_epoch=5)]
    assert only(producers=rows).old_command[-2:] == ("--coordinator-epoch", "5")
    assert only(producers=rows, partition=1).old_command[-2:] == ("--coordinator-epoch", "3")
    assert only(producers=[producer(coordinator_epoch=None)]).old_command[-2:] == ("--coordinator-epoch", "0")


def test_a_coordinator_epoch_that_no_state_shows_is_unknown() -> None:
    """It was 0, that of a producer without a marker; of two copies without a broker's id it was that of the last."""
    unread, ended = producer(8, coordinator_epoch=2), producer(start=None, coordinator_epoch=5)
    differ = [producer(coordinator_epoch=5), producer(coordinator_epoch=4)]
    for states in ([unread], [ended], differ):
        assert only(producers=states).old_command[-2:] == ("--coordinator-epoch", "unknown")
    assert only(producers=[*differ[:1], ended]).old_command[-1] == "5"


def test_the_coordinator_epoch_is_that_of_the_replica_that_was_diagnosed() -> None:
    """It was that of the last replica among the files, which may lag: the leader refuses it."""
    rows = [producer(broker_id=1, coordinator_epoch=5), producer(broker_id=2, coordinator_epoch=4)]
    assert only(producers=rows, broker_id=1).old_command[-1] == "5"


def test_a_partition_that_was_not_read_may_have_its_transaction() -> None:
    unread = found(producer_id=None, start_offset=None, verdict="unknown", offsets_held=None, error="CORRUPT_BATCH: x")
    with pytest.raises(NotFound) as raised:
        advice(unread.row())
    assert raised.value.means == "It may have one on orders-0, which could not be read."


def test_each_open_transaction_of_the_producer_gets_a_line() -> None:
    rows = [found(producer_id=8), found(partition=2), found(start_offset=None), found(partition=1)]
    assert [each.target for each in advice(*(row.row() for row in rows))] == ["orders-2@100", "orders-1@100"]
    with pytest.raises(NotFound, match="Producer 7 has no transaction open in these files"):
        advice(found(producer_id=8).row())


@pytest.mark.parametrize(
    ("fields", "speaks_for", "speaks_against"),
    [
        ({"verdict": "ongoing", "action": None, "reason": "it is alive"}, [], ["It is ongoing: it is alive"]),
        (
            {"verdict": "unknown", "outcome": "unknown", "action": None, "reason": "perhaps", "missing": ["a", "b"]},
            ["perhaps"],
            ["Not known: a.", "Not known: b."],
        ),
        (
            {"verdict": "stuck_ending", "outcome": "commit", "action": "complete", "reason": "it was committed"},
            [],
            ["Never abort it: it was committed", "Remedy: kafka-txn abort"],
        ),
    ],
)
def test_what_is_not_proven_is_a_comment_with_its_reasons(
    fields: dict[str, Any], speaks_for: list[str], speaks_against: list[str]
) -> None:
    one = only(**fields)
    assert one.line == f"# {' '.join(one.command)}"
    assert (one.speaks_for, one.speaks_against) == (speaks_for, [*speaks_against, FILES_AGE])


def test_another_epoch_than_that_of_the_transaction_proves_nothing() -> None:
    one = only(epoch=2)
    assert (one.proven, one.speaks_against) == (False, ["Its epoch there is 0, not 2.", FILES_AGE])


def test_a_known_cause_speaks_for_it() -> None:
    assert only(cause="late_message").speaks_for == ["no transactional id has it", "Cause: late_message."]
