"""Whether coordinators have loaded their partitions of ``__transaction_state``."""

from __future__ import annotations

from collections import Counter
from functools import cache

from toolkit.formats.coordinator.transaction_log_records import coordinator_partition
from toolkit.schema.table import Error
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import error_name
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.transaction_listing import TOO_OLD

NOT_YET = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}


def loading_coordinators(client: BrokerClient, coordinator_topic: CoordinatorTopic) -> list[str]:
    """Gaps, one for each broker that has not loaded a partition of ``__transaction_state`` that it leads.

    A loading coordinator silently lists none of the ids that it has not loaded, so their producers seem to have no
    owner. DescribeTransactions, even of an unused id, returns an error until the id's partition is loaded
    (TransactionStateManager.getTransactionState).
    """
    by_leader: dict[int, list[str]] = {}
    for partition, name in enumerate(_probe_ids(coordinator_topic.count)):
        leader = coordinator_topic.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, []).append(name)
    responses = client.send(
        [(leader, messages.DescribeTransactions(transactional_ids=names)) for leader, names in by_leader.items()]
    )
    gaps = []
    for response in responses:
        if response.error:
            error = response.error_text or ""
            if not error.startswith(TOO_OLD):  # ListTransactions reports it, too
                code = Error.of(error).code
                gaps.append(f"broker {response.broker_id} did not show whether it has loaded its partitions: {code}")
            continue
        codes = Counter(error_name(state.error_code) for state in response.message.transaction_states)
        for name in sorted(codes.keys() & NOT_YET):
            count = f"{codes[name]} of the {coordinator_topic.topic} partitions that it leads"
            gaps.append(f"broker {response.broker_id} has not loaded {count}: {name}")
    return gaps


@cache
def _probe_ids(partitions: int) -> tuple[str, ...]:
    """An unused id that hashes to each partition."""
    ids: dict[int, str] = {}
    number = 0
    while len(ids) < partitions:
        name = f"kafka-txn-toolkit-probe-{number}"
        ids.setdefault(coordinator_partition(name, partitions), name)
        number += 1
    return tuple(ids[partition] for partition in range(partitions))
