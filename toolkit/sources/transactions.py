"""What the coordinators say of transactional ids (ListTransactions, DescribeTransactions)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.analysis.states import OPEN_STATES
from toolkit.errors import UsageError
from toolkit.schema import Row, utc
from toolkit.sources import wire as kafka
from toolkit.sources.coordinators import TRANSACTION, Places, find_coordinators
from toolkit.sources.wire import Answer, Wire, error_name, error_text

__all__ = ["STATES", "TOO_OLD", "Filters", "Listing", "describe", "describe_ids", "list_ids"]

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
class Filters:
    """Which ids are meant; brokers filter where their version can, and what they cannot is done here.

    Parameters
    ----------
    states
        Kafka's names of states.
    producer_ids
        Producer ids.
    min_duration_ms
        Only transactions that are open, and for longer than this. Brokers also count the start of the last
        transaction of an id that has none open (DOMAIN.md P5); here such an id never matches.
    pattern
        Regular expression that matches the whole id.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    min_duration_ms: int | None = None
    pattern: str | None = None
    _regex: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if strange := set(self.states) - STATES:
            raise UsageError(f"No such state: {', '.join(sorted(strange))}.", do=f"One of {', '.join(sorted(STATES))}.")
        try:
            object.__setattr__(self, "_regex", re.compile(self.pattern or ""))
        except re.error as exc:
            raise UsageError(f"{self.pattern!r} is no regular expression: {exc}.") from None

    def request(self) -> Any:
        """ListTransactions; a field that a broker's version lacks is left out on the way."""
        return kafka.ListTransactions(
            state_filters=sorted(self.states),
            producer_id_filters=sorted(self.producer_ids),
            duration_filter=-1 if self.min_duration_ms is None else self.min_duration_ms,
            transactional_id_pattern=self.pattern,
        )

    def lists(self, listed: Any, *, version: int) -> bool:
        """Whether an id that a broker listed is meant."""
        if self.min_duration_ms is not None and listed.transaction_state not in OPEN_STATES:
            return False
        return version >= 2 or self.pattern is None or bool(self._regex.fullmatch(listed.transactional_id))

    def describes(self, row: Row, *, version: int) -> bool:
        """Whether a described id is still meant: brokers before 3.8 cannot tell the duration."""
        return bool(row["error"]) or version >= 1 or self._is_long(row)

    def match(self, row: Row) -> bool:
        """Whether a row that no broker has filtered is meant."""
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
class Listing:
    """What the brokers listed.

    Parameters
    ----------
    listed
        Of each broker that did, its answer and the ids that are meant, as messages: there may be a million.
    places
        The topic that they hash to.
    failures
        Rows without id, for each broker that did not list.
    versions
        Version of ListTransactions by broker that did.
    """

    listed: Sequence[tuple[Answer, Sequence[Any]]]
    places: Places
    failures: list[Row]
    versions: Mapping[int, int]

    @property
    def count(self) -> int:
        """How many ids were listed."""
        return sum(len(ids) for _, ids in self.listed)

    @property
    def ids(self) -> Iterator[tuple[str, int]]:
        """Each id with the broker that listed it."""
        return ((each.transactional_id, answer.broker_id or 0) for answer, ids in self.listed for each in ids)

    def rows(self, is_wanted: Callable[[int | None, str], bool] = lambda producer_id, state: True) -> list[Row]:
        """Rows of ``schema.TRANSACTIONS`` with what ListTransactions knows: id, producer id, state, coordinator.

        Parameters
        ----------
        is_wanted
            Of a producer id and a state, whether the row is.
        """
        return [
            {
                **UNKNOWN,
                **_answered(answer),
                "transactional_id": each.transactional_id,
                "producer_id": _known(each.producer_id),
                "state": each.transaction_state,
                "txn_state_partition": self.places.partition(each.transactional_id),
                "source": "ListTransactions",
            }
            for answer, ids in self.listed
            for each in ids
            if is_wanted(_known(each.producer_id), each.transaction_state)
        ]


def list_ids(wire: Wire, brokers: Iterable[int], places: Places, filters: Filters) -> Listing:
    """Ask every broker for the ids that it coordinates."""
    answers = wire.send([(broker_id, filters.request()) for broker_id in brokers])
    found: list[tuple[Answer, Sequence[Any]]] = []
    failures: list[Row] = []
    versions: dict[int, int] = {}
    for answer in answers:
        message = answer.message
        if answer.error or message.error_code:
            error = answer.error_text or error_text(message.error_code)
            failures.append({**UNKNOWN, **_answered(answer), "source": "ListTransactions", "error": error})
            continue
        versions[answer.broker_id or 0] = message.API_VERSION
        version = message.API_VERSION
        found.append((answer, [each for each in message.transaction_states if filters.lists(each, version=version)]))
    return Listing(found, places, failures, versions)


