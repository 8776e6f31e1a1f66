"""Records of ``__transaction_state`` and ``__consumer_offsets`` from the partitions' leaders, and of a transaction.

Also what a cluster shows of its exposure to hanging transactions: features, settings, software, and clients' records.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.exposure import (
    MAX_TIMEOUT,
    METADATA,
    VERIFICATION,
    ObservedBroker,
    ObservedCluster,
    Release,
    Software,
    broker_facts,
    exposure_rows,
    release_of,
    software_of,
)
from toolkit.analysis.transaction_history import CoordinatorLog, names_any
from toolkit.command_line import grant
from toolkit.errors import BrokerError, DecodeError, NotFound, ToolkitError
from toolkit.formats.batch_records import Record, read_records
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.coordinator_log_rows import offsets_log, transaction_log
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import Headers
from toolkit.schema.live import Exposure, Partition
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord
from toolkit.schema.table import Error
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, row_text
from toolkit.sources.live.coordinators import CoordinatorTopic, broker_configs, broker_identities, partition_numbers
from toolkit.sources.live.leaders import offset_of, read_partitions
from toolkit.sources.live.partition_log import FetchedChunk, fetch_range, read_offsets
from toolkit.sources.offset_reader import wrong_checksums
from toolkit.version import __version__


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The producer's last batch on the partition by its state, which ends the read; without a sequence, nothing does.

    Offsets that a group commits have sequence number 0 in each batch: they are read up to the high watermark.
    """

    producer_epoch: int
    last_sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch of the transaction."""

    base_offset: int
    last_offset: int
    size: int  # bytes in the log
    record_count: int
    producer_epoch: int
    last_sequence: int
    producer_id: int
    buffer: bytes
    position: int

    def records(self) -> Iterator[Record]:
        """Its records, with their headers. Raises BrokerError if the batch is damaged."""
        try:
            yield from read_records(self.buffer, self.position, with_headers=True)
        except DecodeError as error:
            raise BrokerError(error.what, code="CORRUPT_MESSAGE", means=error.means) from error


def open_batches(
    client: BrokerClient, partition: Partition, *, producer_id: int, start_offset: int, last: LastBatch
) -> Generator[OpenBatch, None, None]:
    """Batches of a producer's open transaction in offset order; those that retention deleted are missing.

    `producer_id`, `start_offset`: the transaction. As it is open, all that its producer wrote since is of it.
    Raises BrokerError if a part of the log could not be read, or the last batch is not replicated yet.
    """
    are_all_deleted = (partition.log_start_offset or 0) > start_offset
    first = max(start_offset, partition.log_start_offset or 0)
    stop = partition.high_watermark or 0
    with closing(read_offsets(client, partition, first, stop, crc=True).chunks) as chunks:
        for chunk in chunks:
            _check(chunk, f"{partition.topic}-{partition.partition}")
            for batch in _batches(chunk, producer_id):
                are_all_deleted = False
                yield batch
                end = (batch.producer_epoch, batch.last_sequence)
                if last.last_sequence is not None and end == (last.producer_epoch, last.last_sequence):
                    return
    if last.last_sequence is not None and not are_all_deleted:
        raise BrokerError(
            f"{partition.topic}-{partition.partition} has no batch of producer {producer_id} with its last sequence "
            f"number {last.last_sequence} below the high watermark {stop}.",
            code="OFFSET_NOT_AVAILABLE",
            do="Bring its replicas in sync.",
        )


def _check(chunk: FetchedChunk, name: str) -> None:
    """A torn tail is how a response ends; everything else that is no batch is damage."""
    damage = (each.reason for each in chunk.damage if not each.is_torn)
    for error in (*damage, *wrong_checksums(chunk.headers)):
        code, text = Error.of(error)
        raise BrokerError(f"The log of {name} could not be read: {text.rstrip('.') or code}.", code=code)


def _batches(chunk: FetchedChunk, producer_id: int) -> Iterator[OpenBatch]:
    headers = chunk.headers
    is_data = (headers["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    for header in headers[(headers["producer_id"] == producer_id) & is_data]:
        offsets = int(header["last_offset"]) - int(header["base_offset"])
        sequence = int(header["base_sequence"])
        yield OpenBatch(
            base_offset=int(header["base_offset"]),
            last_offset=int(header["last_offset"]),
            size=int(header["size"]),
            record_count=int(header["record_count"]),
            producer_epoch=int(header["producer_epoch"]),
            last_sequence=-1 if sequence < 0 else (sequence + offsets) % (1 << 31),
            producer_id=int(header["producer_id"]),
            buffer=chunk.records,
            position=int(header["position"]),
        )


MARGIN = dt.timedelta(seconds=60)  # before the open records
MAX_RECORDS = 500_000  # of __transaction_state, for each partition of an owner
MAX_RECORDS_OF_EACH = 20_000  # of every partition, if no id has the producer id any more
TOO_LONG = f"{STATE_TOPIC}-{{}} has more than {MAX_RECORDS:,} records since then, which were not read"
COMPRESSION = 0x07  # bits of attributes
R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord)


def records_of_ids(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    transactional_ids: Collection[str] | None,
    partitions: Collection[int] | None,
) -> Iterator[TransactionLogRecord]:
    """Records of some ids or all, and what could not be read of the partitions that they hash to.

    `coordinator_topic`: ``__transaction_state``.
    `transactional_ids`: only these ids; null for all.
    `partitions`: only these partitions of ``__transaction_state``; null for all.
    Raises BrokerError or NotFound: as `transaction_log_records`.
    """
    if transactional_ids is None:
        yield from transaction_log_records(client, coordinator_topic, partitions)
        return
    hashed = {number for each in transactional_ids if (number := coordinator_topic.partition(each)) is not None}
    ids = set(transactional_ids)
    selected = hashed if partitions is None else hashed & set(partitions)
    having = [each.encode() for each in ids]
    for record in transaction_log_records(client, coordinator_topic, selected, having=having):
        if record.transactional_id in ids or record.error:
            yield record


def read_coordinator_topic(client: BrokerClient, topic: str) -> CoordinatorTopic:
    """Metadata of a coordinators' topic. Raises BrokerError if this principal may not describe it."""
    coordinator_topic = CoordinatorTopic.read(client, topic)
    if coordinator_topic.hidden:
        code, text = Error.of(coordinator_topic.hidden)
        denied = code == "TOPIC_AUTHORIZATION_FAILED"
        means = f"This principal needs READ on {topic}." if denied else ""
        error = BrokerError(
            f"Topic {topic!r} cannot be described: {(text or code).rstrip('.')}.", code=code, means=means
        )
        error.command = grant("READ", "topic", [topic]) if denied else ()  # not in the text, which rows have
        raise error
    return coordinator_topic


