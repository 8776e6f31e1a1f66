"""What the pipeline reads logs from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from toolkit.schema import Row
from toolkit.spark.pipeline.ingest_plan import LogPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["IDS", "PipelineSource"]

IDS = "#ids"
"""Suffix of the name of a log of ``__transaction_state`` for its records."""


class PipelineSource(Protocol):
    """Logs as they were listed at one time: `LogFiles` in `from_files`, `LivePartitions` in `from_cluster`."""

    @property
    def is_consistent(self) -> bool:
        """Whether it is a consistent copy."""

    @property
    def what(self) -> str:
        """Name of the listed items."""

    @property
    def listed(self) -> int:
        """How many logs there are."""

    @property
    def bytes_listed(self) -> int | None:
        """How large they are, where that is known."""

    @property
    def signature(self) -> str:
        """Changes when anything in it or the selection changes."""

    @property
    def listings(self) -> Mapping[str, Row]:
        """Of each log what a state has besides: ``topic``, ``partition``, ``listing``, ``topic_id``."""

    def plans(self, states: Mapping[str, Row]) -> dict[str, LogPlan]:
        """How each log that has changed is read on; those of the records of ``__transaction_state`` end with `IDS`."""

    def pieces(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of `toolkit.spark.transforms.partial_transactions.PIECES`; null where there is nothing to read."""

    def events(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of ``schema.TRANSACTION_LOG``, with the name of their log."""

    def batches(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of ``schema.BATCHES``, with the name of their log."""

    def tables(self, plans: Mapping[str, LogPlan]) -> tuple[pa.Table, pa.Table] | None:
        """Pieces and events, read by this process, if that is quicker than Spark's jobs; else null."""

    def current_findings(self) -> pa.Table:
        """Rows of ``schema.FINDINGS``: what holds the LSO now."""
