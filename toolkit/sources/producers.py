"""Producer state of partitions (DescribeProducers)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.schema import Row, utc
from toolkit.sources import wire as kafka
from toolkit.sources.topology import Place, batches, by_leader, with_fresh_leaders
from toolkit.sources.wire import Answer, Wire, error_text

__all__ = ["open_transactions", "producer_rows", "producer_rows_at"]

UNKNOWN = {
    "producer_id": None,
    "producer_epoch": None,
    "last_sequence": None,
    "last_timestamp": None,
    "coordinator_epoch": None,
    "current_txn_start_offset": None,
}


def producer_rows(wire: Wire, bases: Mapping[Place, Row]) -> list[Row]:
    """Rows of ``schema.PRODUCERS`` by the partitions' leaders.

    A partition without producers gives no row, one that could not be asked gives one row with `error`. A broker answers
    from any replica that it has: that it led the partition is for the leader epochs before and after to show.

    Parameters
    ----------
    bases
        Row with the leader by partition, of `topology.Topology` or of ``schema.PARTITIONS``.
    """
    return with_fresh_leaders(wire, bases, _ask_leaders)


def producer_rows_at(wire: Wire, bases: Mapping[Place, Row], *, broker_id: int) -> list[Row]:
    """The same as one broker's own replicas have it; a partition that it has no replica of gives an error row."""
    return _ask(wire, {broker_id: list(bases)})


def open_transactions(rows: list[Row]) -> list[Row]:
    """Rows of producers with an open transaction, the lowest start offset of each partition first."""
    held = [row for row in rows if row["current_txn_start_offset"] is not None]
    return sorted(held, key=lambda row: (row["topic"], row["partition"], row["current_txn_start_offset"]))


def _ask_leaders(wire: Wire, bases: Mapping[Place, Row]) -> list[Row]:
    leaderless = [
        _failed(place, None, base["observed_at"], base["error"])
        for place, base in bases.items()
        if base["leader"] is None
    ]
    return leaderless + _ask(wire, by_leader(bases))


def _ask(wire: Wire, asked: Mapping[int, list[Place]]) -> list[Row]:
    requests = [(broker_id, batch) for broker_id, places in asked.items() for batch in batches(places)]
    answers = wire.send([(broker_id, _request(batch)) for broker_id, batch in requests])
    return [
        row for (broker_id, batch), answer in zip(requests, answers, strict=True)
        for row in _rows(broker_id, batch, answer)
    ]  # fmt: skip


def _request(batch: Mapping[str, list[int]]) -> Any:
    topic = kafka.DescribeProducers.TopicRequest
    return kafka.DescribeProducers(
        topics=[topic(name=name, partition_indexes=numbers) for name, numbers in batch.items()]
    )


def _rows(broker_id: int, batch: Mapping[str, list[int]], answer: Answer) -> Iterator[Row]:
    at = answer.observed_at
    if answer.error:
        for name, numbers in batch.items():
            for number in numbers:
                yield _failed((name, number), broker_id, at, answer.error_text)
        return
    for topic in answer.message.topics:
        for part in topic.partitions:
            if part.error_code:
                error = error_text(part.error_code, part.error_message)
                yield _failed((topic.name, part.partition_index), broker_id, at, error)
            for state in part.active_producers:
                yield {
                    "topic": topic.name,
                    "partition": part.partition_index,
                    "producer_id": _known(state.producer_id),
                    "producer_epoch": _known(state.producer_epoch, most=32_767),
                    "last_sequence": _known(state.last_sequence),
                    "last_timestamp": utc(_known(state.last_timestamp)),
                    "coordinator_epoch": _known(state.coordinator_epoch),
                    "current_txn_start_offset": _known(state.current_txn_start_offset),
                    "broker_id": broker_id,
                    "observed_at": at,
                    "error": None,
                }


def _known(value: int, *, most: int | None = None) -> int | None:
    """Null for Kafka's -1, and for what no broker of Apache Kafka would say (Redpanda: redpanda#11949)."""
    return None if value < 0 or (most is not None and value > most) else value


def _failed(place: Place, broker_id: int | None, at: dt.datetime, error: str | None) -> Row:
    key = {"topic": place[0], "partition": place[1], "broker_id": broker_id}
    return {**key, **UNKNOWN, "observed_at": at, "error": error}
