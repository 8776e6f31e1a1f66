"""One observation of a cluster, its requests ordered so that responses bracket each other, and what a case needs more.

What reads logs imports numpy, and late: most diagnoses read none.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.observation import BrokersTime, Coverage, MonotonicSpan, Observation, is_held
from toolkit.analysis.exposure import Software, software_gaps, software_of
from toolkit.analysis.transaction_history import CoordinatorLog
from toolkit.analysis.transaction_owners import OPEN_STATES
from toolkit.errors import DecodeError, ToolkitError
from toolkit.formats.batches import read_header
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import utc
from toolkit.schema.live import Finding, Partition, Producer, Transaction
from toolkit.schema.recorded import FirstBatch
from toolkit.schema.table import EVERYTHING, Error, Selection, TopicPartition, TransactionKey, utc_now
from toolkit.sources.diagnose import EvidenceSource
from toolkit.sources.live.broker_client import BrokerClient, row_text
from toolkit.sources.live.coordinators import (
    TOPICS,
    TRANSACTIONAL_IDS,
    CoordinatorTopic,
    broker_identities,
    compacted_topics,
    describe,
    is_too_old,
    loading_coordinators,
    visibility_of,
)
from toolkit.sources.live.group_offsets import with_groups
from toolkit.sources.live.leaders import (
    COORDINATORS_TOPICS,
    LSO_COLUMNS,
    ClusterMetadata,
    FetchPosition,
    OffsetsQuery,
    PartitionLeader,
    ProducersQuery,
    fetch,
    is_missing,
    query_leaders,
    read_brokers_time,
    read_metadata,
    read_newest_metadata,
    read_producers,
)
from toolkit.sources.live.transactions import (
    TransactionFilters,
    TransactionListing,
    TransactionLog,
    list_ids,
    read_state_log,
)

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, ExcerptStart
    from toolkit.analysis.diagnosis.markers import MarkerSearch


OLD = dt.timedelta(seconds=60)  # an ending transaction older than this may be stuck
MAX_FIRST_BATCHES = 200  # a broker returns whole batches, which can be a megabyte
CREATED_AGAIN = "INCONSISTENT_TOPIC_ID: its topic was deleted and created again meanwhile"
CREATED = "NOT_OBSERVED: it was created after the partitions were listed"
STATE_TIMES_TIMEOUT_S = 10.0  # to read from the log when a state last changed


def observe(
    client: BrokerClient,
    leaders: Mapping[TopicPartition, PartitionLeader],
    *,
    selection: Selection,
    first_batches: int = 3,
    idle_producers: bool = True,
    clear_partitions: bool = True,
    every_broker: bool = False,
) -> Observation:
    """Observe partitions once.

    `client`: the connection to the brokers.
    `leaders`: the partitions to observe, and their leaders.
    `selection`: what they are meant to be; of everything, hidden topics are a gap.
    `first_batches`: open transactions per partition, lowest first, whose first batch is read.
    `idle_producers`: include producers without an open transaction, as for `read_producers`.
    `clear_partitions`: include partitions where nothing is open or held and that have no error; they are most of a
        large cluster.
    `every_broker`: ask all brokers for the leaders after the coordinators' answers, and not one.
    """
    began, read_again = time.monotonic(), read_newest_metadata if every_broker else read_metadata
    offsets = OffsetsQuery(client, LSO_COLUMNS, notable_only=not clear_partitions)
    of_producers = ProducersQuery(idle_producers=idle_producers)
    partitions, producers = query_leaders(client, leaders, offsets, of_producers)
    opened = [each for each in producers if each.current_txn_start_offset is not None]

    transactions, coverage, brokers_time = _query_coordinators(client, opened, selection, read_again)
    if selection == EVERYTHING:
        coverage = replace(coverage, topic_gaps=visibility_of(TOPICS, client, coverage.brokers).gaps)

    to_recheck = _partitions_to_recheck(partitions, producers, transactions, leaders)
    known = {each.tp for each in partitions}
    partitions += [offsets.partition(tp) for tp in to_recheck if tp not in known]
    producers_after: list[Producer] = []
    partitions_after: list[Partition] = []
    topic_ids: dict[str, str | None] = {}
    if to_recheck:
        fresh = read_again(client, {tp.topic for tp in to_recheck}).at(to_recheck)
        producers_after, partitions_after = query_leaders(client, fresh, of_producers, OffsetsQuery(client))
        topic_ids = {tp.topic: each.topic_id for tp, each in fresh.items()}
        again = {tp for tp, each in fresh.items() if each.topic_id not in {None, leaders[tp].topic_id or each.topic_id}}
        partitions_after = [
            replace(each, error=CREATED_AGAIN) if each.tp in again else each for each in partitions_after
        ]
    observation = Observation(
        partitions=partitions,
        producers=producers,
        transactions=transactions,
        partitions_after=partitions_after,
        producers_after=producers_after,
        coverage=coverage,
        selection=selection,
        observed_at=utc_now(),
        brokers_time=brokers_time,
        monotonic=MonotonicSpan(began, time.monotonic()),
        first_batches=_first_batches(client, producers_after, per_partition=first_batches),
        topic_ids=topic_ids,
    )
    return replace(observation, absent=_absent(client, observation))


def _absent(client: BrokerClient, observation: Observation) -> dict[TopicPartition, str | None]:
    """`Observation.absent`, by the broker whose coordinator names the partition: it knew the topic when it was added.

    Such a partition was created meanwhile, deleted, or is hidden from this principal.
    """
    named = {
        tp: each.broker_id
        for each in observation.transactions
        if each.state in OPEN_STATES
        for tp in each.topic_partitions or ()
    }
    unseen, found = observation.unseen, dict[TopicPartition, str | None]()
    for broker_id in {named[tp] for tp in unseen}:
        of_broker = [tp for tp in unseen if named[tp] == broker_id]
        try:
            leaders = read_metadata(client, {tp.topic for tp in of_broker}, broker_id=broker_id).at(of_broker)
        except ToolkitError as error:
            found.update(dict.fromkeys(of_broker, row_text(error)))
        else:
            found |= {tp: None if is_missing(each.error) else each.error or CREATED for tp, each in leaders.items()}
    return found


def _query_coordinators(
    client: BrokerClient,
    opened: Sequence[Producer],
    selection: Selection,
    read_again: Callable[[BrokerClient, Collection[str]], ClusterMetadata],
) -> tuple[list[Transaction], Coverage, BrokersTime]:
    """The coordinators' responses, whether they are complete, and the brokers' time before them."""
    topics = read_metadata(client, COORDINATORS_TOPICS)
    before = CoordinatorTopic.of(STATE_TOPIC, topics)
    began, brokers_time = time.monotonic(), read_brokers_time(client, topics)
    brokers = sorted(client.brokers)
    unloaded = loading_coordinators(client, before) if opened else []
    open_ids = {each.producer_id for each in opened if each.producer_id is not None}
    filters = [
        TransactionFilters(states=OPEN_STATES),
        *([TransactionFilters(producer_ids=open_ids)] if open_ids else []),
    ]
    listing = list_ids(client, brokers, before, *filters)
    # Filtered here too: not every Kafka-compatible broker applies the filters.
    selected = listing.selected(lambda producer_id, state: producer_id in open_ids or state in OPEN_STATES)
    transactions = describe(client, selected)

    # Gaps that reading the coordinators' log closes, and gaps that it cannot close.
    closable = [_unanswered(each) for each in listing.failures if is_too_old(each)]
    gaps = [_unanswered(each) for each in listing.failures if not is_too_old(each)]
    answered = f"{_broker_count(brokers)} answered ListTransactions by producer id and open state"
    proofs = [] if listing.failures else [answered]
    if opened and listing.versions:
        visibility = visibility_of(TRANSACTIONAL_IDS, client, brokers)
        closable += visibility.gaps
        proofs += visibility.proofs
    log: TransactionLog | None = None
    if closable and not _all_explained(opened, transactions):
        log = read_state_log(client, before, timeout=client.timeout)
        transactions += _supplement(transactions, listing.ids, log, open_ids, selection)
        brokers_time = brokers_time.or_of_log(log.newest_time, elapsed=_since(began))
        if not log.is_complete:
            closable += _unread(log)
        else:
            closable = []
            proofs.append(
                f"{STATE_TOPIC} was read completely: {log.partitions} partitions, {len(log.transactions)} ids"
            )
    starts = {f"the start of {each.transactional_id!r}": each.start_time for each in transactions if each.start_time}
    brokers_time = brokers_time.unless_behind(starts, elapsed=_since(began))
    transactions = _with_times(client, before, transactions, opened, log, brokers_time)
    software: list[Software] = []
    if opened:
        unloaded += loading_coordinators(client, before)  # loaded before and after the listing means loaded during it
        identities = broker_identities(client, brokers)  # one without a connection is a gap already
        gaps += software_gaps(identities)
        software = [software_of(each) for each in identities]
    gaps += closable + _duplicate_ids(listing) + list(dict.fromkeys(each.gap for each in unloaded))
    gaps += before.gaps_until(CoordinatorTopic(STATE_TOPIC, read_again(client, [STATE_TOPIC])))
    coverage = Coverage(
        brokers=brokers,
        proofs=proofs,
        gaps=gaps,
        releases=sorted({release for each in software for release in each.releases}),
        has_coordinators=not before.is_absent,
    )
    return [*transactions, *listing.failures], coverage, brokers_time


def _since(began: float) -> dt.timedelta:
    return dt.timedelta(seconds=time.monotonic() - began)


def _unanswered(failure: Transaction) -> str:
    return f"broker {failure.broker_id} did not answer ListTransactions: {Error.of(failure.error).code}"


def _broker_count(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"all {len(brokers)} brokers"


def _all_explained(opened: Iterable[Producer], transactions: Iterable[Transaction]) -> bool:
    """Whether coordinators own every open transaction, so that hidden ids cannot change a verdict."""
    owned = {
        (*tp, each.producer_id, each.producer_epoch)
        for each in transactions
        if each.state in OPEN_STATES and not each.error
        for tp in each.topic_partitions or ()
    }
    return all((each.topic, each.partition, each.producer_id, each.producer_epoch) in owned for each in opened)


def _supplement(
    transactions: Sequence[Transaction],
    listed: Iterable[tuple[str, int]],
    log: TransactionLog,
    open_ids: set[int],
    selection: Selection,
) -> list[Transaction]:
    """By the log: relevant ids that no coordinator returned, and partitions that could not be read."""
    returned = {each.transactional_id for each in transactions} | {name for name, _ in listed}
    return [
        each
        for each in log.transactions
        if each.transactional_id not in returned and (each.producer_id in open_ids or _expects(each, selection))
    ] + log.failures


def _unread(log: TransactionLog) -> list[str]:
    """Why the log was not read completely, except for missing rights, which another gap names."""
    if not log.partitions and not log.failures:
        return [f"{STATE_TOPIC}: the metadata does not show it"]
    errors = {Error.of(each.error).code for each in log.failures} - {"TOPIC_AUTHORIZATION_FAILED"}
    return [
        f"a complete {STATE_TOPIC}: {len(log.failures)} partitions could not be read ({error})"
        for error in sorted(errors)
    ]


def _expects(txn: Transaction, selection: Selection) -> bool:
    return txn.state in OPEN_STATES and any(tp in selection for tp in txn.topic_partitions or ())


def _with_times(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    transactions: Sequence[Transaction],
    opened: Sequence[Producer],
    log: TransactionLog | None,
    brokers_time: BrokersTime,
) -> list[Transaction]:
    """Transactions with `last_update_time`, where a verdict needs it and the log has the same state.

    It dates the decision of an ending transaction. It also shows that an epoch above the partition's belongs to a new
    instance, not to a fence in progress: a coordinator raises the epoch first and logs it with PrepareAbort.
    """
    state_partitions = {
        each.txn_state_partition
        for each in transactions
        if each.txn_state_partition is not None
        and each.last_update_time is None
        and (_may_be_stuck(each, brokers_time) or _has_newer_epoch(each, opened))
    }
    if not state_partitions:
        return list(transactions)
    log = log or read_state_log(
        client, coordinator_topic, only=state_partitions, timeout=min(client.timeout, STATE_TIMES_TIMEOUT_S)
    )
    logged = {_state_key(each): each.last_update_time for each in log.transactions}
    return [
        replace(each, last_update_time=each.last_update_time or logged.get(_state_key(each))) for each in transactions
    ]


def _may_be_stuck(txn: Transaction, now: BrokersTime) -> bool:
    """Whether an ending transaction is old enough to be stuck, or may be."""
    ending = txn.state in OPEN_STATES - {"Ongoing"}
    is_old = txn.start_time is not None and (now.time is None or now.time - txn.start_time > OLD)
    return ending and (is_old or not now.is_current)


def _has_newer_epoch(txn: Transaction, opened: Iterable[Producer]) -> bool:
    """Whether an ongoing transaction's epoch is above that of its producer's open transaction on a partition."""
    return txn.state == "Ongoing" and any(
        each.producer_id == txn.producer_id and (each.producer_epoch or 0) < (txn.producer_epoch or 0)
        for each in opened
    )


def _state_key(txn: Transaction) -> tuple[object, ...]:
    return txn.transactional_id, txn.producer_id, txn.producer_epoch, txn.state


def _duplicate_ids(listing: TransactionListing) -> list[str]:
    first: dict[str, int] = {}
    duplicates: dict[str, set[int]] = {}
    for name, broker_id in listing.ids:
        if first.setdefault(name, broker_id) != broker_id:
            duplicates.setdefault(name, {first[name]}).add(broker_id)
    return [
        f"one coordinator for '{name}': brokers {', '.join(map(str, sorted(brokers)))} answer for it"
        for name, brokers in duplicates.items()
    ]


def _partitions_to_recheck(
    partitions: Iterable[Partition],
    producers: Iterable[Producer],
    transactions: Iterable[Transaction],
    observed: Container[TopicPartition],
) -> list[TopicPartition]:
    """Partitions with an open transaction, a held LSO, a coordinator's open transaction, or an error."""
    found = {each.tp for each in partitions if each.error or is_held(each)}
    found |= {each.tp for each in producers if each.error or each.current_txn_start_offset is not None}
    for each in transactions:
        if each.state in OPEN_STATES:
            found.update(each.topic_partitions or ())
    return sorted(tp for tp in found if tp in observed)


