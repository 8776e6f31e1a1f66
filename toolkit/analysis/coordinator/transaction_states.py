"""States of a transactional id, and which of them may follow which in the coordinator's log.

Sources: ``TransactionState`` and ``TransactionMetadata`` in Kafka's transaction-coordinator, 2.8 to 4.3 (the states
before each state), with every step seen in the logs of 3.5.2, 3.9.2, 4.0.1 and 4.3.1; KIP-890 (transaction version 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from toolkit.schema import Row

__all__ = ["EXPIRED", "FIRST_VERSION", "OPEN_STATES", "IdReplica", "is_allowed", "replica_of", "state_of"]

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

EXPIRED = "Dead"
"""The state of a tombstone; Kafka has it in memory only."""

_STEPS = {
    # InitProducerId; again after an error of the client (KIP-360)
    "Empty": "Empty CompleteCommit CompleteAbort Dead",
    # a partition is added, the first or one more
    "Ongoing": "Empty CompleteCommit CompleteAbort Ongoing",
    # the outcome is decided; the same once more where the append was not acknowledged and is tried again
    "PrepareCommit": "Ongoing PrepareCommit",
    "PrepareAbort": "Ongoing PrepareAbort PrepareEpochFence",
    "CompleteCommit": "PrepareCommit CompleteCommit",
    "CompleteAbort": "PrepareAbort CompleteAbort",
    # the way from Ongoing to a PrepareAbort with a raised epoch; no Kafka so far writes it down
    "PrepareEpochFence": "Ongoing",
    # a tombstone: idle for transactional.id.expiration.ms
    "Dead": "Empty CompleteCommit CompleteAbort Dead",
}
# A client of transaction version 2 may abort where nothing was added, to have its epoch raised.
_STEPS_OF_VERSION_2 = {"PrepareAbort": "Empty CompleteCommit CompleteAbort"}

FIRST_VERSION: Mapping[tuple[str, str], int] = MappingProxyType(
    {(before, state): 0 for state, found in _STEPS.items() for before in found.split()}
    | {(before, state): 2 for state, found in _STEPS_OF_VERSION_2.items() for before in found.split()}
)
"""Every allowed step, as (state before, state), to the transaction version from which on it is one."""


def state_of(event: Row) -> str | None:
    """The state that a row of ``schema.TRANSACTION_LOG`` holds; a tombstone holds `EXPIRED`."""
    return EXPIRED if event["tombstone"] else event["state"]


def is_allowed(before: Row, event: Row) -> bool:
    """Whether a record may directly follow another of the same transactional id.

    Parameters
    ----------
    before, event
        Rows of ``schema.TRANSACTION_LOG`` that could be read. In a compacted log they count as neighbours as well: the
        cleaner keeps the last record of what it has cleaned.
    """
    version = FIRST_VERSION.get((state_of(before) or "", state_of(event) or ""))
    return version is not None and version <= (event.get("client_transaction_version") or 0)


class IdReplica(NamedTuple):
    """A transactional id as one replica of its partition has it; -1 where broker or partition is not known."""

    transactional_id: str
    broker_id: int
    txn_state_partition: int


def replica_of(event: Row) -> IdReplica:
    """The id and replica of a row of ``schema.TRANSACTION_LOG``; the id is empty where it could not be read."""
    broker_id, partition = event["broker_id"], event["txn_state_partition"]
    return IdReplica(
        event["transactional_id"] or "",
        -1 if broker_id is None else broker_id,
        -1 if partition is None else partition,
    )
