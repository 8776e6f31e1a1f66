"""Excerpts of logs, bounded in bytes: around the lowest open transaction of held partitions, many at once; and of the
partitions that have markers of a producer, where the coordinators' log does not prove an outcome."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.log_excerpts import (
    MAX_OFFSETS,
    Excerpt,
    ExcerptStart,
    cut_search,
    have_ended,
    named_topics,
    plan_marker_search,
    search_from,
)
from toolkit.analysis.diagnosis.markers import MarkerSearch, OtherMarker, markers_found
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Headers, concatenate
from toolkit.formats.log.scan import scan
from toolkit.schema.live import Partition, Producer
from toolkit.schema.log import OffsetsLogRecord
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.fetch import FetchedBatches, FetchPosition, fetch
from toolkit.sources.live.logs.partition_log import fetch_range
from toolkit.sources.live.state.authorization import TOPICS, visibility_of
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.leaders import read_metadata, read_partitions
from toolkit.sources.live.state.producer_states import read_producers
from toolkit.sources.live.state.transaction_descriptions import describe_named

FETCH_BYTES = 1 << 20
MAX_BYTES_AFTER = 4 << 20  # from the first offset on
MAX_SEARCHED = 5_000  # partitions of a cluster; of a larger one only the topics that records name
OFFSETS_BEFORE = (100, 2_000, 20_000)  # the next only if none before has a marker


def read_excerpts(
    client: BrokerClient,
    starts: Sequence[ExcerptStart],
    *,
    compacted: Mapping[str, bool],
    deadline: float,
    max_bytes: int | None = None,
) -> dict[TopicPartition, Excerpt]:
    """Read from each offset to the high watermark, and back to a marker of the producers, within the byte limits.

    `starts`: where, on partitions with a leader and a high watermark; each takes a few megabytes of memory.
    `compacted`: whether a topic is compacted, where known.
    `deadline`: by ``time.monotonic()``; reading stops then.
    `max_bytes`: to read of each partition from its offset on, and of each step before it; 4 MB and 1 MB if null.
    """
    max_bytes = MAX_BYTES_AFTER if max_bytes is None else max_bytes
    after = [_ExcerptScan(each, each.offset, each.leader.high_watermark or 0, max_bytes) for each in starts]
    _read(client, after, deadline)
    before: dict[TopicPartition, _ExcerptScan] = {}
    for offsets in OFFSETS_BEFORE:
        scans = [
            _ExcerptScan(each, max(log_start, each.offset - offsets), each.offset, min(max_bytes, FETCH_BYTES))
            for each in starts
            if (log_start := each.leader.log_start_offset or 0) < each.offset and not _has_marker(before.get(each.tp))
        ]
        _read(client, scans, deadline)
        before |= {each.target.tp: each for each in scans if each.position >= each.stop}
    now = dt.datetime.now(dt.UTC)
    return {each.target.tp: _excerpt(before.get(each.target.tp), each, compacted, now) for each in after}


@dataclass(slots=True)
class _ExcerptScan:
    """Progress of reading an offset range."""

    target: ExcerptStart
    position: int
    stop: int
    remaining_bytes: int
    start: int = -1
    is_done: bool = False
    error: str | None = None
    headers: list[Headers] = field(default_factory=list)
    groups: dict[int, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = self.position
        self.is_done = self.position >= self.stop

    def add(self, fetched: FetchedBatches) -> None:
        """Add fetched batches; they may extend beyond the range."""
        scanned = scan(fetched.records, last=False)
        self.error = fetched.error
        self.remaining_bytes -= len(fetched.records)
        if len(scanned.headers):
            self.headers.append(scanned.headers)
            self.position = int(scanned.headers["last_offset"][-1]) + 1
            if self.target.tp.topic == OFFSETS_TOPIC:
                self._add_groups(fetched.records, scanned.headers)
        elif not fetched.error and not fetched.records and (fetched.high_watermark or 0) >= self.stop:
            self.position = self.stop  # compacted away
        self.is_done = self.position >= self.stop or self.remaining_bytes <= 0 or not len(scanned.headers)

    def _add_groups(self, records: bytes, headers: Headers) -> None:
        """Add the groups whose offsets the transactions have pending."""
        data = np.isin(headers["producer_id"], list(self.target.producer_ids)) & (headers["attributes"] & CONTROL == 0)
        for position in headers["position"][data & (headers["base_offset"] >= self.target.offset)]:
            for record in offsets_log(records, int(position), where=OffsetsLogRecord()):
                if record.group_id is not None and record.producer_id is not None:
                    self.groups.setdefault(record.producer_id, set()).add(record.group_id)


def _read(client: BrokerClient, scans: Sequence[_ExcerptScan], deadline: float) -> None:
    while (unfinished := [each for each in scans if not each.is_done]) and time.monotonic() < deadline:
        positions = [FetchPosition.of(each.target.leader, each.position) for each in unfinished]
        fetched = fetch(client, positions, max_bytes=FETCH_BYTES)
        for each, batches in zip(unfinished, fetched, strict=True):
            each.add(batches)


def _has_marker(excerpt: _ExcerptScan | None) -> bool:
    """Whether it has a marker of every searched producer."""
    return excerpt is not None and have_ended(concatenate(excerpt.headers), excerpt.target.producer_ids)


def _excerpt(
    before: _ExcerptScan | None, after: _ExcerptScan, compacted: Mapping[str, bool], observed_at: dt.datetime
) -> Excerpt:
    headers = concatenate(after.headers)
    first = int(headers["base_offset"][0]) if len(headers) else after.start
    if before is not None:
        earlier = concatenate(before.headers)
        headers = concatenate((earlier[earlier["base_offset"] < min(first, after.start)], headers))
    headers["position"] = -1  # meaningless in a response
    return Excerpt(
        headers=headers,
        start=after.start if before is None else before.start,
        stop=after.position,
        log_start_offset=after.target.leader.log_start_offset or 0,
        observed_at=observed_at,
        is_compacted=compacted.get(after.target.tp.topic),
        groups={producer_id: sorted(groups) for producer_id, groups in after.groups.items()},
        broker_id=after.target.leader.leader,
        error=after.error,
        brokers_write=after.target.tp.topic == OFFSETS_TOPIC,
    )


def search_markers(client: BrokerClient, cases: Sequence[Case]) -> MarkerSearch:
    """The markers of the producers on the partitions where their leaders show them, or the coordinators' records.

    `cases`: open transactions that no coordinator will end.
    """
    try:
        metadata = read_metadata(client, None)
        if len(metadata.partitions) > MAX_SEARCHED:
            metadata = read_metadata(client, named_topics(cases))
        hidden = _hidden(client, metadata.partitions, cases)
        plan = plan_marker_search(cases, read_producers(client, metadata.partitions), unread=hidden)
        topics = {tp.topic for tp in plan.partitions}
        markers: list[OtherMarker] = []
        unread = dict(plan.unread)
        ahead = _still_ahead(client, plan.ahead, cases)
        for partition in read_partitions(client, read_metadata(client, topics).at(sorted(plan.partitions))):
            of_partition = plan.partitions[partition.tp]
            found = _read_markers(client, partition, of_partition)
            markers += found.markers
            unread |= found.unread
    except ToolkitError as error:
        return MarkerSearch(unread={each.producer_id: error.what.rstrip(".") for each in cases})
    return MarkerSearch(markers=markers, unread=unread, ahead=ahead)


def _hidden(
    client: BrokerClient, visible: Container[TopicPartition], cases: Sequence[Case]
) -> Mapping[TopicPartition, str]:
    """Partitions that coordinators' records name and the metadata does not show, if it may hide them; and why."""
    named = {tp for each in cases for tp in each.recorded_partitions if tp not in visible}
    gaps = visibility_of(TOPICS, client, sorted(client.brokers)).gaps if named else ()
    return dict.fromkeys(named, f"its topic is deleted or hidden; missing: {'; '.join(gaps)}") if gaps else {}