def transaction_log_records(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    newest: int | None = None,
    start: Mapping[int, int] | None = None,
    having: Collection[bytes] | None = None,
) -> Iterator[TransactionLogRecord]:
    """Records of ``__transaction_state``, partition by partition; what could not be read is one with `error`.

    `partitions`: only these; null for all.
    `newest`: only this many offsets before the end of each; null for all.
    `start`: first offset to read of a partition; the log's first one if it has none here.
    `having`: decode only batches that contain one of these byte strings, or are compressed.
    Raises NotFound if the topic does not have one of the partitions.
    """
    for number, chunk in _chunks(client, coordinator_topic, partitions, start=start or {}, newest=newest):
        where = TransactionLogRecord(txn_state_partition=number, broker_id=chunk.broker_id)
        yield from _records(chunk, transaction_log, where, having)


def offsets_log_records(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    start: Mapping[int, int] | None = None,
) -> Iterator[OffsetsLogRecord]:
    """Records of ``__consumer_offsets``, as `transaction_log_records`.

    Raises NotFound if the topic does not have one of the partitions.
    """
    for number, chunk in _chunks(client, coordinator_topic, partitions, start=start or {}):
        where = OffsetsLogRecord(group_partition=number, broker_id=chunk.broker_id)
        yield from _records(chunk, offsets_log, where)


def _chunks(
    client: BrokerClient,
    topic: CoordinatorTopic,
    numbers: Collection[int] | None,
    *,
    start: Mapping[int, int],
    newest: int | None = None,
) -> Iterator[tuple[int, FetchedChunk]]:
    """The logs of partitions, with their numbers; one that cannot be read is damage."""
    for partition in _partitions(client, topic, numbers):
        number = partition.partition
        if partition.error:
            yield number, FetchedChunk.unread(partition.error, broker_id=partition.leader)
            continue
        first = max(partition.log_start_offset or 0, start.get(number, 0))
        if newest is not None:
            first = max(first, (partition.high_watermark or 0) - newest)
        # A coordinator loads its state up to the log end. While the high watermark is before that, ListOffsets returns
        # OFFSET_NOT_AVAILABLE (KIP-207): so nothing that it knows is missing here.
        for chunk in fetch_range(client, partition, first, "high_watermark", crc=True).chunks:
            yield number, chunk


def _partitions(client: BrokerClient, topic: CoordinatorTopic, numbers: Collection[int] | None) -> list[Partition]:
    """The partitions of a topic, by number."""
    leaders = topic.metadata.partitions
    for missing in sorted(set(numbers or ()) - {tp.partition for tp in leaders}):
        raise NotFound(
            f"Topic {topic.topic!r} has no partition {missing}: it has 0 to {topic.count - 1}.", do="Name one of these."
        )
    selected = {tp: leader for tp, leader in sorted(leaders.items()) if numbers is None or tp.partition in numbers}
    return sorted(read_partitions(client, selected), key=lambda each: each.partition)


def _records(
    chunk: FetchedChunk, decode: Callable[..., Iterator[R]], where: R, having: Collection[bytes] | None = None
) -> Iterator[R]:
    for damage in chunk.damage:
        yield replace(where, error=damage.reason)
    headers = chunk.headers[chunk.headers["attributes"] & CONTROL == 0]
    for position in headers["position"][_contain(headers, chunk.records, having)].tolist():
        yield from decode(chunk.records, position, where=where)


