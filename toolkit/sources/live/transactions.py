"""Transactional ids from their coordinators (ListTransactions, DescribeTransactions), and from their log.

A complete read of ``__transaction_state`` replaces the coordinators' responses. It also has the time of the last state
change, which no request returns.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.observation import UNKNOWN_TIME, BrokersTime
from toolkit.analysis.transaction_owners import FLINK_SINK, OPEN_STATES
from toolkit.errors import BrokerError, DecodeError, ToolkitError, UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC, read_transaction_key, read_transaction_value
from toolkit.schema import utc
from toolkit.schema.live import Partition, Transaction
from toolkit.schema.table import Error, TopicPartition, utc_now
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, BrokerResponse
from toolkit.sources.live.coordinators import (
    LISTED,
    TRANSACTIONAL_IDS,
    CoordinatorTopic,
    describe,
    describe_named,
    is_too_old,
    loading_coordinators,
    non_negative,
    visibility_of,
)
from toolkit.sources.live.leaders import (
    TRANSIENT,
    WAIT_MS,
    FetchedBatches,
    FetchPosition,
    Leaders,
    fetch,
    read_brokers_time,
    read_metadata,
    read_partitions,
    split_error,
)
from toolkit.sources.source import TableArguments

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from toolkit.config import ClientConfig


MAX_POLL_RECORDS = 1_000
POLL_S = 0.2
STATE_FETCH_BYTES = 1 << 20  # of each partition
PAUSE_S = 0.2  # before a leader that has moved is looked up again
NewestRecords = dict[bytes, tuple[int, bytes | None]]  # key to partition and value; null is a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLog:
    """The newest record of every transactional id."""

    transactions: list[Transaction]  # the state of each id
    failures: list[Transaction]  # a record without id for each partition that could not be read to its end
    partitions: int  # number of partitions read completely

    @property
    def is_complete(self) -> bool:
        """Whether no partition is missing, so that an id without a record does not exist."""
        return self.partitions > 0 and not self.failures

    @property
    def newest_time(self) -> dt.datetime | None:
        """The newest time of a state by its coordinator's clock; null if there is none."""
        times = (each.last_update_time for each in self.transactions)
        return max((time for time in times if time is not None), default=None)


def read_state_log(
    client: BrokerClient, coordinator_topic: CoordinatorTopic, *, only: Collection[int] | None = None, timeout: float
) -> TransactionLog:
    """Read the topic from its start to its current end.

    `only`: partitions to read; null for all.
    `timeout`: seconds; a partition not read to its end by then is a failure.
    """
    deadline = time.monotonic() + timeout
    if coordinator_topic.hidden:
        return TransactionLog(transactions=[], failures=[_failure(None, coordinator_topic.hidden)], partitions=0)
    leaders = {
        tp: each for tp, each in coordinator_topic.metadata.partitions.items() if only is None or tp.partition in only
    }
    partitions = {each.partition: each for each in read_partitions(client, leaders)}
    errors = {number: each.error for number, each in partitions.items() if each.error}
    # To the log end, not the high watermark, which can lag behind right after an election.
    ranges = {
        number: (each.log_start_offset or 0, each.log_end_offset or each.high_watermark or 0)
        for number, each in partitions.items()
        if not each.error
    }
    newest = _newest_records(
        client, leaders, {n: each for n, each in ranges.items() if each[0] < each[1]}, errors, deadline
    )
    transactions = list(_transactions(newest, partitions, errors))
    failures = [_failure(partitions[number], error) for number, error in sorted(errors.items())]
    return TransactionLog(transactions=transactions, failures=failures, partitions=len(partitions) - len(failures))


def _newest_records(
    client: BrokerClient,
    leaders: Leaders,
    ranges: Mapping[int, tuple[int, int]],
    errors: dict[int, str],
    deadline: float,
) -> NewestRecords:
    """The newest value by key; failed and unfinished partitions are added to `errors`."""
    newest: NewestRecords = {}
    reached = {number: start for number, (start, _) in ranges.items()}
    while reached and time.monotonic() < deadline:
        positions = [FetchPosition.of(leaders[TopicPartition(STATE_TOPIC, each)], at) for each, at in reached.items()]
        fetched = fetch(client, positions, max_bytes=STATE_FETCH_BYTES, max_wait_ms=WAIT_MS)
        moved = False
        for position, found in zip(positions, fetched, strict=True):
            number = position.tp.partition
            if found.error and Error.of(found.error).code in TRANSIENT:
                moved = True
                continue
            try:
                reached[number] = _add(newest, number, found) or position.offset
            except DecodeError as exc:
                found = replace(found, error=f"CORRUPT_MESSAGE: {exc}")
            if found.error:
                errors[number] = found.error
            elif max(reached[number], 0 if found.records else found.high_watermark or 0) < ranges[number][1]:
                continue
            del reached[number]  # read to its end, or only compacted offsets follow
        if moved:
            threading.Event().wait(PAUSE_S)
            leaders = _leaders_again(client, leaders)
    errors.update(dict.fromkeys(reached, "REQUEST_TIMED_OUT: the partition was not read to its end in time"))
    return newest


