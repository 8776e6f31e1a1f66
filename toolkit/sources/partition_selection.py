"""Selected partitions: numbers within topics, or (topic, partition) pairs; for a cluster and for files."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.errors import UsageError
from toolkit.schema.table import TopicPartition


def requested_partitions(
    topics: Sequence[str] | None, partitions: Sequence[int] | Sequence[tuple[str, int]]
) -> list[TopicPartition]:
    """The selected partitions; whether they exist is not checked.

    `partitions`: numbers, for each of `topics`; or pairs of topic and number, without `topics`.
    Raises UsageError if `partitions` are numbers without topics, or pairs with topics.
    """
    numbers = [item for item in partitions if isinstance(item, int)]
    pairs = [TopicPartition(*item) for item in partitions if not isinstance(item, int)]
    if (numbers and topics is None) or (pairs and (numbers or topics is not None)):
        raise UsageError(
            "partitions are either numbers, with topics, or pairs of topic and number, without.",
            do="For example topics=['orders'], partitions=[0, 1]; or partitions=[('orders', 0), ('payments', 3)].",
        )
    return pairs or [TopicPartition(topic, number) for topic in topics or () for number in numbers]
