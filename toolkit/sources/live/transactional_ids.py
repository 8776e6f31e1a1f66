"""Transactional ids from coordinators, and from their log for brokers without ListTransactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.errors import BrokerError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.table import Error, utc_now
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.transaction_log import read_state_log
from toolkit.sources.live.state.authorization import transactional_ids_are_visible
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.transaction_listing import (
    TOO_OLD,
    UNKNOWN,
    TransactionFilters,
    TransactionListing,
    describe,
    describe_ids,
    list_ids,
)

if TYPE_CHECKING:
    from toolkit.config import ClientConfig


def filtered_rows(client: BrokerClient, config: ClientConfig, filters: TransactionFilters) -> list[Row]:
    """Rows of ``schema.TRANSACTIONS`` of every id that matches the filters.

    A row without id, with `error`, stands for ids that may exist and are not listed: a broker failed, a partition of
    ``__transaction_state`` has no leader, or this principal may not see them (Kafka omits those without an error). The
    coordinators' log is read for ids that brokers do not list.
    """
    coordinator_topic = CoordinatorTopic(STATE_TOPIC, read_metadata(client, [STATE_TOPIC]))
    listing = list_ids(client, sorted(client.brokers), coordinator_topic, filters)
    rows = [
        row
        for row in describe(client, listing.rows())
        if filters.match_duration(row, version=listing.versions.get(row["coordinator_id"], 0))
    ]
    too_old = any(row["error"].startswith(TOO_OLD) for row in listing.failures)
    hidden = list(_hidden_ids(client, listing, rows, filters))
    if too_old or hidden:
        log = read_state_log(client, config, coordinator_topic, timeout=client.timeout)
        described = {row["transactional_id"] for row in rows}
        rows += [row for row in log.rows if row["transactional_id"] not in described and filters.match(row)]
        if log.is_complete:
            hidden = []
        if too_old:
            rows += log.failures
    return [*rows, *listing.failures, *hidden, *_unled_partitions(coordinator_topic)]


def _hidden_ids(
    client: BrokerClient, listing: TransactionListing, rows: Sequence[Row], filters: TransactionFilters
) -> Iterator[Row]:
    """A row for each missing proof that brokers omitted no id, unless each requested producer id has its owner."""
    owned = {row["producer_id"] for row in rows}
    if not listing.versions or (filters.producer_ids and owned.issuperset(filters.producer_ids)):
        return
    for gap in transactional_ids_are_visible(client, sorted(client.brokers)).gaps:
        yield _missing_row(f"TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ids may be hidden; missing: {gap}")


def _unled_partitions(coordinator_topic: CoordinatorTopic) -> Iterator[Row]:
    """A row for each partition of ``__transaction_state`` whose ids no broker lists."""
    if coordinator_topic.hidden:
        right = f"DESCRIBE on Topic '{STATE_TOPIC}', to see that each of its partitions has a leader"
        yield _missing_row(f"TOPIC_AUTHORIZATION_FAILED: ids may be missing; missing: {right}")
    for (_, number), row in sorted(coordinator_topic.topology.partitions.items()):
        if row["leader"] is None:
            error = f"LEADER_NOT_AVAILABLE: {STATE_TOPIC}-{number} has no leader, so no broker lists its ids"
            yield {**_missing_row(error), "txn_state_partition": number}


def _missing_row(error: str) -> Row:
    return {**UNKNOWN, "observed_at": utc_now(), "source": "ListTransactions", "error": error}


def all_ids(client: BrokerClient, config: ClientConfig) -> list[str]:
    """Every transactional id.

    Raises
    ------
    BrokerError
        If a broker does not list its ids, or this principal may not see all, and their log cannot be read.
    """
    rows = filtered_rows(client, config, TransactionFilters())
    for row in rows:
        if row["transactional_id"] is None and not row["error"].startswith(TOO_OLD):
            of = "" if row["broker_id"] is None else f" of broker {row['broker_id']} ({row['source']})"
            code = Error.of(row["error"]).code
            raise BrokerError(f"The transactional ids{of} cannot be listed: {row['error']}", code=code)
    return list(dict.fromkeys(row["transactional_id"] for row in rows if row["transactional_id"] is not None))


def named_rows(client: BrokerClient, config: ClientConfig, ids: Sequence[str]) -> list[Row]:
    """Rows of ``schema.TRANSACTIONS`` of exactly these ids; one that does not exist has `error`."""
    coordinator_topic = CoordinatorTopic(STATE_TOPIC, read_metadata(client, [STATE_TOPIC]))
    rows = {row["transactional_id"]: row for row in describe_ids(client, list(dict.fromkeys(ids)), coordinator_topic)}
    undescribed = {name: row for name, row in rows.items() if row["error"] and row["error"].startswith(TOO_OLD)}
    if undescribed:
        only = {row["txn_state_partition"] for row in undescribed.values()}
        log = read_state_log(client, config, coordinator_topic, only=only, timeout=client.timeout)
        rows |= {row["transactional_id"]: row for row in log.rows if row["transactional_id"] in undescribed}
    return list(rows.values())
