"""States of a transactional id in the coordinator's log."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from toolkit.schema.log import TransactionLogRecord

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

TWO_PHASE_COMMIT = 2**31 - 1  # KIP-939 has no wire state of its own: the timeout is the only sign
PREPARE_GRACE = dt.timedelta(seconds=60)  # for the markers, once the outcome is decided

EXPIRED = "Dead"
"""The state of a tombstone; Kafka has it in memory only."""


def state_of(record: TransactionLogRecord) -> str | None:
    """The state in a record; `EXPIRED` for a tombstone."""
    return EXPIRED if record.tombstone else record.state


class IdReplica(NamedTuple):
    """A transactional id on one replica of its partition; -1 if broker or partition is unknown."""

    transactional_id: str
    broker_id: int
    txn_state_partition: int


def replica_of(record: TransactionLogRecord) -> IdReplica:
    """The id and replica of a record; the id is empty if it could not be read."""
    return IdReplica(
        record.transactional_id or "",
        -1 if record.broker_id is None else record.broker_id,
        -1 if record.txn_state_partition is None else record.txn_state_partition,
    )
