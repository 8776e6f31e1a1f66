"""Transactional ids by the coordinators' word, and by their log where a broker is too old to be asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.errors import BrokerError
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.coordinators import Places
from toolkit.sources.state_log import read_state_log
from toolkit.sources.topology import read_topology
from toolkit.sources.transactions import TOO_OLD, Filters, describe, describe_ids, list_ids
from toolkit.sources.wire import Wire

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

__all__ = ["all_ids", "filtered_rows", "named_rows"]


def filtered_rows(wire: Wire, config: ClientConfig, filters: Filters) -> list[Row]:
    """Rows of ``schema.TRANSACTIONS`` of every id that the filters mean, and one for each broker that failed."""
    places = Places(STATE_TOPIC, read_topology(wire, [STATE_TOPIC]))
    listing = list_ids(wire, sorted(wire.brokers), places, filters)
    rows = [
        row
        for row in describe(wire, listing.rows())
        if filters.describes(row, version=listing.versions.get(row["coordinator_id"], 0))
    ]
    if any(row["error"].startswith(TOO_OLD) for row in listing.failures):
        log = read_state_log(wire, config, places, timeout=wire.timeout)
        told = {row["transactional_id"] for row in rows}
        rows += [row for row in log.rows if row["transactional_id"] not in told and filters.match(row)]
        rows += log.failures
    return rows + listing.failures


def all_ids(wire: Wire, config: ClientConfig) -> list[str]:
    """Every transactional id.

    Raises
    ------
    BrokerError
        If a broker does not list its own, nor its log can be read.
    """
    rows = filtered_rows(wire, config, Filters())
    for row in rows:
        if row["transactional_id"] is None and not row["error"].startswith(TOO_OLD):
            who = f"broker {row['broker_id']} ({row['source']})"
            code = row["error"].partition(":")[0]
            raise BrokerError(f"The transactional ids of {who} cannot be listed: {row['error']}", code=code)
    return list(dict.fromkeys(row["transactional_id"] for row in rows if row["transactional_id"] is not None))


def named_rows(wire: Wire, config: ClientConfig, ids: Sequence[str]) -> list[Row]:
    """Rows of ``schema.TRANSACTIONS`` of exactly these ids; one that does not exist has `error`."""
    places = Places(STATE_TOPIC, read_topology(wire, [STATE_TOPIC]))
    rows = {row["transactional_id"]: row for row in describe_ids(wire, list(dict.fromkeys(ids)), places)}
    untold = {name: row for name, row in rows.items() if row["error"] and row["error"].startswith(TOO_OLD)}
    if untold:
        only = {row["txn_state_partition"] for row in untold.values()}
        log = read_state_log(wire, config, places, only=only, timeout=wire.timeout)
        rows |= {row["transactional_id"]: row for row in log.rows if row["transactional_id"] in untold}
    return list(rows.values())
