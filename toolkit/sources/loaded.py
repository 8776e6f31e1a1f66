"""Whether the coordinators have loaded what they coordinate."""

from __future__ import annotations

from collections import Counter
from functools import cache

from toolkit.formats.records import coordinator_partition
from toolkit.sources import wire as kafka
from toolkit.sources.coordinators import Places
from toolkit.sources.transactions import TOO_OLD
from toolkit.sources.wire import Wire, error_name

__all__ = ["not_loaded"]

NOT_YET = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}


def not_loaded(wire: Wire, places: Places) -> list[str]:
    """Gaps, a sentence for each broker that does not answer for a partition of ``__transaction_state`` that it leads.

    A new leader lists its ids, without error and without those that it has not loaded yet: from the metadata alone its
    producers look like nobody's. But asked for an id, even one that nobody has, a coordinator says whether it has
    loaded the partition that the id hashes to (TransactionStateManager.getTransactionState).
    """
    ids = _an_id_for_each(places.count)
    by_leader: dict[int, list[str]] = {}
    for partition, name in enumerate(ids):
        leader = places.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, []).append(name)
    answers = wire.send(
        [(leader, kafka.DescribeTransactions(transactional_ids=names)) for leader, names in by_leader.items()]
    )
    gaps = []
    for answer in answers:
        if answer.error:
            error = answer.error_text or ""
            if not error.startswith(TOO_OLD):  # ListTransactions says so, too
                gaps.append(f"broker {answer.broker_id} did not say what it has loaded: {error.partition(':')[0]}")
            continue
        codes = Counter(error_name(state.error_code) for state in answer.message.transaction_states)
        for name in sorted(codes.keys() & NOT_YET):
            which = f"{codes[name]} of the {places.topic} partitions that it leads"
            gaps.append(f"broker {answer.broker_id} has not loaded {which}: {name}")
    return gaps


@cache
def _an_id_for_each(partitions: int) -> tuple[str, ...]:
    """For each partition an id that hashes to it, and that nobody has."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        name = f"kafka-txn-toolkit-probe-{number}"
        found.setdefault(coordinator_partition(name, partitions), name)
        number += 1
    return tuple(found[partition] for partition in range(partitions))
