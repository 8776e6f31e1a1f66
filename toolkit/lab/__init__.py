"""A real Kafka on this machine, and one word for it, a recorded sample, a cluster or files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.lab.broker import Kafka
    from toolkit.lab.opened import Opened, open_source

__all__ = ["Kafka", "Opened", "open_source"]

_LAZY = {"Kafka": "toolkit.lab.broker", "Opened": "toolkit.lab.opened", "open_source": "toolkit.lab.opened"}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'toolkit.lab' has no attribute {name!r}")
