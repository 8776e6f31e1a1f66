"""What consumers receive after a marker: records by a read_committed consumer, and the offsets of groups."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.actions.impact import OffsetCommitted
from toolkit.errors import BrokerError
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.logs.transaction_log import read_committed
from toolkit.sources.live.logs.transaction_records import LastBatch, open_batches
from toolkit.sources.live.state.group_offsets import committed_offsets, group_ids
from toolkit.sources.offset_queries.group_lag import CommittedOffset

if TYPE_CHECKING:
    from toolkit.actions.marker_plan import MarkerPlan
    from toolkit.sources.live.cluster import Cluster

POLL_S = 0.05
MAX_RECORDS = 10_000
"""Records of the transaction that are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Records of the transaction that were looked for, and those that a read_committed consumer received."""

    checked: int
    delivered: int


def delivered(plan: MarkerPlan, last: LastBatch, lso: int | None, check: Callable[[], None]) -> Delivery | None:
    """Read the transaction's records as a read_committed consumer does, at most `MAX_RECORDS` of them.

    Returns: null if the LSO is before the first of the records: another transaction holds it.
    `plan`: the plan whose marker was written.
    `lso`: the LSO after the marker.
    `check`: called while it waits; what it raises ends the read.
    """
    expected: set[int] = set()
    batches = open_batches(
        plan.cluster.client,
        plan.read_partition(),
        producer_id=plan.producer_id,
        start_offset=plan.start_offset,
        last=last,
    )
    for batch in batches:
        check()
        if lso is None or batch.base_offset >= lso or len(expected) >= MAX_RECORDS:
            break
        expected.update(record.offset for record in batch.records())
    batches.close()
    if not expected:
        return None
    found = read_committed(
        plan.cluster.config,
        plan.topic,
        plan.partition,
        min(expected),
        max(expected) + 1,
        timeout=plan.cluster.timeout,
        check=check,
    )
    checked = {offset for offset in expected if offset < found.reached}
    return Delivery(checked=len(checked), delivered=len(checked & {*found.offsets}))


def group_offsets(
    cluster: Cluster, commits: Sequence[OffsetCommitted]
) -> tuple[tuple[OffsetCommitted, ...], tuple[str, ...]]:
    """The offsets that the groups of these commits have now, and the groups that no broker lists to this principal.

    Raises BrokerError if a group still has a pending commit of an open transaction there, or its offsets cannot be
    read.
    """
    coordinators = group_ids(cluster.client, sorted(cluster.client.brokers))
    found: list[OffsetCommitted] = []
    groups = {each.group_id for each in commits}
    deadline = time.monotonic() + cluster.timeout
    for group in sorted(groups & coordinators.keys()):
        offsets = committed_offsets(cluster.client, group, coordinators[group])
        wanted = [each for each in commits if each.group_id == group]
        while any(_of(each, offsets)[1] for each in wanted) and time.monotonic() < deadline:
            threading.Event().wait(POLL_S)  # coordinators up to 3.9 learn of the marker a moment after the leader
            offsets = committed_offsets(cluster.client, group, coordinators[group])
        for each in wanted:
            offset, error = _of(each, offsets)
            if error:
                raise BrokerError(
                    f"Group {group!r} cannot read its offset of {each.topic}-{each.partition}: {error}.",
                    code=Error.of(error).code,
                )
            found.append(replace(each, offset=offset))
    return tuple(found), tuple(sorted(groups - coordinators.keys()))


def _of(commit: OffsetCommitted, offsets: Mapping[TopicPartition, CommittedOffset]) -> CommittedOffset:
    return offsets.get(TopicPartition(commit.topic, commit.partition), CommittedOffset(None, None))