def _first_batches(client: BrokerClient, producers: Iterable[Producer], *, per_partition: int) -> list[FirstBatch]:
    """The batch at the start offset of open transactions, lowest first; of every partition before another one of any.

    One that retention deleted is left out. On a compacted topic the batch may be another producer's.
    """
    opened = sorted(
        (each.tp, each.current_txn_start_offset, each.broker_id)
        for each in producers
        if each.current_txn_start_offset is not None and each.broker_id is not None
    )
    by_partition = (islice(group, per_partition) for _, group in groupby(opened, key=itemgetter(0)))
    ranked = sorted((rank, each) for group in by_partition for rank, each in enumerate(group))
    positions = [FetchPosition(*each) for each in sorted(each for _, each in ranked[:MAX_FIRST_BATCHES])]
    fetched = zip(positions, fetch(client, positions, max_bytes=1), strict=True)
    found = (_first_batch(position, each.records) for position, each in fetched)
    return [each for each in found if each is not None]


def _first_batch(position: FetchPosition, records: bytes) -> FirstBatch | None:
    try:
        header = read_header(records)
    except DecodeError:
        return None
    if header.producer_id is None or header.producer_epoch is None:
        return None
    log_append_time = header.timestamp_type == "LogAppendTime"
    # With LogAppendTime the broker sets only the max timestamp; the base stays the producer's.
    time = header.max_timestamp if log_append_time else None if header.has_delete_horizon else header.base_timestamp
    return FirstBatch(
        topic=position.tp.topic,
        partition=position.tp.partition,
        start_offset=position.offset,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_timestamp=utc(time),
        log_append_time=log_append_time,
    )


