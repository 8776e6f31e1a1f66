"""What completed checkpoints of Flink are to commit: evidence of findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Committable(NamedTuple):
    """A transaction that a checkpoint has pre-committed (``KafkaCommittable``), and the number of that checkpoint."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkCheckpoint:
    """A completed checkpoint or a savepoint, as `toolkit.formats.flink_checkpoint` reads it."""

    path: Path  # its ``_metadata``
    checkpoint_id: int  # its number
    committables: Sequence[Committable]  # the transactions that it is to commit
    prefixes: frozenset[str]  # transactional id prefixes of its sinks
    # whether it is a savepoint: only a job that is restored from it commits its transactions (FLIP-203)
    is_savepoint: bool
    # committables that are not Kafka's, or not of a version that is known; and states of channels, which may have some
    # in an unaligned checkpoint of Flink 1
    others: int = 0

    @property
    def name(self) -> str:
        """``checkpoint 5 (/flink/checkpoints/.../chk-5)``."""
        return f"{'savepoint' if self.is_savepoint else 'checkpoint'} {self.checkpoint_id} ({self.path.parent})"

    def committable(self, transactional_id: str) -> Committable | None:
        """What it is to commit under an id; null if nothing."""
        return next((each for each in self.committables if each.transactional_id == transactional_id), None)

    def has_prefix_of(self, transactional_id: str) -> bool:
        """Whether an id is one of its sinks'."""
        return transactional_id.rsplit("-", 2)[0] in self.prefixes
