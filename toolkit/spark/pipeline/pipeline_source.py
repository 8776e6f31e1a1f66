"""The protocol of a source of logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from toolkit.schema import Row
from toolkit.spark.pipeline.ingest_plan import LogPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

IDS = "#ids"
"""Suffix of a log name of ``__transaction_state``, for the state of its records."""


class PipelineSource(Protocol):
    """Logs, as listed once: `LogFiles` in `from_files`, `LivePartitions` in `from_cluster`."""

    @property
    def is_consistent(self) -> bool:
        """Whether the files are a consistent copy."""

    @property
    def what(self) -> str:
        """Name of the listed items."""

    @property
    def listed(self) -> int:
        """Number of logs."""

    @property
    def bytes_listed(self) -> int | None:
        """Total size of the logs; null if unknown."""

    @property
    def signature(self) -> str:
        """A value that changes when the logs or the selection change."""

    @property
    def listings(self) -> Mapping[str, Row]:
        """The listed columns of each log's state: ``topic``, ``partition``, ``listing``, ``topic_id``."""

    def plans(self, states: Mapping[str, Row]) -> dict[str, LogPlan]:
        """How to read the new data of each changed log; with `IDS`, the records of ``__transaction_state``."""

    def partial_transactions(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of the table partial_transactions; null if there is nothing to read."""

    def events(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of ``schema.TRANSACTION_LOG``, with the name of their log."""

    def batches(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Rows of ``schema.BATCHES``, with the name of their log."""

    def tables(self, plans: Mapping[str, LogPlan]) -> tuple[pa.Table, pa.Table] | None:
        """`partial_transactions` and `events`, read by this process if that is faster than Spark's jobs; else null."""

    def current_findings(self) -> pa.Table:
        """Rows of ``schema.FINDINGS`` for the present holds of the LSO."""
