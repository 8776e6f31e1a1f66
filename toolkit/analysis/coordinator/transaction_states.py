"""States of a transactional id, and the allowed transitions between them in the coordinator's log.

Sources: ``TransactionState`` and ``TransactionMetadata`` in Kafka's transaction-coordinator, 2.8 to 4.3 (the states
before each state), with every transition observed in the logs of 3.5.2, 3.9.2, 4.0.1 and 4.3.1; KIP-890 (transaction
version 2).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from toolkit.schema.log import TransactionLogRecord

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

TWO_PHASE_COMMIT = 2**31 - 1  # KIP-939 has no wire state of its own: the timeout is the only sign
PREPARE_GRACE = dt.timedelta(seconds=60)  # for the markers, once the outcome is decided

EXPIRED = "Dead"
"""The state of a tombstone; Kafka has it in memory only."""

_STEPS = {
    # InitProducerId, also repeated after a client error (KIP-360)
    "Empty": "Empty CompleteCommit CompleteAbort Dead",
    # a first or a further partition is added
    "Ongoing": "Empty CompleteCommit CompleteAbort Ongoing",
    # the outcome is decided; the same state again if the append was not acknowledged and is retried
    "PrepareCommit": "Ongoing PrepareCommit",
    "PrepareAbort": "Ongoing PrepareAbort PrepareEpochFence",
    "CompleteCommit": "PrepareCommit CompleteCommit",
    "CompleteAbort": "PrepareAbort CompleteAbort",
    # between Ongoing and a PrepareAbort with a raised epoch; no Kafka release so far writes it to the log
    "PrepareEpochFence": "Ongoing",
    # a tombstone: idle for transactional.id.expiration.ms
    "Dead": "Empty CompleteCommit CompleteAbort Dead",
}
# A client of transaction version 2 may abort without a partition, to raise its epoch.
_STEPS_OF_VERSION_2 = {"PrepareAbort": "Empty CompleteCommit CompleteAbort"}

FIRST_VERSION: Mapping[tuple[str, str], int] = MappingProxyType(
    {(before, state): 0 for state, found in _STEPS.items() for before in found.split()}
    | {(before, state): 2 for state, found in _STEPS_OF_VERSION_2.items() for before in found.split()}
)
"""Every allowed transition, as (state before, state), to the first transaction version that allows it."""


def state_of(record: TransactionLogRecord) -> str | None:
    """The state in a record; `EXPIRED` for a tombstone."""
    return EXPIRED if record.tombstone else record.state


def is_allowed(before: TransactionLogRecord, record: TransactionLogRecord) -> bool:
    """Whether a record may directly follow another of the same transactional id.

    `before`, `record`: readable records. In a compacted log, the remaining records are compared in the same way: the
    cleaner keeps the last record of an id in the cleaned part.
    """
    version = FIRST_VERSION.get((state_of(before) or "", state_of(record) or ""))
    return version is not None and version <= (record.client_transaction_version or 0)


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