def _known(number: int) -> int | None:
    """Null for Kafka's -1."""
    return number if number >= 0 else None


def _answered(answer: Answer) -> Row:
    return {"coordinator_id": answer.broker_id, "broker_id": answer.broker_id, "observed_at": answer.observed_at}


def describe(wire: Wire, rows: Sequence[Row]) -> list[Row]:
    """Rows of ids with what DescribeTransactions adds, asked of the coordinator that each row names.

    An id that its coordinator does not know (any more) is ``Dead``: that is an answer. Where the coordinator has
    moved it is looked up and asked once more. An id that cannot be described keeps what was known of it, with `error`.
    """
    described = _describe(wire, rows)
    moved = [row for row in described if row["error"] and row["error"].startswith("NOT_COORDINATOR")]
    if not moved:
        return described
    found = find_coordinators(wire, [row["transactional_id"] for row in moved], TRANSACTION)
    again = {
        row["transactional_id"]: {**row, "coordinator_id": one.node_id}
        for row, (_, one) in zip(moved, found, strict=True)
        if one is not None and one.error_code == 0
    }
    kept = [row for row in described if row["transactional_id"] not in again]
    return kept + _describe(wire, list(again.values()))


def describe_ids(wire: Wire, ids: Sequence[str], places: Places) -> list[Row]:
    """Rows of ids that were asked for by name; one that does not exist has `error`."""
    rows: list[Row] = []
    for transactional_id, (answer, found) in zip(ids, find_coordinators(wire, ids, TRANSACTION), strict=True):
        known = {
            **UNKNOWN,
            "transactional_id": transactional_id,
            "txn_state_partition": places.partition(transactional_id),
            "source": "DescribeTransactions",
            "broker_id": answer.broker_id,
            "observed_at": answer.observed_at,
        }
        if found is None or found.error_code:
            error = answer.error_text if found is None else error_text(found.error_code, found.error_message)
            rows.append({**known, "error": error})
        else:
            rows.append({**known, "coordinator_id": found.node_id})
    described = describe(wire, [row for row in rows if not row["error"]])
    return [row for row in rows if row["error"]] + [_or_no_such_id(row) for row in described]


def _or_no_such_id(row: Row) -> Row:
    if row["state"] != "Dead" or row["producer_id"] is not None:
        return row
    error = "TRANSACTIONAL_ID_NOT_FOUND: its coordinator has no such id; it never was, or it has expired"
    return {**row, "state": None, "error": error}


def _describe(wire: Wire, rows: Sequence[Row]) -> list[Row]:
    by_coordinator: dict[int, list[Row]] = {}
    for row in rows:
        by_coordinator.setdefault(row["coordinator_id"], []).append(row)
    batches = [
        (coordinator, known[start : start + IDS_PER_REQUEST])
        for coordinator, known in by_coordinator.items()
        for start in range(0, len(known), IDS_PER_REQUEST)
    ]
    answers = wire.send(
        [
            (coordinator, kafka.DescribeTransactions(transactional_ids=[row["transactional_id"] for row in batch]))
            for coordinator, batch in batches
        ]
    )
    described: list[Row] = []
    for (_, batch), answer in zip(batches, answers, strict=True):
        if answer.error:
            failed = {"error": answer.error_text, "observed_at": answer.observed_at, "broker_id": answer.broker_id}
            described += [{**row, **failed} for row in batch]
            continue
        states = {state.transactional_id: state for state in answer.message.transaction_states}
        described += [_described(row, states[row["transactional_id"]], answer) for row in batch]
    return described


def _described(row: Row, state: Any, answer: Answer) -> Row:
    answered = {**row, **_answered(answer), "source": "DescribeTransactions"}
    if error_name(state.error_code) == "TRANSACTIONAL_ID_NOT_FOUND":
        return {**answered, "state": "Dead"}
    if state.error_code:
        return {**answered, "error": error_text(state.error_code)}
    return {
        **answered,
        "producer_id": _known(state.producer_id),
        "producer_epoch": _known(state.producer_epoch),
        "state": state.transaction_state,
        "timeout_ms": state.transaction_timeout_ms,
        # Brokers go on naming the start of the last transaction when none is open.
        "start_time": utc(state.transaction_start_time_ms) if state.transaction_state in OPEN_STATES else None,
        "topic_partitions": [
            {"topic": topic.topic, "partition": number} for topic in state.topics for number in topic.partitions
        ],
        "error": None,
    }
