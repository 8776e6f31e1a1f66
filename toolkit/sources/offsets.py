"""Offsets of partitions, as their leaders answer (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from toolkit.schema import Row
from toolkit.sources import wire as kafka
from toolkit.sources.topology import Place, batches, by_leader, with_fresh_leaders
from toolkit.sources.wire import Answer, Wire, error_text

__all__ = ["lso_rows", "partition_rows"]

Question = tuple[str, int, int, int]  # the column it fills, replica id, isolation level, timestamp

LATEST, EARLIEST = -1, -2
CONSUMER, DEBUGGING = -1, -2  # a debugging replica is shown the log end
UNCOMMITTED, COMMITTED = 0, 1

# In this order on each connection: the high watermark before the LSO, so that LSO >= high watermark means that nothing
# was held back at that moment, and the log end last.
QUESTIONS = (
    ("log_start_offset", CONSUMER, UNCOMMITTED, EARLIEST),
    ("high_watermark", CONSUMER, UNCOMMITTED, LATEST),
    ("last_stable_offset", CONSUMER, COMMITTED, LATEST),
    ("log_end_offset", DEBUGGING, UNCOMMITTED, LATEST),
)
WHAT_IS_HELD = tuple(question for question in QUESTIONS if question[0] in {"high_watermark", "last_stable_offset"})
UNASKED = {column: None for column, *_ in QUESTIONS}


def partition_rows(wire: Wire, bases: Mapping[Place, Row]) -> list[Row]:
    """Rows of ``schema.PARTITIONS``, one per partition; offsets are null where `error` is set.

    Parameters
    ----------
    bases
        What the metadata says of each partition (`topology.Topology`). Where its leader has moved, it is asked again.
    """
    return with_fresh_leaders(wire, bases, partial(_ask, questions=QUESTIONS))


def lso_rows(wire: Wire, bases: Mapping[Place, Row]) -> list[Row]:
    """The same rows with the high watermark and the LSO only: half the price, and all it takes to see what is held."""
    return with_fresh_leaders(wire, bases, partial(_ask, questions=WHAT_IS_HELD))


def _ask(wire: Wire, bases: Mapping[Place, Row], *, questions: Sequence[Question]) -> list[Row]:
    rows: dict[Place, dict[str, Any]] = {place: {**base, **UNASKED} for place, base in bases.items()}
    asked = [
        (leader, batch, question, request)
        for leader, places in by_leader(bases).items()
        for batch in batches(places)
        for question, request in zip(questions, _requests(batch, questions, wire.timeout), strict=True)
    ]
    answers = wire.send([(leader, request) for leader, _, _, request in asked])
    for (_, batch, (column, *_), _), answer in zip(asked, answers, strict=True):
        _fill(rows, column, batch, answer)
    return [row if row["error"] is None else {**row, **UNASKED} for row in rows.values()]


def _requests(batch: Mapping[str, list[int]], questions: Sequence[Question], timeout: float) -> Iterator[Any]:
    """One request per question; those for the same timestamp share its partitions, which are thousands."""
    topics = {timestamp: _topics(batch, timestamp) for timestamp in {question[3] for question in questions}}
    for _, replica_id, isolation_level, timestamp in questions:
        yield kafka.ListOffsets(
            replica_id=replica_id,
            isolation_level=isolation_level,
            topics=topics[timestamp],
            timeout_ms=int(timeout * 1000),  # only tiered storage waits
        )


def _topics(batch: Mapping[str, list[int]], timestamp: int) -> list[Any]:
    topic = kafka.ListOffsets.ListOffsetsTopic
    partition = topic.ListOffsetsPartition
    return [
        topic(
            name=name,
            partitions=[
                partition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp) for number in numbers
            ],
        )
        for name, numbers in batch.items()
    ]


def _fill(rows: Mapping[Place, dict[str, Any]], column: str, batch: Mapping[str, list[int]], answer: Answer) -> None:
    if answer.error:
        for name, numbers in batch.items():
            for number in numbers:
                rows[name, number].update(error=answer.error_text, observed_at=answer.observed_at)
        return
    for topic in answer.message.topics:
        for part in topic.partitions:
            row = rows[topic.name, part.partition_index]
            row["observed_at"] = answer.observed_at
            if part.error_code == 0:
                row[column] = part.offset if part.offset >= 0 else None
            elif column != "log_end_offset":  # which not every compatible broker shows
                row["error"] = error_text(part.error_code)
            if column == "high_watermark" and part.leader_epoch >= 0:
                row["leader_epoch"] = part.leader_epoch  # the leader's own word is newer than the metadata's