def _leaders_again(client: BrokerClient, leaders: Leaders) -> Leaders:
    try:
        return read_metadata(client, [STATE_TOPIC]).at(leaders)
    except ToolkitError:  # no broker responds yet
        return leaders


def _add(newest: NewestRecords, number: int, found: FetchedBatches) -> int | None:
    """Add the records of a response, and return the offset after its last batch; null if it has none."""
    from toolkit.formats.coordinator_log_rows import keys_and_values  # imports numpy
    from toolkit.formats.scan import scan

    if not found.records:
        return None
    scanned = scan(found.records, crc=True, last=False)
    if scanned.damage or not len(scanned.headers) or not scanned.headers["crc_ok"].all():
        why = scanned.damage[0].reason if scanned.damage else "a batch is incomplete, or its checksum is wrong"
        raise DecodeError(why, position=scanned.damage[0].position if scanned.damage else 0)
    for key, value in keys_and_values(found.records, scanned.headers):
        newest[key or b""] = (number, value)
    return int(scanned.headers["last_offset"][-1]) + 1


def _consumer(config: ClientConfig) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        **config.librdkafka(),
        "group.id": "kafka-txn-toolkit",  # librdkafka requires one; the group is not joined, nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",  # if retention deletes the start meanwhile
        "error_cb": lambda _: None,  # failed brokers show as records that did not arrive
        "log_level": 0,
    }
    try:
        return Consumer(settings)
    except KafkaException as exc:  # its wheels have no Kerberos, and it knows fewer TLS settings than Java
        text = config.scrub(exc.args[0].str())
        raise BrokerError(
            f"No read_committed consumer of librdkafka starts with this configuration: {text}.",
            code="NONE",
            do="Read the partition with a consumer of your own.",
        ) from None


def _transactions(
    newest: NewestRecords, partitions: Mapping[int, Partition], errors: dict[int, str]
) -> Iterator[Transaction]:
    for key, (number, value) in newest.items():
        try:
            transactional_id = read_transaction_key(key)
            state = None if value is None else read_transaction_value(value)
        except DecodeError as exc:
            errors[number] = f"CORRUPT_MESSAGE: {exc}"
            continue
        if transactional_id is None or state is None:
            continue
        partition = partitions[number]
        yield Transaction(
            transactional_id=transactional_id,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            state=state.state,
            timeout_ms=state.timeout_ms,
            start_time=utc(state.start_timestamp_ms) if state.state in OPEN_STATES else None,
            last_update_time=utc(state.last_update_timestamp_ms),
            topic_partitions=tuple(TopicPartition(*each) for each in state.topic_partitions),
            coordinator_id=partition.leader,
            txn_state_partition=number,
            source=STATE_TOPIC,
            broker_id=partition.leader,
            observed_at=partition.observed_at,
        )


def _failure(partition: Partition | None, error: str) -> Transaction:
    return Transaction(
        txn_state_partition=None if partition is None else partition.partition,
        coordinator_id=None if partition is None else partition.leader,
        broker_id=None if partition is None else partition.leader,
        source=STATE_TOPIC,
        observed_at=utc_now(),
        error=error,
    )


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """Offsets of the records that were received, and the offset up to which the range was read."""

    offsets: Sequence[int]
    reached: int


