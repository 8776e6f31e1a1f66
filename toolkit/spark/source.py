"""What the pipeline asks of a place that raw rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from toolkit.spark.bronze import Bronze
from toolkit.spark.intake import Intake
from toolkit.spark.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Source"]


class Source(Protocol):
    """Logs as they were listed at one time: `LogFiles` in `from_files`, `LivePartitions` in `from_cluster`."""

    @property
    def what(self) -> str:
        """Name of what is listed: segments, or partitions."""

    @property
    def listed(self) -> int:
        """How many there are."""

    @property
    def bytes_listed(self) -> int | None:
        """How large they are, where that is known."""

    @property
    def signature(self) -> str:
        """Another one once anything has changed, or something else is asked."""

    @property
    def may_go_on(self) -> bool:
        """Whether brokers may be writing on while it is read."""

    @property
    def records(self) -> Sequence[str]:
        """Tables of records that belong to parts of logs."""

    @property
    def beside(self) -> Sequence[str]:
        """Tables of files that stand beside segments."""

    @property
    def now(self) -> Sequence[str]:
        """Tables that tell of now."""

    def intakes(self, ledger: Ledger) -> Sequence[Intake]:
        """What is to be done about each log."""

    def rows(self, table: str, bronze: Bronze, *, are_segments: bool) -> DataFrame:
        """Rows that hold those of the new parts of logs."""

    def rows_beside(self, table: str, bronze: Bronze) -> DataFrame:
        """Rows of files that stand beside new segments, with their units."""

    def answers(self, table: str, ledger: Ledger) -> DataFrame:
        """Rows that tell of now."""