def _contain(headers: Headers, records: bytes, needles: Collection[bytes] | None) -> npt.NDArray[np.bool_]:
    """Whether each batch contains one of the byte strings; or may, as it is compressed, or its checksum is wrong."""
    if needles is None:
        return np.ones(len(headers), bool)
    found: npt.NDArray[np.bool_] = (headers["attributes"] & COMPRESSION != 0) | (headers["crc_ok"] == 0)
    positions = headers["position"]
    for needle in needles:
        at = records.find(needle)
        while at >= 0:
            batch = int(positions.searchsorted(at, side="right")) - 1
            if batch >= 0:  # not in a control batch before the first one
                found[batch] = True
            at = records.find(needle, at + 1)
    return found


class CoordinatorReader:
    """Reads the records of the owners of open transactions, or of former owners if they have none.

    The records of each partition are read once for all transactions: from the time of the open records on, as
    ListOffsets finds it; then, if that does not reach back far enough, from the beginning of the log.
    """

    def __init__(self, client: BrokerClient, cases: Sequence[Case]) -> None:
        self._client = client
        self._producer_ids = {each.producer_id for each in cases if each.owner is None}
        self._ids: defaultdict[int, set[str]] = defaultdict(set)
        self._owned_producer_ids: defaultdict[int, set[int]] = defaultdict(set)
        self._since: dict[int, dt.datetime | None] = {}
        opened_after: defaultdict[int, list[dt.datetime | None]] = defaultdict(list)
        for each in cases:
            number = None if each.owner is None else each.owner.txn_state_partition
            if number is not None and each.transactional_id is not None:
                self._ids[number].add(each.transactional_id)
                self._owned_producer_ids[number].add(each.producer_id)
                opened_after[number].append(each.opened_after)
        for number, times in opened_after.items():
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


NEWEST = 20_000  # offsets of each partition of __transaction_state
API_VERSIONS = {"client_software_name": "kafka-txn-toolkit", "client_software_version": __version__}


def read_exposure(client: BrokerClient, *, release: Release | None = None) -> Iterator[Exposure]:
    """Exposure of the cluster, every broker, its software and known bugs, and ids with exposed clients.

    What this principal may not read is a record with `error`, and that there are more than the newest 20,000 offsets of
    a partition of ``__transaction_state``, which are read.

    `release`: release of the brokers; null to detect the minor release.
    """
    ids = sorted(client.brokers)
    of_brokers = client.send([(each, broker_client.ApiVersions(**API_VERSIONS)) for each in ids])
    configs = broker_configs(client, ids, [VERIFICATION, MAX_TIMEOUT])
    software = {each.broker_id: software_of(each) for each in broker_identities(client, ids)}
    (of_any,) = client.send([(None, broker_client.ApiVersions(**API_VERSIONS))])
    brokers = []
    for broker_id, response, config in zip(ids, of_brokers, configs, strict=True):
        own_software = software.get(broker_id)
        supported = () if response.failure else response.message.supported_features or ()
        broker = ObservedBroker(
            broker_id=broker_id,
            observed_at=config.observed_at,
            release=None if response.failure else _minor_release(supported, own_software),
            release_error=response.failure,
            software=own_software,
            settings={} if config.error else {name: config.values.get(name) for name in (VERIFICATION, MAX_TIMEOUT)},
            settings_error=config.error,
        )
        brokers.append(broker)
    features = [] if of_any.failure else of_any.message.finalized_features or []
    cluster = ObservedCluster(
        observed_at=of_any.observed_at,
        features={each.name: each.max_version_level for each in features},
        broker_id=of_any.broker_id,
        features_error=of_any.failure,
        brokers=brokers,
        records=_records_or_error(client),
    )
    return exposure_rows(cluster, release=release)


def _minor_release(supported: Iterable[Any], software: Software | None) -> Release | None:
    """A broker's minor release, by metadata.version or API versions; null if unknown, or not of Apache Kafka."""
    releases = software.releases if software else ()
    levels = [each.max_version for each in supported if each.name == METADATA]
    if releases and levels and levels[0] in broker_facts().releases:
        return broker_facts().releases[levels[0]]
    return release_of(releases[0]) if len(releases) == 1 else None


def _records_or_error(client: BrokerClient) -> Iterator[TransactionLogRecord]:
    """The newest records, and what ends the read, or is before it, as one more."""
    try:
        topic = read_coordinator_topic(client, STATE_TOPIC)
        yield from transaction_log_records(client, topic, newest=NEWEST)
        longer = [
            each.partition
            for each in _partitions(client, topic, None)
            if (each.high_watermark or 0) - (each.log_start_offset or 0) > NEWEST
        ]
        if longer:
            error = f"NOT_READ: of {partition_numbers(longer)}, only the newest {NEWEST:,} offsets were read"
            yield TransactionLogRecord(error=error)
    except ToolkitError as error:
        yield TransactionLogRecord(error=row_text(error))
