"""A real Kafka on this machine, and incidents staged on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.lab.broker import Kafka
    from toolkit.lab.connected_source import ConnectedSource

__all__ = ["ConnectedSource", "Kafka"]

__getattr__, __dir__ = lazy_exports(
    __name__, {"ConnectedSource": "toolkit.lab.connected_source", "Kafka": "toolkit.lab.broker"}
)
