"""Answers of brokers as kafka-python's messages, from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def message(kind: Any, version: int | None = None, **fields: Any) -> Any:
    """A message, or a part of one: its parts are dicts, and what is left out has the protocol's default."""

    def value(name: str, found: Any) -> Any:
        field = kind.fields[name]
        if not field.is_struct_array() or found is None:
            return found
        return [message(field.data_class, **each) for each in found]

    return kind(version=version, **{name: value(name, found) for name, found in fields.items()})


def named(names: str, values: Sequence[Any]) -> dict[str, Any]:
    """The fields of a part, by its names in this order."""
    return dict(zip(names.split(), values, strict=True))


def by_topic(names: str, content: Iterable[tuple[str, Iterable[Sequence[Any]]]]) -> list[dict[str, Any]]:
    """Each topic with the fields of its partitions."""
    return [{"name": topic, "partitions": [named(names, each) for each in partitions]} for topic, partitions in content]
