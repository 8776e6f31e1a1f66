"""Transactional ids and groups in files: their newest state and their coordinator partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from toolkit.analysis.coordinator.transaction_history import newest
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.schema import Row
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.coordinator.coordinator_state import USUAL_COUNT, CoordinatorState, read_coordinator_side

NO_COUNT = "UNKNOWN_PARTITIONS: the number of partitions of {} is unknown, so the partition cannot be computed"


def transaction_rows(side: CoordinatorState) -> list[Row]:
    """Rows of ``schema.TRANSACTIONS``, and one without id for every partition that could not be read completely."""
    rows: list[Row] = []
    for number, partition in side.partitions.items():
        state = partition.read.state
        rows += newest(partition.newest.values(), observed_at=state.observed_at)
        for error in partition.errors[:1]:
            rows.append(
                {
                    "txn_state_partition": number,
                    "source": STATE_TOPIC,
                    "broker_id": state.log.where.broker_id,
                    "observed_at": state.observed_at,
                    "error": error,
                }
            )
    return rows


def named_rows(rows: Sequence[Row], transactional_ids: Sequence[str], *, taken_at: dt.datetime) -> Iterator[Row]:
    """The rows of the requested ids; an id without record has a row with `error`."""
    found = {row["transactional_id"]: row for row in rows if row.get("transactional_id")}
    errors = [row for row in rows if row.get("error") and not row.get("transactional_id")]
    for name in transactional_ids:
        if name in found:
            yield found[name]
            continue
        observed = max((row["observed_at"] for row in rows), default=taken_at)
        why = "no record of it is in the readable files" if errors else "no record of it is in these files"
        yield {
            "transactional_id": name,
            "source": STATE_TOPIC,
            "observed_at": observed,
            "error": f"TRANSACTIONAL_ID_NOT_FOUND: {why}",
        }


def coordinator_rows(
    contents: Contents,
    transactional_ids: Sequence[str] | None,
    groups: Sequence[str] | None,
    txn_state_partitions: int | None,
) -> Iterator[Row]:
    """Rows of ``schema.COORDINATORS``, by hash."""
    side = read_coordinator_side(contents, count=txn_state_partitions)
    known = [name for partition in side.partitions.values() for name in partition.newest]
    names = known if transactional_ids is None else transactional_ids
    count = side.count if side.is_counted else None
    yield from _rows(contents, "transaction", STATE_TOPIC, names, count)
    if groups is None or groups:
        group_ids = _groups(contents)
        count = _count(group_ids, contents.best(OFFSETS_TOPIC))
        yield from _rows(contents, "group", OFFSETS_TOPIC, sorted(group_ids) if groups is None else groups, count)


def _rows(contents: Contents, key_type: str, topic: str, keys: Iterable[str], count: int | None) -> Iterator[Row]:
    reads = contents.best(topic)
    observed_at = max((read.state.observed_at for read in reads.values()), default=contents.taken_at)
    for key in keys:
        yield {
            "key_type": key_type,
            "key": key,
            "topic": topic,
            "partition": None if count is None else coordinator_partition(key, count),
            "observed_at": observed_at,
            "error": NO_COUNT.format(topic) if count is None else None,
        }


def _groups(contents: Contents) -> dict[str, int]:
    """The partition of each group id."""
    found: dict[str, int] = {}
    for number, read in contents.best(OFFSETS_TOPIC).items():
        for row in read.state.log.offsets_log():
            if row.get("group_id") is not None:
                found[row["group_id"]] = number
    return found


def _count(group_ids: Mapping[str, int], present: Collection[int]) -> int | None:
    """Number of partitions of the topic: the highest present plus one, or 50, if it fits every id's partition."""
    for count in (max(present, default=-1) + 1, USUAL_COUNT):
        if (
            group_ids
            and count
            and all(coordinator_partition(key, count) == number for key, number in group_ids.items())
        ):
            return count
    return None
