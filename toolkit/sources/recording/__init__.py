"""The flight recorder: samples of a live cluster as Parquet files, and `Recording`, which reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.sources.recording.recording import Recording

__all__ = ["Recording"]

__getattr__, __dir__ = lazy_exports(__name__, {"Recording": "toolkit.sources.recording.recording"})