def read_committed(
    config: ClientConfig,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    timeout: float,
    check: Callable[[], None] = lambda: None,
) -> CommittedRead:
    """Offsets of the records that a read_committed consumer receives.

    `start`, `stop`: the range ``start <= offset < stop``.
    `timeout`: seconds; what was received by then is returned.
    `check`: called while it waits; what it raises ends the read.
    Raises BrokerError if the partition cannot be read, or librdkafka does not support the configuration.
    """
    from confluent_kafka import KafkaError
    from confluent_kafka import TopicPartition as ConsumedPartition

    consumer = _consumer(config)
    offsets: list[int] = []
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([ConsumedPartition(topic, partition, start)])
        while time.monotonic() < deadline:
            check()
            for message in consumer.consume(MAX_POLL_RECORDS, timeout=POLL_S):
                if message.topic() != topic:
                    continue  # a client-wide error, such as missing rights on the unused group
                error, offset = message.error(), message.offset() or 0
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    text = config.scrub(error.str())
                    raise BrokerError(
                        f"{topic}-{partition} cannot be read by a read_committed consumer: {text}.",
                        code=error.name().lstrip("_"),
                    )
                if offset >= stop:  # the LSO, or behind the range
                    return CommittedRead(offsets, stop)
                if error is not None:
                    continue  # a new leader may not have the LSO yet that the one before had
                offsets.append(offset)
                if offset == stop - 1:
                    return CommittedRead(offsets, stop)
    finally:
        consumer.close()
    return CommittedRead(offsets, offsets[-1] + 1 if offsets else start)


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
            raise UsageError(
                f"{self.pattern!r} is not a regular expression: {exc}.", do="Put a backslash before . ( [ * + and ?."
            ) from None

    def request(self) -> Any:
        """ListTransactions; fields that the broker's version lacks are dropped on encoding."""
        return broker_client.ListTransactions(
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

    def selected(self, is_selected: Callable[[int, str], bool] = lambda producer_id, state: True) -> list[Transaction]:
        """Some of the ids. `is_selected`: takes a producer id, which may be -1, and a state."""
        return [
            Transaction(
                transactional_id=each.transactional_id,
                producer_id=non_negative(each.producer_id),
                state=each.transaction_state,
                coordinator_id=response.broker_id,
                txn_state_partition=self.coordinator_topic.partition(each.transactional_id),
                source=LISTED,
                broker_id=response.broker_id,
                observed_at=response.observed_at,
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
    ``__transaction_state`` has no leader or is not loaded, or this principal may not see them (Kafka omits those
    without an error). The coordinators' log is read for ids that brokers do not list.
    """
    listing, unlisted = _list_all(client, filters)
    coordinator_topic = listing.coordinator_topic
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
    return [*found, *listing.failures, *hidden, *unfiltered, *unlisted]


def _list_all(client: BrokerClient, filters: TransactionFilters) -> tuple[TransactionListing, list[Transaction]]:
    """What all brokers list, and a record for each reason why ids may be missing or old, except for those it has."""
    coordinator_topic = CoordinatorTopic.read(client, STATE_TOPIC)
    unloaded = loading_coordinators(client, coordinator_topic)  # of a partition that does not move, it stays loaded
    listing = list_ids(client, sorted(client.brokers), coordinator_topic, filters)
    unlisted = [*_unled_partitions(coordinator_topic), *_moved_partitions(client, coordinator_topic)]
    failed = {each.broker_id for each in listing.failures}  # which have a record of their own
    unlisted += [
        _missing(f"{each.code}: ids may be missing: {each.text}") for each in unloaded if each.broker_id not in failed
    ]
    if split := split_error(client):
        unlisted.append(_missing(split))
    return listing, unlisted


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


def _moved_partitions(client: BrokerClient, coordinator_topic: CoordinatorTopic) -> Iterator[Transaction]:
    """A record for each partition that has moved since: its ids may be in no list, of the old or the new coordinator.

    `coordinator_topic`: before they were listed.
    """
    for number in coordinator_topic.moved_until(CoordinatorTopic.read(client, STATE_TOPIC)):
        why = f"leadership of {STATE_TOPIC}-{number} moved while ids were listed: some may be missing"
        yield replace(_missing(f"NOT_COORDINATOR: {why}"), txn_state_partition=number)


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
    """Every id of the prefixes of some ids of Flink's form, by name only; none unless all brokers list all their ids.

    `among`: the ids whose prefixes are listed; those of another form are left out.
    """
    prefixes = sorted({found["prefix"] for each in among if each and (found := FLINK_SINK.fullmatch(each))})
    if not prefixes:
        return []
    names = "|".join(map(re.escape, prefixes[:MAX_PREFIXES]))
    numbered = TransactionFilters(pattern=rf"(?:{names})-\d+-\d+")
    listing, unlisted = _list_all(client, numbered)
    if listing.failures or unlisted or visibility_of(TRANSACTIONAL_IDS, client, sorted(client.brokers)).gaps:
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
    split = split_error(client)
    return [replace(each, error=split or each.error) for each in found.values()]
