"""Log evidence of held partitions: a bounded excerpt of each, and records of ``__transaction_state``."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from toolkit.analysis.coordinator.producer_id_owners import names_any
from toolkit.analysis.diagnosis.evidence.explanation import explain
from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt, LogEvidence
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.verdicts import is_to_explain
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.coordinator_logs import event_rows, read_coordinator_topic
from toolkit.sources.live.logs.excerpt_reader import ExcerptPosition, read_excerpts
from toolkit.sources.live.state.compacted_topics import compacted_topics
from toolkit.sources.live.state.coordinators import CoordinatorTopic

__all__ = ["read_log_evidence", "with_log_evidence"]

MAX_PARTITIONS = 50
PARTITIONS_AT_ONCE = 10  # bounds memory
TIMEOUT_S = 10.0  # the rest is left out

MAX_STATE_PARTITIONS = 8  # of the owners' ids
NEWEST = 20_000  # offsets of each of them
NEWEST_OF_EACH = 4_000  # of every partition, if no id has the producer id any more


def with_log_evidence(client: BrokerClient, observations: Sequence[Observation], rows: Sequence[Row]) -> list[Row]:
    """Rows of ``schema.FINDINGS`` with evidence from the logs, where needed."""
    evidence = read_log_evidence(client, observations, rows)
    return list(rows) if evidence is None else explain(rows, observations, evidence)


def read_log_evidence(
    client: BrokerClient, observations: Sequence[Observation], rows: Sequence[Row]
) -> LogEvidence | None:
    """Read evidence for findings around the lowest open transaction of at most `MAX_PARTITIONS` partitions.

    Parameters
    ----------
    observations
        The observations that the findings rest on.
    rows
        Rows of ``schema.FINDINGS`` in their order.

    Returns
    -------
    LogEvidence or None
        Null if no finding needs it.
    """
    positions = _excerpt_positions(observations, rows)[:MAX_PARTITIONS]
    if not positions:
        return None
    deadline = time.monotonic() + TIMEOUT_S
    compacted = compacted_topics(client, {each.tp[0] for each in positions})
    excerpts: dict[TopicPartition, Excerpt] = {}
    for start in range(0, len(positions), PARTITIONS_AT_ONCE):
        if time.monotonic() < deadline:
            batch = positions[start : start + PARTITIONS_AT_ONCE]
            excerpts |= read_excerpts(client, batch, compacted=compacted, deadline=deadline)
    to_explain = [row for row in rows if (row["topic"], row["partition"]) in excerpts and is_to_explain(row)]
    events, unread = _events(client, _state_partitions(observations), to_explain)
    return LogEvidence(excerpts=excerpts, events=events, unread=unread)


def _excerpt_positions(observations: Sequence[Observation], rows: Sequence[Row]) -> list[ExcerptPosition]:
    leaders = {
        (row["topic"], row["partition"]): row for observation in observations for row in observation.partitions_after
    }
    positions = []
    for tp, group in groupby(rows, key=lambda row: (row["topic"], row["partition"])):
        started = [row for row in group if row["start_offset"] is not None]
        to_explain = [row for row in started if is_to_explain(row)]
        leader = leaders.get(tp, {})
        if not to_explain or leader.get("leader") is None or leader.get("high_watermark") is None:
            continue
        log_start, epoch = leader["log_start_offset"] or 0, leader["leader_epoch"]
        positions.append(
            ExcerptPosition(
                tp=tp,
                offset=max(log_start, min(row["start_offset"] for row in started)),
                log_start=log_start,
                high_watermark=leader["high_watermark"],
                producer_ids=frozenset(row["producer_id"] for row in to_explain),
                broker_id=leader["leader"],
                leader_epoch=-1 if epoch is None else epoch,
            )
        )
    return positions


def _state_partitions(observations: Iterable[Observation]) -> Mapping[str, int]:
    """Transactional id to its partition of ``__transaction_state``."""
    return {
        row["transactional_id"]: row["txn_state_partition"]
        for observation in observations
        for row in observation.transactions
        if row["transactional_id"] is not None and row["txn_state_partition"] is not None
    }


def _events(
    client: BrokerClient, state_partitions: Mapping[str, int], rows: Sequence[Row]
) -> tuple[list[Row], list[str]]:
    """Records of the transactions' owners, or of former owners if they have none; and read errors."""
    try:
        coordinator_topic = read_coordinator_topic(client, STATE_TOPIC)
        owners = {row["transactional_id"] for row in rows} - {None}
        partitions = sorted({state_partitions[each] for each in owners if each in state_partitions})
        events = _of_ids(client, coordinator_topic, owners, partitions[:MAX_STATE_PARTITIONS], newest=NEWEST)
        orphans = {
            row["producer_id"] for row in rows if row["verdict"] == "hanging" and row["transactional_id"] is None
        }
        events += _of_producers(client, coordinator_topic, orphans) if orphans else []
    except ToolkitError as error:
        return [], [f"{STATE_TOPIC} could not be read ({error.what.rstrip('.')})"]
    errors = sorted({row["error"].partition(":")[0] for row in events if row["error"]})
    unread = [f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else []
    return events, unread


def _of_ids(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    ids: Collection[str],
    partitions: Collection[int],
    *,
    newest: int,
) -> list[Row]:
    needles = [each.encode() for each in ids]
    return [
        row
        for row in event_rows(client, coordinator_topic, partitions, newest=newest, having=needles)
        if row["error"] or row["transactional_id"] in ids
    ]


def _of_producers(
    client: BrokerClient, coordinator_topic: CoordinatorTopic, producer_ids: Collection[int]
) -> list[Row]:
    """Records of every id that ever had one of these producer ids, its tombstone included."""
    needles = [each.to_bytes(8, "big") for each in producer_ids]
    rows = list(event_rows(client, coordinator_topic, newest=NEWEST_OF_EACH, having=needles))
    owners = {row["transactional_id"]: row["txn_state_partition"] for row in rows if names_any(row, producer_ids)}
    errors = [row for row in rows if row["error"]]
    return errors + _of_ids(client, coordinator_topic, set(owners), set(owners.values()), newest=NEWEST_OF_EACH)
