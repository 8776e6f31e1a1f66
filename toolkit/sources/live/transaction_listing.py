"""Transactional ids from their coordinators (ListTransactions, DescribeTransactions), and from their log."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.analysis.coordinator.transaction_owners import FLINK_SINK, OPEN_STATES
from toolkit.analysis.diagnosis.observation import UNKNOWN_TIME, BrokersTime
from toolkit.errors import BrokerError, UsageError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Transaction
from toolkit.schema.table import Error, utc_now
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse
from toolkit.sources.live.logs.transaction_log import read_state_log
from toolkit.sources.live.state.authorization import TRANSACTIONAL_IDS, visibility_of
from toolkit.sources.live.state.brokers_time import read_brokers_time
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.transaction_descriptions import (
    LISTED,
    KnownId,
    describe,
    describe_named,
    is_too_old,
    non_negative,
)
from toolkit.sources.source_table import TableArguments

STATES = OPEN_STATES | {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}
MAX_PREFIXES = 100  # in one pattern of ListTransactions


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilters:
    """Filters of ListTransactions; those that a broker's version lacks are applied here."""

    states: Collection[str] = ()  # Kafka's state names
    producer_ids: Collection[int] = ()
    # only transactions open for longer than this. Brokers also apply it to the last transaction of an id without an
    # open one; here such an id never matches
    min_duration_ms: int | None = None
    pattern: str | None = None  # regular expression that must match the complete id
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

    def match_duration(self, txn: Transaction, now: BrokersTime, *, version: int) -> bool:
        """Whether a described id matches the duration, which brokers before 3.8 do not filter by."""
        return bool(txn.error) or version >= 1 or self._may_be_long(txn, now)

    def match(self, txn: Transaction, now: BrokersTime) -> bool:
        """Whether an id that no broker has filtered matches."""
        return (
            (not self.states or txn.state in self.states)
            and (not self.producer_ids or txn.producer_id in self.producer_ids)
            and (self.pattern is None or bool(self._regex.fullmatch(txn.transactional_id or "")))
            and self._may_be_long(txn, now)
        )

    def _may_be_long(self, txn: Transaction, now: BrokersTime) -> bool:
        """Whether an id is open for longer than the duration, or nothing rules it out."""
        if self.min_duration_ms is None:
            return True
        if txn.start_time is None:
            return False
        if now.time is None or not now.is_current:
            return True
        return now.time - txn.start_time > dt.timedelta(milliseconds=self.min_duration_ms)

    def unfiltered(self, now: BrokersTime) -> list[Transaction]:
        """A record without id that says why ids are not filtered by the duration, if that is so."""
        if self.min_duration_ms is None or now.is_current:
            return []
        why = f"the brokers' time is {now.text}"
        return [_missing(f"UNKNOWN_DURATION: ids of a shorter duration may be listed, too: {why}")]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """The brokers' ListTransactions responses."""

    # newest response and matching ids of each broker, as messages: there may be a million
    listed: Collection[tuple[BrokerResponse, Mapping[str, Any]]]
    coordinator_topic: CoordinatorTopic  # the topic that ids hash to
    failures: list[Transaction]  # a record without id for each broker that failed
    versions: Mapping[int, int]  # broker id to its version of ListTransactions

    @property
    def ids(self) -> Iterator[tuple[str, int]]:
        """Each id with the broker that listed it."""
        return ((name, response.broker_id or 0) for response, ids in self.listed for name in ids)

    def selected(self, is_selected: Callable[[int, str], bool] = lambda producer_id, state: True) -> list[KnownId]:
        """Some of the ids. `is_selected`: takes a producer id, which may be -1, and a state."""
        return [
            KnownId(
                transactional_id=each.transactional_id,
                coordinator_id=response.broker_id,
                txn_state_partition=self.coordinator_topic.partition(each.transactional_id),
                broker_id=response.broker_id,
                observed_at=response.observed_at,
                producer_id=non_negative(each.producer_id),
                state=each.transaction_state,
            )
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
    failures: dict[int, Transaction] = {}
    versions: dict[int, int] = {}
    for (broker_id, each), response in zip(requests, responses, strict=True):
        if response.failure:
            failures[broker_id] = Transaction(
                coordinator_id=response.broker_id,
                source=LISTED,
                broker_id=response.broker_id,
                observed_at=response.observed_at,
                error=response.failure,
            )
            continue
        message = response.message
        versions[broker_id] = message.API_VERSION
        earlier = listings[broker_id][1] if broker_id in listings else {}
        listed = each.matching(message.transaction_states, version=message.API_VERSION)
        listings[broker_id] = response, earlier | {state.transactional_id: state for state in listed}
    return TransactionListing(listings.values(), coordinator_topic, list(failures.values()), versions)


def filtered_transactions(client: BrokerClient, filters: TransactionFilters) -> list[Transaction]:
    """The transaction of every id that matches the filters.

    A record without id, with `error`, stands for ids that may exist and are not listed: a broker failed, a partition of
    ``__transaction_state`` has no leader, or this principal may not see them (Kafka omits those without an error). The
    coordinators' log is read for ids that brokers do not list.
    """
    coordinator_topic = CoordinatorTopic.read(client, STATE_TOPIC)
    listing = list_ids(client, sorted(client.brokers), coordinator_topic, filters)
    described_ids = describe(client, listing.selected())
    now = UNKNOWN_TIME if filters.min_duration_ms is None else read_brokers_time(client, coordinator_topic.metadata)
    found = [
        txn
        for txn in described_ids
        if filters.match_duration(txn, now, version=listing.versions.get(txn.coordinator_id or 0, 0))
    ]
    too_old = any(map(is_too_old, listing.failures))
    hidden = list(_hidden_ids(client, listing, found, filters))
    by_us = any(txn.start_time and listing.versions.get(txn.coordinator_id or 0, 0) < 1 for txn in described_ids)
    if too_old or hidden:
        log = read_state_log(client, coordinator_topic, timeout=client.timeout)
        described = {txn.transactional_id for txn in found}
        now = now.or_of_log(log.newest_time, elapsed=dt.timedelta(0))
        of_log = [txn for txn in log.transactions if txn.transactional_id not in described and filters.match(txn, now)]
        found += of_log
        by_us |= any(txn.start_time for txn in of_log)
        if log.is_complete:
            hidden = []
        if too_old:
            found += log.failures
    unfiltered = filters.unfiltered(now) if by_us else []
    return [*found, *listing.failures, *hidden, *unfiltered, *_unled_partitions(coordinator_topic)]


def _hidden_ids(
    client: BrokerClient, listing: TransactionListing, found: Sequence[Transaction], filters: TransactionFilters
) -> Iterator[Transaction]:
    """A record for each missing proof that brokers omitted no id, unless each requested producer id has its owner."""
    owned = {txn.producer_id for txn in found}
    if not listing.versions or (filters.producer_ids and owned.issuperset(filters.producer_ids)):
        return
    for gap in visibility_of(TRANSACTIONAL_IDS, client, sorted(client.brokers)).gaps:
        yield _missing(f"TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ids may be hidden; missing: {gap}")


def _unled_partitions(coordinator_topic: CoordinatorTopic) -> Iterator[Transaction]:
    """A record for each partition of ``__transaction_state`` whose ids no broker lists."""
    if coordinator_topic.hidden:
        right = f"DESCRIBE on Topic '{STATE_TOPIC}', to see that each of its partitions has a leader"
        yield _missing(f"TOPIC_AUTHORIZATION_FAILED: ids may be missing; missing: {right}")
    for tp, each in sorted(coordinator_topic.metadata.partitions.items()):
        if each.leader is None:
            error = f"LEADER_NOT_AVAILABLE: {tp} has no leader, so no broker lists its ids"
            yield replace(_missing(error), txn_state_partition=tp.partition)


def _missing(error: str) -> Transaction:
    return Transaction(observed_at=utc_now(), source=LISTED, error=error)


def all_ids(client: BrokerClient) -> list[str]:
    """Every transactional id.

    Raises BrokerError if a broker does not list its ids, or this principal may not see all, and their log cannot be
    read.
    """
    found = filtered_transactions(client, TransactionFilters())
    for txn in found:
        if txn.transactional_id is None and txn.error and not is_too_old(txn):
            of = "" if txn.broker_id is None else f" of broker {txn.broker_id} ({txn.source})"
            raise BrokerError(f"The transactional ids{of} cannot be listed: {txn.error}", code=Error.of(txn.error).code)
    return list(dict.fromkeys(txn.transactional_id for txn in found if txn.transactional_id is not None))


def numbered_ids(client: BrokerClient, among: Collection[str | None]) -> list[str]:
    """Every id of the prefixes of some ids of Flink's form, by name only; none unless all brokers list their ids.

    `among`: the ids whose prefixes are listed; those of another form are left out.
    """
    prefixes = sorted({found["prefix"] for each in among if each and (found := FLINK_SINK.fullmatch(each))})
    if not prefixes:
        return []
    names = "|".join(map(re.escape, prefixes[:MAX_PREFIXES]))
    numbered = TransactionFilters(pattern=rf"(?:{names})-\d+-\d+")
    coordinator_topic = CoordinatorTopic.read(client, STATE_TOPIC)
    listing = list_ids(client, sorted(client.brokers), coordinator_topic, numbered)
    if listing.failures or any(_unled_partitions(coordinator_topic)):
        return []
    return [name for name, _ in listing.ids]


def named_transactions(client: BrokerClient, ids: Sequence[str]) -> list[Transaction]:
    """The transactions of exactly these ids; one that does not exist has `error`."""
    coordinator_topic = CoordinatorTopic.read(client, STATE_TOPIC)
    found = {txn.transactional_id or "": txn for txn in describe_named(client, coordinator_topic, ids)}
    undescribed = {name: txn for name, txn in found.items() if is_too_old(txn)}
    if undescribed:
        only = {txn.txn_state_partition for txn in undescribed.values() if txn.txn_state_partition is not None}
        log = read_state_log(client, coordinator_topic, only=only, timeout=client.timeout)
        found |= {txn.transactional_id or "": txn for txn in log.transactions if txn.transactional_id in undescribed}
    return list(found.values())
