"""Log evidence of held partitions: a bounded excerpt of each, and records of ``__transaction_state``."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from toolkit.analysis.coordinator.coordinator_log import CoordinatorLog, names_any
from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.evidence.log_selection import ExcerptStart, LogSelection
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Partition
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import Error, TopicPartition, TransactionKey
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.logs.excerpt_reader import read_excerpts
from toolkit.sources.live.logs.fetch import offset_of
from toolkit.sources.live.state.broker_configs import compacted_topics
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.leaders import read_metadata, read_partitions
from toolkit.sources.live.state.producer_states import read_producers

MAX_PARTITIONS = 50  # with an excerpt of megabytes, for cause and impact
PARTITIONS_AT_ONCE = 10  # bounds memory
TIMEOUT_S = 10.0  # the rest gets a small excerpt
SMALL_EXCERPT = 1 << 16  # bytes; enough for the outcome
SMALL_AT_ONCE = 100
SMALL_TIMEOUT_S = 20.0

MARGIN = dt.timedelta(seconds=60)  # before the open records
MAX_RECORDS = 500_000  # of __transaction_state, for each partition of an owner
MAX_RECORDS_OF_EACH = 20_000  # of every partition, if no id has the producer id any more
TOO_LONG = f"{STATE_TOPIC}-{{}} has more than {MAX_RECORDS:,} records since then, which were not read"


def ended(client: BrokerClient, cases: Sequence[Case]) -> frozenset[TransactionKey]:
    """Those of the transactions that their leaders do not show open any more."""
    partitions = {each.tp for each in cases}
    metadata = read_metadata(client, {topic for topic, _ in partitions}).at(sorted(partitions))
    producers = read_producers(client, metadata, idle_producers=False)
    unread = {each.tp for each in producers if each.error}
    still_open = {(*each.tp, each.producer_id, each.current_txn_start_offset) for each in producers}
    return frozenset(each.key for each in cases if each.key not in still_open and each.tp not in unread)


def excerpts_around(client: BrokerClient, starts: Iterable[ExcerptStart]) -> dict[TopicPartition, Excerpt]:
    """Excerpts around the lowest open transactions: large ones of the first partitions, small ones of the others."""
    starts = [each for each in starts if each.leader.leader is not None and each.leader.high_watermark is not None]
    compacted = compacted_topics(client, {each.tp.topic for each in starts})
    excerpts: dict[TopicPartition, Excerpt] = {}
    deadline = time.monotonic() + TIMEOUT_S
    for start in range(0, min(len(starts), MAX_PARTITIONS), PARTITIONS_AT_ONCE):
        if time.monotonic() < deadline:
            batch = starts[start : min(start + PARTITIONS_AT_ONCE, MAX_PARTITIONS)]
            excerpts |= read_excerpts(client, batch, compacted=compacted, deadline=deadline)
    deadline = time.monotonic() + SMALL_TIMEOUT_S
    others = [each for each in starts if each.tp not in excerpts]
    for start in range(0, len(others), SMALL_AT_ONCE):
        if time.monotonic() < deadline:
            batch = others[start : start + SMALL_AT_ONCE]
            excerpts |= read_excerpts(client, batch, compacted=compacted, deadline=deadline, max_bytes=SMALL_EXCERPT)
    return excerpts


def coordinator_logs(
    client: BrokerClient, selection: LogSelection, excerpts: Mapping[TopicPartition, Excerpt]
) -> Iterator[CoordinatorLog]:
    """From the time of the open records on; then from the beginning of the log on, if that is more."""
    reader = _CoordinatorReader(client, selection, excerpts)
    yield reader.read()
    if (further := reader.read_further()) is not None:
        yield further


class _CoordinatorReader:
    """Reads the records of the owners of open transactions, or of former owners if they have none.

    The records of each partition are read once for all transactions: from the time of the open records on, as
    ListOffsets finds it; then, if that does not reach back far enough, from the beginning of the log.
    """

    def __init__(
        self, client: BrokerClient, selection: LogSelection, excerpts: Mapping[TopicPartition, Excerpt]
    ) -> None:
        self._client = client
        self._producer_ids = selection.producer_ids
        self._ids: dict[int, set[str]] = {}
        self._owned_producer_ids: dict[int, set[int]] = {}
        self._since: dict[int, dt.datetime | None] = {}
        for number, owned in selection.owned.items():
            if number is None:
                continue
            self._ids[number] = {each.transactional_id for each in owned if each.transactional_id is not None}
            self._owned_producer_ids[number] = {each.producer_id for each in owned}
            times = [replace(each, excerpt=excerpts.get(each.tp)).opened_after for each in owned]
            known = [time for time in times if time is not None]
            self._since[number] = min(known) if len(known) == len(times) else None
        self._start: dict[int, int] = {}

    def read(self) -> CoordinatorLog:
        """Read from the time of the open records on."""
        try:
            topic = read_coordinator_topic(self._client, STATE_TOPIC)
            leaders = {tp: each for tp, each in topic.metadata.partitions.items() if tp.partition in self._ids}
            partitions = read_partitions(self._client, leaders)
            self._start = {each.partition: self._first_offset(each) for each in partitions}
            return self._log(topic)
        except ToolkitError as error:
            return CoordinatorLog(unread=[f"{STATE_TOPIC} could not be read ({error.what.rstrip('.')})"])

    def read_further(self) -> CoordinatorLog | None:
        """Read from the beginning of the log on; null if that was done."""
        if not any(self._start.values()):
            return None
        self._start, self._since = {}, dict.fromkeys(self._since)
        return self.read()

    def _log(self, topic: CoordinatorTopic) -> CoordinatorLog:
        records: list[TransactionLogRecord] = []
        since: dict[int, dt.datetime] = {}
        too_long = []
        for number, ids in sorted(self._ids.items()):
            start = self._start.get(number, -1)
            if start < 0:
                too_long.append(TOO_LONG.format(number))
                continue
            owned = self._owned_producer_ids[number]  # another id may have had one of them: it was given out twice
            of_partition = self._of_ids(topic, ids, {number}, producer_ids=owned, start={number: start})
            records += of_partition
            if start and (first := next((each.timestamp for each in of_partition if each.timestamp), None)):
                since[number] = first
        if self._producer_ids:
            records += self._of_producers(topic)
        errors = sorted({Error.of(each.error).code for each in records if each.error})
        unread = [f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else []
        readable = [each for each in records if not each.error]
        return CoordinatorLog(records=readable, unread=[*too_long, *unread], since=since, leaders=_leaders(topic))

    def _first_offset(self, partition: Partition) -> int:
        """The first offset to read of a partition; -1 if that is too far back."""
        since, begin = self._since[partition.partition], partition.log_start_offset or 0
        end = partition.high_watermark or 0
        if partition.error:
            return 0  # the read has the error
        if since is None:
            return max(begin, end - MAX_RECORDS) if begin < end - MAX_RECORDS else 0
        start = offset_of(self._client, since - MARGIN, partition)
        return start if end - start <= MAX_RECORDS else -1

    def _of_ids(
        self,
        topic: CoordinatorTopic,
        ids: Collection[str],
        partitions: Collection[int],
        *,
        producer_ids: Collection[int] = (),
        start: Mapping[int, int] | None = None,
        newest: int | None = None,
    ) -> list[TransactionLogRecord]:
        needles = [*(each.encode() for each in ids), *(each.to_bytes(8, "big") for each in producer_ids)]
        read = transaction_log_records(self._client, topic, partitions, start=start, newest=newest, having=needles)
        return [each for each in read if each.error or each.transactional_id in ids or names_any(each, producer_ids)]

    def _of_producers(self, topic: CoordinatorTopic) -> list[TransactionLogRecord]:
        """Records of every id that ever had one of these producer ids, its tombstone included."""
        needles = [each.to_bytes(8, "big") for each in self._producer_ids]
        read = list(transaction_log_records(self._client, topic, newest=MAX_RECORDS_OF_EACH, having=needles))
        named = [each for each in read if not each.error and names_any(each, self._producer_ids)]
        ids = {each.transactional_id for each in named if each.transactional_id is not None}
        numbers = {each.txn_state_partition for each in named if each.txn_state_partition is not None}
        errors = [each for each in read if each.error]
        return errors + self._of_ids(topic, ids, numbers, newest=MAX_RECORDS_OF_EACH) if ids else errors


def _leaders(topic: CoordinatorTopic) -> dict[int, tuple[int, int]]:
    """Leader and leader epoch of each partition, before its records were read."""
    return {
        tp.partition: (each.leader, each.leader_epoch)
        for tp, each in topic.metadata.partitions.items()
        if each.leader is not None and each.leader_epoch is not None
    }
