"""The flight recorder: samples of a live cluster as Parquet files, and `Recording`, which reads them."""

from toolkit.sources.recording.recording import Recording

__all__ = ["Recording"]
