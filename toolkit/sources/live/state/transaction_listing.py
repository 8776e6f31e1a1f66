"""Transactional ids from their coordinators (ListTransactions, DescribeTransactions)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.errors import UsageError
from toolkit.schema import Row, utc
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_name, error_text
from toolkit.sources.live.state.coordinators import TRANSACTION, CoordinatorTopic, find_coordinators
from toolkit.sources.source_table import TableArguments

STATES = OPEN_STATES | {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}
IDS_PER_REQUEST = 2000
TOO_OLD = "UNSUPPORTED_VERSION"  # the error of a broker before 3.0
UNKNOWN: Mapping[str, None] = dict.fromkeys(
    (
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "state",
        "timeout_ms",
        "start_time",
        "last_update_time",
        "topic_partitions",
        "coordinator_id",
        "txn_state_partition",
        "broker_id",
        "error",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilters:
    """Filters of ListTransactions; those that a broker's version lacks are applied here.

    Parameters
    ----------
    states
        Kafka's state names.
    producer_ids
        Producer ids.
    min_duration_ms
        Only transactions open for longer than this. Brokers also apply it to the last transaction of an id without
        an open one; here such an id never matches.
    pattern
        Regular expression that must match the complete id.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    min_duration_ms: int | None = None
    pattern: str | None = None
    _regex: re.Pattern[str] = field(init=False, repr=False)

    @classmethod
    def of(cls, arguments: TableArguments) -> TransactionFilters:
        """The filters in the arguments of a table."""
        return cls(
            states=arguments.states or (),
            producer_ids=arguments.producer_ids or (),
            min_duration_ms=arguments.min_duration_ms,
            pattern=arguments.transactional_id_pattern,
        )

    def __post_init__(self) -> None:
        if unknown := set(self.states) - STATES:
            raise UsageError(f"No such state: {', '.join(sorted(unknown))}.", do=f"Use {', '.join(sorted(STATES))}.")
        try:
            object.__setattr__(self, "_regex", re.compile(self.pattern or ""))
        except re.error as exc:
            raise UsageError(f"{self.pattern!r} is not a regular expression: {exc}.") from None

    def request(self) -> Any:
        """ListTransactions; fields that the broker's version lacks are dropped on encoding."""
        return messages.ListTransactions(
            state_filters=sorted(self.states),
            producer_id_filters=sorted(self.producer_ids),
            duration_filter=-1 if self.min_duration_ms is None else self.min_duration_ms,
            transactional_id_pattern=self.pattern,
        )

    def matching(self, listed: Sequence[Any], *, version: int) -> Sequence[Any]:
        """The listed ids that match filters which brokers of `version` lack."""
        if self.min_duration_ms is not None:
            listed = [item for item in listed if item.transaction_state in OPEN_STATES]
        if self.pattern is not None and version < 2:
            listed = [item for item in listed if self._regex.fullmatch(item.transactional_id)]
        return listed

    def match_duration(self, row: Row, *, version: int) -> bool:
        """Whether a described id matches the duration, which brokers before 3.8 do not filter by."""
        return bool(row["error"]) or version >= 1 or self._is_long(row)

    def match(self, row: Row) -> bool:
        """Whether a row that no broker has filtered matches."""
        return (
            (not self.states or row["state"] in self.states)
            and (not self.producer_ids or row["producer_id"] in self.producer_ids)
            and (self.pattern is None or bool(self._regex.fullmatch(row["transactional_id"])))
            and self._is_long(row)
        )

    def _is_long(self, row: Row) -> bool:
        if self.min_duration_ms is None:
            return True
        start = row["start_time"]
        return start is not None and row["observed_at"] - start > dt.timedelta(milliseconds=self.min_duration_ms)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """The brokers' ListTransactions responses.

    Parameters
    ----------
    listed
        Newest response and matching ids of each broker, as messages: there may be a million.
    coordinator_topic
        The topic that ids hash to.
    failures
        A row without id for each broker that failed.
    versions
        Broker id to its version of ListTransactions.
    """

    listed: Collection[tuple[BrokerResponse, Mapping[str, Any]]]
    coordinator_topic: CoordinatorTopic
    failures: list[Row]
    versions: Mapping[int, int]

    @property
    def ids(self) -> Iterator[tuple[str, int]]:
        """Each id with the broker that listed it."""
        return ((name, response.broker_id or 0) for response, ids in self.listed for name in ids)

    def rows(self, is_selected: Callable[[int, str], bool] = lambda producer_id, state: True) -> list[Row]:
        """Rows of ``schema.TRANSACTIONS`` with the fields of ListTransactions: id, producer id, state, coordinator.

        Parameters
        ----------
        is_selected
            Takes a producer id, which may be -1, and a state.
        """
        return [
            {
                **UNKNOWN,
                **_response_fields(response),
                "transactional_id": each.transactional_id,
                "producer_id": _non_negative(each.producer_id),
                "state": each.transaction_state,
                "txn_state_partition": self.coordinator_topic.partition(each.transactional_id),
                "source": "ListTransactions",
            }
            for response, ids in self.listed
            for each in ids.values()
            if is_selected(each.producer_id, each.transaction_state)
        ]