MAX_PARTITIONS = 50  # with an excerpt of megabytes, for cause and impact
PARTITIONS_AT_ONCE = 10  # bounds memory
TIMEOUT_S = 10.0  # the rest gets a small excerpt
SMALL_EXCERPT = 1 << 16  # bytes; enough for the outcome
SMALL_AT_ONCE = 100
SMALL_TIMEOUT_S = 20.0


class LiveEvidence(EvidenceSource):
    """The logs and groups of a cluster."""

    are_named = False  # its partitions: then who waits is asked of a live transaction of any age, too

    def __init__(self, client: BrokerClient) -> None:
        self.client = client

    @property
    def cluster_id(self) -> str | None:
        return self.client.cluster_id

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        """Large ones of the first partitions, small ones of the others."""
        from toolkit.sources.live.partition_log import read_excerpts

        starts = [each for each in starts if each.leader.leader is not None and each.leader.high_watermark is not None]
        compacted = compacted_topics(self.client, {each.tp.topic for each in starts})
        excerpts: dict[TopicPartition, Excerpt] = {}
        deadline = time.monotonic() + TIMEOUT_S
        for start in range(0, min(len(starts), MAX_PARTITIONS), PARTITIONS_AT_ONCE):
            if time.monotonic() < deadline:
                batch = starts[start : min(start + PARTITIONS_AT_ONCE, MAX_PARTITIONS)]
                excerpts |= read_excerpts(self.client, batch, compacted=compacted, deadline=deadline)
        deadline = time.monotonic() + SMALL_TIMEOUT_S
        others = [each for each in starts if each.tp not in excerpts]
        for start in range(0, len(others), SMALL_AT_ONCE):
            if time.monotonic() < deadline:
                batch = others[start : start + SMALL_AT_ONCE]
                excerpts |= read_excerpts(
                    self.client, batch, compacted=compacted, deadline=deadline, max_bytes=SMALL_EXCERPT
                )
        return excerpts

    def coordinator_logs(self, cases: Sequence[Case]) -> Iterator[CoordinatorLog]:
        """From the time of the open records on; then from the beginning of the log on, if that is more."""
        from toolkit.sources.live.coordinator_logs import CoordinatorReader

        reader = CoordinatorReader(self.client, cases)
        yield reader.read()
        if (further := reader.read_further()) is not None:
            yield further

    def search_markers(self, cases: Sequence[Case]) -> MarkerSearch:
        from toolkit.sources.live.partition_log import search_markers

        return search_markers(self.client, cases)

    def ended(self, cases: Sequence[Case]) -> Collection[TransactionKey]:
        """Those that their leaders do not show open any more."""
        partitions = {each.tp for each in cases}
        metadata = read_metadata(self.client, {topic for topic, _ in partitions}).at(sorted(partitions))
        producers = read_producers(self.client, metadata, idle_producers=False)
        unread = {each.tp for each in producers if each.error}
        still_open = {(*each.tp, each.producer_id, each.current_txn_start_offset) for each in producers}
        return {each.key for each in cases if each.key not in still_open and each.tp not in unread}

    def with_groups(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        return with_groups(self.client, findings, of_any_age=self.are_named)