def _still_ahead(client: BrokerClient, ahead: Mapping[int, Producer], cases: Sequence[Case]) -> dict[int, Producer]:
    """Those producers whose coordinator does not have the epoch, now that a partition has it.

    A client of transaction version 2 may have begun another one since the coordinators' log was read.
    """
    ids = {history.transactional_id for each in cases if each.producer_id in ahead for history in each.id_histories}
    found = dict(ahead)
    if not ids:
        return found
    for owner in describe_named(client, CoordinatorTopic.read(client, STATE_TOPIC), sorted(ids)):
        producer = found.get(-1 if owner.producer_id is None else owner.producer_id)
        if producer is not None and (owner.producer_epoch or 0) >= (producer.producer_epoch or 0):
            del found[producer.producer_id or 0]
    return found


def _read_markers(client: BrokerClient, partition: Partition, cases: Sequence[Case]) -> MarkerSearch:
    """The markers of open transactions' producers on another partition."""
    name, producer_ids = f"{partition.topic}-{partition.partition}", {each.producer_id for each in cases}
    if partition.error:
        return MarkerSearch(unread=dict.fromkeys(producer_ids, f"{name} could not be read ({partition.error})"))
    begin, end = partition.log_start_offset or 0, partition.high_watermark or 0
    since = search_from(cases)
    start = max(begin, end - MAX_OFFSETS) if since is None else since
    fetched = fetch_range(client, partition, start, "high_watermark")
    is_cut = fetched.stop > fetched.start + MAX_OFFSETS
    cut = cut_search(fetched.tp, cases, start=fetched.start if fetched.start > begin else None, is_cut=is_cut)
    parts, errors = list[Headers](), list[str]()
    for chunk in fetched.chunks:
        headers = chunk.headers
        parts.append(headers)
        errors += [chunk.error] if chunk.error else [each.reason for each in chunk.damage if not each.is_torn]
        if len(headers) and int(headers["last_offset"][-1]) >= fetched.start + MAX_OFFSETS:
            break
    excerpt = Excerpt(
        headers=concatenate(parts),
        start=fetched.start,
        stop=min(fetched.stop, fetched.start + MAX_OFFSETS),
        log_start_offset=begin,
        observed_at=partition.observed_at,
        broker_id=partition.leader,
    )
    return markers_found(fetched.tp, excerpt, producer_ids, errors=errors, cut=cut)
