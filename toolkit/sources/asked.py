"""Partitions as a caller asks for them: numbers of topics, or pairs; the same for a cluster and for files."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.errors import UsageError

__all__ = ["Place", "asked_places"]

Place = tuple[str, int]  # topic and partition


def asked_places(topics: Sequence[str] | None, partitions: Sequence[int] | Sequence[Place]) -> list[Place]:
    """The partitions that are meant; whether they exist is for the caller to say.

    Parameters
    ----------
    topics
        Topic names.
    partitions
        Numbers, which stand for these partitions of each of `topics`; or pairs of topic and number, which stand for
        themselves, without `topics`.

    Raises
    ------
    UsageError
        If `partitions` are numbers without topics, or pairs with topics.
    """
    numbers = [part for part in partitions if isinstance(part, int)]
    pairs = [part for part in partitions if not isinstance(part, int)]
    if (numbers and topics is None) or (pairs and (numbers or topics is not None)):
        raise UsageError(
            "partitions are either numbers, with topics, or pairs of topic and number, without.",
            do="For example topics=['orders'], partitions=[0, 1]; or partitions=[('orders', 0), ('payments', 3)].",
        )
    return pairs or [(topic, number) for topic in topics or () for number in numbers]