def list_ids(
    client: BrokerClient, brokers: Iterable[int], coordinator_topic: CoordinatorTopic, *filters: TransactionFilters
) -> TransactionListing:
    """List the ids that each broker coordinates and that match one of the filters."""
    requests = [(broker_id, each) for broker_id in brokers for each in filters]
    responses = client.send([(broker_id, each.request()) for broker_id, each in requests])
    listings: dict[int, tuple[BrokerResponse, dict[str, Any]]] = {}
    failures: dict[int, Row] = {}
    versions: dict[int, int] = {}
    for (broker_id, each), response in zip(requests, responses, strict=True):
        message = response.message
        if response.error or message.error_code:
            error = response.error_text or error_text(message.error_code)
            failures[broker_id] = {
                **UNKNOWN,
                **_response_fields(response),
                "source": "ListTransactions",
                "error": error,
            }
            continue
        versions[broker_id] = message.API_VERSION
        earlier = listings[broker_id][1] if broker_id in listings else {}
        listed = each.matching(message.transaction_states, version=message.API_VERSION)
        listings[broker_id] = response, earlier | {state.transactional_id: state for state in listed}
    return TransactionListing(listings.values(), coordinator_topic, list(failures.values()), versions)


def _non_negative(number: int) -> int | None:
    """The number, null for Kafka's -1."""
    return number if number >= 0 else None


def _response_fields(response: BrokerResponse) -> Row:
    return {"coordinator_id": response.broker_id, "broker_id": response.broker_id, "observed_at": response.observed_at}


def describe(client: BrokerClient, rows: Sequence[Row]) -> list[Row]:
    """Rows of ids with the fields of DescribeTransactions, from each row's coordinator.

    An id that its coordinator does not have (any more) is ``Dead``. If the coordinator has moved, the request is
    retried once. An id that cannot be described keeps its fields, with `error`.
    """
    described = _describe(client, rows)
    moved = [row for row in described if row["error"] and row["error"].startswith("NOT_COORDINATOR")]
    if not moved:
        return described
    coordinators = find_coordinators(client, [row["transactional_id"] for row in moved], TRANSACTION)
    retried = {
        row["transactional_id"]: {**row, "coordinator_id": coordinator.node_id}
        for row, (_, coordinator) in zip(moved, coordinators, strict=True)
        if coordinator is not None and coordinator.error_code == 0
    }
    return [row for row in described if row["transactional_id"] not in retried] + _describe(
        client, list(retried.values())
    )


def describe_ids(client: BrokerClient, ids: Sequence[str], coordinator_topic: CoordinatorTopic) -> list[Row]:
    """Rows of named ids; one that does not exist has `error`."""
    rows: list[Row] = []
    for transactional_id, (response, coordinator) in zip(ids, find_coordinators(client, ids, TRANSACTION), strict=True):
        row = {
            **UNKNOWN,
            "transactional_id": transactional_id,
            "txn_state_partition": coordinator_topic.partition(transactional_id),
            "source": "DescribeTransactions",
            "broker_id": response.broker_id,
            "observed_at": response.observed_at,
        }
        if coordinator is None:
            rows.append({**row, "error": response.error_text})
        elif coordinator.error_code:
            rows.append({**row, "error": error_text(coordinator.error_code, coordinator.error_message)})
        else:
            rows.append({**row, "coordinator_id": coordinator.node_id})
    described = describe(client, [row for row in rows if not row["error"]])
    return [row for row in rows if row["error"]] + [_or_no_such_id(row) for row in described]


def _or_no_such_id(row: Row) -> Row:
    if row["state"] != "Dead" or row["producer_id"] is not None:
        return row
    error = "TRANSACTIONAL_ID_NOT_FOUND: its coordinator has no such id; it never existed or has expired"
    return {**row, "state": None, "error": error}


def _describe(client: BrokerClient, rows: Sequence[Row]) -> list[Row]:
    by_coordinator: dict[int, list[Row]] = {}
    for row in rows:
        by_coordinator.setdefault(row["coordinator_id"], []).append(row)
    batches = [
        (coordinator, group[start : start + IDS_PER_REQUEST])
        for coordinator, group in by_coordinator.items()
        for start in range(0, len(group), IDS_PER_REQUEST)
    ]
    responses = client.send(
        [
            (coordinator, messages.DescribeTransactions(transactional_ids=[row["transactional_id"] for row in batch]))
            for coordinator, batch in batches
        ]
    )
    described: list[Row] = []
    for (_, batch), response in zip(batches, responses, strict=True):
        if response.error:
            failed = {
                "error": response.error_text,
                "observed_at": response.observed_at,
                "broker_id": response.broker_id,
            }
            described += [{**row, **failed} for row in batch]
            continue
        states = {state.transactional_id: state for state in response.message.transaction_states}
        described += [_described(row, states[row["transactional_id"]], response) for row in batch]
    return described


def _described(row: Row, state: Any, response: BrokerResponse) -> Row:
    described = {**row, **_response_fields(response), "source": "DescribeTransactions"}
    if error_name(state.error_code) == "TRANSACTIONAL_ID_NOT_FOUND":
        return {**described, "state": "Dead"}
    if state.error_code:
        return {**described, "error": error_text(state.error_code)}
    return {
        **described,
        "producer_id": _non_negative(state.producer_id),
        "producer_epoch": _non_negative(state.producer_epoch),
        "state": state.transaction_state,
        "timeout_ms": state.transaction_timeout_ms,
        # Without an open transaction, brokers return the start of the last one.
        "start_time": utc(state.transaction_start_time_ms) if state.transaction_state in OPEN_STATES else None,
        "topic_partitions": [
            {"topic": topic.topic, "partition": number} for topic in state.topics for number in topic.partitions
        ],
        "error": None,
    }
