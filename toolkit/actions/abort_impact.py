"""The impact of an abort marker: discarded and released records, unblocked groups, and the next LSO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.actions.log_impact import log_impact

if TYPE_CHECKING:
    from toolkit.schema.live import Finding, Partition, Producer
    from toolkit.sources.live.client.broker_client import BrokerClient


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortImpact:
    """The impact of an abort marker on read_committed consumers of a partition.

    Parameters
    ----------
    records_dropped
        Data records of the transaction, which they never read; null if the log was not read so far.
    records_released
        Data records behind the LSO that they can read then; null likewise.
    groups
        Groups that are unblocked; null if unknown.
    last_stable_offset, next_stable_offset
        The LSO now, and where it would go.
    next_start_offset, next_producer_id
        The transaction that holds the LSO then; null if none does.
    unread
        Why a count is null; empty if none is.
    bytes_dropped
        Size of the transaction's batches in the log, which are saved first; null if unknown.
    """

    records_dropped: int | None
    records_released: int | None
    groups: Sequence[str] | None
    last_stable_offset: int
    next_stable_offset: int
    next_start_offset: int | None
    next_producer_id: int | None
    unread: str = ""
    bytes_dropped: int | None = field(default=None, compare=False)


def abort_impact(
    client: BrokerClient, finding: Finding, *, partition: Partition, producers: Sequence[Producer]
) -> AbortImpact:
    """The impact of ending a transaction; reads the log from it to the high watermark, at most some megabytes.

    Parameters
    ----------
    client
        The connection to the brokers.
    finding
        The transaction.
    partition
        Its partition, without error.
    producers
        The producers of that partition, as its leader has them.
    """
    log = log_impact(client, finding, partition=partition, producers=producers)
    groups = finding.groups_held if log.next_stable_offset > log.last_stable_offset else ()
    return AbortImpact(
        records_dropped=log.records,
        records_released=log.released,
        groups=groups,
        last_stable_offset=log.last_stable_offset,
        next_stable_offset=log.next_stable_offset,
        next_start_offset=log.next_start_offset,
        next_producer_id=log.next_producer_id,
        unread=log.unread,
        bytes_dropped=log.size,
    )
