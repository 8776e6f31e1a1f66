"""Transactional ids as their coordinators describe them (DescribeTransactions)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from toolkit.analysis.coordinator.transaction_owners import OPEN_STATES
from toolkit.schema import utc
from toolkit.schema.live import Transaction
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import TOO_OLD, BrokerResponse, error_name, error_text, omitted_text
from toolkit.sources.live.state.coordinators import TRANSACTION, CoordinatorTopic, find_coordinators

IDS_PER_REQUEST = 2000
LISTED, DESCRIBED = "ListTransactions", "DescribeTransactions"  # sources


class KnownId(NamedTuple):
    """A transactional id, and what is known of it before it is described: by ListTransactions or FindCoordinator.

    Without a coordinator, any broker gets the request; `error` is of an earlier one.
    """

    transactional_id: str
    coordinator_id: int | None
    txn_state_partition: int | None
    broker_id: int | None
    observed_at: dt.datetime
    producer_id: int | None = None
    state: str | None = None
    source: str = LISTED
    error: str | None = None

    def transaction(self, error: str | None, *, of: BrokerResponse) -> Transaction:
        """The id with what is known, and why it could not be described."""
        return Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            state=self.state,
            coordinator_id=self.coordinator_id,
            txn_state_partition=self.txn_state_partition,
            source=self.source if of.error else DESCRIBED,
            broker_id=of.broker_id,
            observed_at=of.observed_at,
            error=error,
        )


def describe(client: BrokerClient, ids: Sequence[KnownId]) -> list[Transaction]:
    """The transactions of ids (DescribeTransactions), from each id's coordinator.

    An id that its coordinator does not have (any more) is ``Dead``. If the coordinator has moved, the request is
    retried once. An id that cannot be described keeps what is known of it, with `error`.
    """
    described = _describe(client, ids)
    moved = [(known, txn.error) for known, txn in described if Error.of(txn.error).code == "NOT_COORDINATOR"]
    if not moved:
        return [txn for _, txn in described]
    coordinators = find_coordinators(client, [known.transactional_id for known, _ in moved], TRANSACTION)
    retried = {
        known.transactional_id: known._replace(coordinator_id=coordinator.node_id, source=DESCRIBED, error=error)
        for (known, error), (_, coordinator) in zip(moved, coordinators, strict=True)
        if coordinator is not None and coordinator.error_code == 0
    }
    again = _describe(client, list(retried.values()))
    return [txn for known, txn in described if known.transactional_id not in retried] + [txn for _, txn in again]


def _describe(client: BrokerClient, ids: Sequence[KnownId]) -> list[tuple[KnownId, Transaction]]:
    batches = messages.batches(((known.coordinator_id, known) for known in ids), IDS_PER_REQUEST)
    responses = client.send(
        [
            (coordinator, messages.DescribeTransactions(transactional_ids=[each.transactional_id for each in batch]))
            for coordinator, batch in batches
        ]
    )
    described: list[tuple[KnownId, Transaction]] = []
    for (_, batch), response in zip(batches, responses, strict=True):
        if response.error:
            described += [(known, known.transaction(response.error_text, of=response)) for known in batch]
            continue
        states = {state.transactional_id: state for state in response.message.transaction_states}
        described += [(known, _described(known, states.get(known.transactional_id), response)) for known in batch]
    return described


def _described(known: KnownId, state: Any, response: BrokerResponse) -> Transaction:
    known = known._replace(coordinator_id=response.broker_id)
    if state is None:
        return known.transaction(omitted_text("DescribeTransactions", "this id"), of=response)
    if error_name(state.error_code) == "TRANSACTIONAL_ID_NOT_FOUND":
        return known._replace(state="Dead").transaction(known.error, of=response)
    if state.error_code:
        return known.transaction(error_text(state.error_code), of=response)
    return Transaction(
        transactional_id=known.transactional_id,
        producer_id=non_negative(state.producer_id),
        producer_epoch=non_negative(state.producer_epoch),
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        # Without an open transaction, brokers return the start of the last one.
        start_time=utc(state.transaction_start_time_ms) if state.transaction_state in OPEN_STATES else None,
        topic_partitions=tuple(
            TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions
        ),
        coordinator_id=response.broker_id,
        txn_state_partition=known.txn_state_partition,
        source=DESCRIBED,
        broker_id=response.broker_id,
        observed_at=response.observed_at,
    )


def describe_named(client: BrokerClient, coordinator_topic: CoordinatorTopic, ids: Sequence[str]) -> list[Transaction]:
    """The transactions of exactly these ids; one that does not exist, or that a broker is too old for, has `error`.

    `coordinator_topic`: ``__transaction_state``.
    """
    found: list[Transaction] = []
    known: list[KnownId] = []
    names = list(dict.fromkeys(ids))
    for name, (response, coordinator) in zip(names, find_coordinators(client, names, TRANSACTION), strict=True):
        partition = coordinator_topic.partition(name)
        error = response.error_text
        if coordinator is not None:
            error = error_text(coordinator.error_code, coordinator.error_message) if coordinator.error_code else None
        if error:
            found.append(
                Transaction(
                    transactional_id=name,
                    txn_state_partition=partition,
                    source=DESCRIBED,
                    broker_id=response.broker_id,
                    observed_at=response.observed_at,
                    error=coordinator_topic.missing(client, error),
                )
            )
        else:
            known.append(
                KnownId(
                    transactional_id=name,
                    coordinator_id=None if coordinator is None else coordinator.node_id,
                    txn_state_partition=partition,
                    broker_id=response.broker_id,
                    observed_at=response.observed_at,
                    source=DESCRIBED,
                )
            )
    return [*found, *map(_or_no_such_id, describe(client, known))]


def _or_no_such_id(txn: Transaction) -> Transaction:
    if txn.state != "Dead" or txn.producer_id is not None:
        return txn
    error = "TRANSACTIONAL_ID_NOT_FOUND: its coordinator has no such id; it never existed or has expired"
    return replace(txn, state=None, error=error)


def is_too_old(txn: Transaction) -> bool:
    """Whether the broker lacks ListTransactions or DescribeTransactions, as those before 3.0 do."""
    return txn.error is not None and Error.of(txn.error).code == TOO_OLD


def non_negative(number: int) -> int | None:
    """The number, null for Kafka's -1."""
    return number if number >= 0 else None
