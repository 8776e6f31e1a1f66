"""Transactional ids from coordinators, and from their log for brokers without ListTransactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.errors import BrokerError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.transaction_log import read_state_log
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.transaction_listing import TOO_OLD, TransactionFilters, describe, describe_ids, list_ids

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

__all__ = ["all_ids", "filtered_rows", "named_rows"]


def filtered_rows(client: BrokerClient, config: ClientConfig, filters: TransactionFilters) -> list[Row]:
    """Rows of ``schema.TRANSACTIONS`` of every id that matches the filters, and an error row for each failed broker."""
    coordinator_topic = CoordinatorTopic(STATE_TOPIC, read_metadata(client, [STATE_TOPIC]))
    listing = list_ids(client, sorted(client.brokers), coordinator_topic, filters)
    rows = [
        row
        for row in describe(client, listing.rows())
        if filters.match_duration(row, version=listing.versions.get(row["coordinator_id"], 0))
    ]
    if any(row["error"].startswith(TOO_OLD) for row in listing.failures):
        log = read_state_log(client, config, coordinator_topic, timeout=client.timeout)
        described = {row["transactional_id"] for row in rows}
        rows += [row for row in log.rows if row["transactional_id"] not in described and filters.match(row)]
        rows += log.failures
    return rows + listing.failures


def all_ids(client: BrokerClient, config: ClientConfig) -> list[str]:
    """Every transactional id.

    Raises
    ------
    BrokerError
        If a broker does not list its ids and their log cannot be read.
    """
    rows = filtered_rows(client, config, TransactionFilters())
    for row in rows:
        if row["transactional_id"] is None and not row["error"].startswith(TOO_OLD):
            broker = f"broker {row['broker_id']} ({row['source']})"
            code = row["error"].partition(":")[0]
            raise BrokerError(f"The transactional ids of {broker} cannot be listed: {row['error']}", code=code)
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
