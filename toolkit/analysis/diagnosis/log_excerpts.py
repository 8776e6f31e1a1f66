"""Log evidence of a finding: which logs to read for it, an excerpt of one, and the open batches in it.

A marker decides each open batch, so each is compared with the decisions. Batches of one epoch between the same brokers'
times are one part, as all that is known of them is the same. Brokers' times are those of markers, of batches under
LogAppendTime, and of what the group coordinator writes; any other CreateTime is a client's, and may be any.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from toolkit.analysis.diagnosis.observation import BEFORE_OPENING
from toolkit.analysis.log.log_transactions import last_sequences
from toolkit.formats.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import ABORT, COMMIT, Headers
from toolkit.schema import utc
from toolkit.schema.live import EvidenceEntry, Partition, Producer
from toolkit.schema.table import Error, TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


NAMES = {ABORT: "ABORT", COMMIT: "COMMIT"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """The part of a partition's log around the first offset of an open transaction.

    `headers`: structured array of `toolkit.formats.headers.HEADER`: every batch that contains an offset of ``start
        <= offset < stop``, in order.
    `start`, `stop`: the range of offsets that was read.
    `log_start_offset`: first offset of the log; null if unknown.
    `held`: data records and bytes from the LSO to the high watermark, if counted while the log was read; else null.
    `is_compacted`: whether the cleaner may have removed batches from it; null if unknown.
    `groups`: consumer groups with offsets in an open transaction, by producer id; on ``__consumer_offsets`` only.
    `source`, `broker_id`, `observed_at`: where it was read, and when.
    `error`: ``"NAME: text"`` if it could not be read, or not completely.
    `brokers_write`: whether brokers set the time of all of its records, as on ``__consumer_offsets``.
    """

    headers: Headers
    start: int
    stop: int
    log_start_offset: int | None
    observed_at: dt.datetime
    held: tuple[int, int] | None = None
    is_compacted: bool | None = None
    groups: Mapping[int, Sequence[str]] = field(default_factory=dict)
    source: str = "Fetch"
    broker_id: int | None = None
    error: str | None = None
    brokers_write: bool = False

    @property
    def has_brokers_time(self) -> npt.NDArray[np.bool_]:
        """Which batches have a broker's time: markers, those under LogAppendTime, or all (`brokers_write`)."""
        headers = self.headers
        by_broker = (headers["attributes"] & (CONTROL | LOG_APPEND_TIME) != 0) | self.brokers_write
        found: npt.NDArray[np.bool_] = by_broker & (headers["max_timestamp"] >= 0)
        return found

    def is_contiguous(self, start: int, stop: int) -> bool:
        """Whether it has all batches of ``start <= offset < stop``: the cleaner has removed none."""
        between = self.headers[(self.headers["last_offset"] >= start) & (self.headers["base_offset"] < stop)]
        expected = np.concatenate(([start], between["last_offset"] + 1))
        return bool((np.concatenate((between["base_offset"], [stop])) <= expected).all())


def have_ended(headers: Headers, producer_ids: Collection[int]) -> bool:
    """Whether each of these producers has a control batch among the headers."""
    ended = headers["producer_id"][headers["attributes"] & CONTROL != 0]
    return bool(np.isin(list(producer_ids), ended).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProducerBatches:
    """A producer's batches and markers in an excerpt, around the start of its open transaction."""

    excerpt: Excerpt
    producer_id: int
    start: int  # first offset of its open transaction
    first_batch: Headers  # the batch that contains the start offset: one or none
    open_data: Headers  # its transactional batches from the start offset on
    # data_before, markers_before: its last transactional batch before the start offset: one or none; and its COMMIT and
    # ABORT markers before it
    data_before: Headers
    markers_before: Headers
    markers_after: Headers  # its COMMIT and ABORT markers after the start offset; the first one ended the transaction

    @property
    def marker_before(self) -> Headers:
        """Its last COMMIT or ABORT marker before the start offset: one or none."""
        last: Headers = self.markers_before[-1:]
        return last

    @property
    def has_gaps(self) -> bool:
        """Whether the cleaner has removed batches between its last marker before the start offset, or the beginning of
        the excerpt, and the start offset; a later marker may be among them."""
        first = self.excerpt.start
        if len(self.markers_before):
            first = int(self.markers_before["last_offset"][-1]) + 1
        return not self.excerpt.is_contiguous(first, self.start)

    @property
    def foreign_producer_id(self) -> int | None:
        """The producer of the batch that contains the start offset, if it is another one; else null."""
        headers = self.excerpt.headers
        at_start = headers[(headers["base_offset"] <= self.start) & (headers["last_offset"] >= self.start)]
        return next((each for each in at_start["producer_id"].tolist() if each != self.producer_id), None)

    @property
    def marker_after(self) -> str:
        """``COMMIT marker at offset 12``: the first of `markers_after`."""
        marker = self.markers_after[0]
        return f"{NAMES[int(marker['marker'])]} marker at offset {marker['base_offset']}"

    @property
    def is_late(self) -> bool:
        """Whether the first batch has the epoch of the transaction that the marker before it ended.

        With transaction version 2 a marker has epoch + 1, with which the producer continues at sequence number 0. With
        version 1 the epoch stays the same, and the next transaction of a healthy producer has the same bytes.
        """
        if not len(self.first_batch) or not len(self.marker_before):
            return False
        first = self.first_batch[0]
        if first["producer_epoch"] > self.marker_before["producer_epoch"][0]:
            return False
        if len(self.data_before):
            return bool(first["producer_epoch"] == self.data_before["producer_epoch"][0])
        return bool(first["base_sequence"] > 0)

    @property
    def sequence_follows(self) -> bool | None:
        """Whether the first batch has the next sequence number; null if unknown."""
        if not len(self.first_batch) or not len(self.data_before) or self.first_batch["base_sequence"][0] < 0:
            return None
        before, first = int(last_sequences(self.data_before)[0]), int(self.first_batch["base_sequence"][0])
        same_epoch = self.first_batch["producer_epoch"][0] == self.data_before["producer_epoch"][0]
        return bool(same_epoch and before >= 0 and first == (before + 1) % 2**31)

    @property
    def brokers_time_before(self) -> dt.datetime | None:
        """The last broker time before the start offset; the transaction is younger."""
        headers = self.excerpt.headers
        return _broker_time(headers[: bisect_left(headers["last_offset"], self.start)][-1000:][::-1])

    @property
    def brokers_time_after(self) -> dt.datetime | None:
        """The first broker time after the start offset; the transaction is older."""
        headers = self.excerpt.headers
        return _broker_time(headers[bisect_right(headers["base_offset"], self.start) :])

    @property
    def brokers_times(self) -> list[float]:
        """All brokers' times in the excerpt, in the order of the log, in ms."""
        times = self.excerpt.headers["max_timestamp"][self.excerpt.has_brokers_time]
        found: list[float] = times.astype(float).tolist()
        return found

    def entry(self, name: str, batch: Headers) -> EvidenceEntry:
        """The first batch as evidence."""
        (header,) = batch[:1]
        kind = NAMES.get(int(header["marker"]), "batch") if header["attributes"] & CONTROL else "batch"
        text = f"offsets {header['base_offset']}..{header['last_offset']}: {kind}, epoch {header['producer_epoch']}"
        if kind == "batch":
            count = header["record_count"]
            text += f", sequence {header['base_sequence']}, {count} record{'' if count == 1 else 's'}"
        else:
            text += f", coordinator epoch {header['coordinator_epoch']}"
        time = utc(int(header["max_timestamp"]))
        text += f", leader epoch {header['leader_epoch']}" + (f", {time.isoformat()}" if time else "")
        return EvidenceEntry(
            source=self.excerpt.source,
            broker_id=self.excerpt.broker_id,
            observed_at=self.excerpt.observed_at,
            name=name,
            value=text,
        )


def producer_batches(excerpt: Excerpt, producer_id: int, start: int) -> ProducerBatches:
    """The batches of a producer in an excerpt; `start` is the first offset of its open transaction."""
    own = excerpt.headers[excerpt.headers["producer_id"] == producer_id]
    data = own[own["attributes"] & (CONTROL | TRANSACTIONAL) == TRANSACTIONAL]
    markers = own[(own["attributes"] & CONTROL != 0) & ((own["marker"] == ABORT) | (own["marker"] == COMMIT))]
    return ProducerBatches(
        excerpt=excerpt,
        producer_id=producer_id,
        start=start,
        first_batch=data[(data["base_offset"] <= start) & (data["last_offset"] >= start)][:1],
        open_data=data[data["last_offset"] >= start],
        data_before=data[data["last_offset"] < start][-1:],
        markers_before=markers[markers["base_offset"] < start],
        markers_after=markers[markers["base_offset"] > start],
    )


def _broker_time(headers: Headers) -> dt.datetime | None:
    """The first time by a broker's clock: that of a marker, or of a batch under LogAppendTime."""
    for start in range(0, len(headers), 1000):  # it is usually near the start
        chunk = headers[start : start + 1000]
        by_broker = (chunk["attributes"] & (CONTROL | LOG_APPEND_TIME) != 0) & (chunk["max_timestamp"] >= 0)
        if by_broker.any():
            return utc(int(chunk["max_timestamp"][by_broker.argmax()]))
    return None


class ExcerptStart(NamedTuple):
    """Where the log of a partition is read: around the lowest open transaction that needs it and is still in the log.

    `tp`, `leader`: the partition, also as its leader has it.
    `offset`: first offset of that transaction that is still in the log.
    `producer_ids`: the producers of its transactions, whose markers before the offset are searched.
    """

    tp: TopicPartition
    leader: Partition
    offset: int
    producer_ids: frozenset[int]


def excerpt_starts(cases: Iterable[Case]) -> list[ExcerptStart]:
    """Where the logs of cases are read: each partition from its lowest transaction on, in the order of the cases."""
    by_partition: defaultdict[TopicPartition, list[Case]] = defaultdict(list)
    for each in cases:
        by_partition[each.tp].append(each)
    return [
        ExcerptStart(
            tp=tp,
            leader=opened[0].leader,
            offset=max(
                opened[0].leader.log_start_offset or 0, min(each.start for each in opened if each.start is not None)
            ),
            producer_ids=frozenset(each.producer_id for each in opened),
        )
        for tp, opened in by_partition.items()
    ]


MAX_OFFSETS = 20_000  # to read of each partition, from the time of the open records on
MOST_OFFSETS = 200_000  # where a marker of their transaction may be after these
MAX_PARTITIONS = 1_000
NONE: Mapping[TopicPartition, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSearchPlan:
    """Which partitions to read for markers of which open transactions, and what is not read, by producer id.

    `ahead`: as in `MarkerSearch`. `states`: the producers as leaders had them before, by partition and producer id.
    """

    partitions: Mapping[TopicPartition, Sequence[Case]]
    unread: Mapping[int, str]
    ahead: Mapping[int, Producer]
    states: Mapping[tuple[TopicPartition, int], Producer] = field(default_factory=dict)


def plan_marker_search(
    cases: Iterable[Case],
    producers: Iterable[Producer],
    *,
    partitions: Collection[TopicPartition],
    unread: Mapping[TopicPartition, str] = NONE,
) -> MarkerSearchPlan:
    """Plan which partitions are read for markers of open transactions: where their producers have written since.

    A leader forgets a producer that is idle for a day (producer.id.expiration.ms); the coordinators' records then name
    partitions that may have its markers all the same.

    `cases`: open transactions that no coordinator will end.
    `producers`: where the producers have written; error rows count if the coordinators' records name the partition.
    `partitions`: those that exist, and can be read.
    `unread`: partitions that were not read, and why; likewise.
    """
    of_producer: dict[int, str] = {}
    failed = {tp: f"{tp.topic}-{tp.partition} could not be read ({why})" for tp, why in unread.items()}
    written: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
    highest: dict[int, Producer] = {}
    states: dict[tuple[TopicPartition, int], Producer] = {}
    cases = list(cases)
    open_ids = {case.producer_id for case in cases}
    for each in producers:
        if each.error:
            failed[each.tp] = f"{each.topic}-{each.partition} could not be read ({Error.of(each.error).code})"
        elif each.topic != STATE_TOPIC and each.producer_id is not None and each.producer_epoch is not None:
            written[each.producer_id].append((each.producer_epoch, each.tp))
            if each.producer_id in open_ids:
                states[each.tp, each.producer_id] = each
            before = highest.get(each.producer_id)
            if before is None or each.producer_epoch > (before.producer_epoch or 0):
                highest[each.producer_id] = each
    known: defaultdict[TopicPartition, list[Case]] = defaultdict(list)
    ahead: dict[int, Producer] = {}
    for case in cases:
        newest, recorded = highest.get(case.producer_id), case.highest_epoch
        if newest is not None and recorded is not None and (newest.producer_epoch or 0) > recorded:
            ahead[case.producer_id] = newest
        producer_id, epoch = case.producer_id, case.epoch
        others = [each for each in written[producer_id] if each[1] != case.tp]
        # Those with the epoch of the open records, or a higher one, may have a marker of their transaction.
        nearest = [tp for _, tp in sorted(others, key=lambda each: (each[0] < epoch, each))]
        forgotten = case.recorded_partitions & {*partitions} - {case.tp, *nearest, *failed}
        for tp in (*nearest, *sorted(forgotten)):
            if tp in known or len(known) < MAX_PARTITIONS:
                known[tp].append(case)
            else:
                of_producer[producer_id] = f"more than {MAX_PARTITIONS:,} partitions would have to be read"
        for tp in sorted(case.recorded_partitions & failed.keys()):
            of_producer[producer_id] = failed[tp]
    return MarkerSearchPlan(partitions=known, unread=of_producer, ahead=ahead, states=states)


def named_topics(cases: Iterable[Case]) -> set[str]:
    """The topics of the open transactions, and those that their coordinators' records name."""
    cases = list(cases)
    named = {topic for case in cases for record in case.records for topic, _ in record.topic_partitions or ()}
    return named | {case.tp[0] for case in cases}


def search_from(cases: Iterable[Case]) -> dt.datetime | None:
    """From when on markers of these open transactions are looked for; null if that is not known.

    A broker's time before their records, as markers come after them; else that of their producer's InitProducerId.
    """
    times = [case.opened_after or case.begun_after for case in cases]
    known = [time for time in times if time is not None]
    return min(known) - BEFORE_OPENING if len(known) == len(times) else None


LAST_EPOCH = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTime:
    """A time that the partition's leader wrote: of a marker, or of a batch under LogAppendTime."""

    time: float  # in ms
    leader_epoch: int
    is_exact: bool  # whether it is the append's; markers and offsets are appended a little after their time


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """Consecutive open batches of the producer of which the same is known."""

    first_offset: int
    last_offset: int | None  # null if they may go on beyond what was read
    lowest_epoch: int
    highest_epoch: int
    after: LogTime | None  # the last broker's time before them in the log; null if none was read
    before: LogTime | None  # the first broker's time after them
    # written_at, written_until: the earliest and the latest time by their client, in ms; null if none was read
    written_at: float | None = None
    written_until: float | None = None

    @property
    def epoch(self) -> int | None:
        """Their epoch; null if it is not known."""
        return self.lowest_epoch if self.lowest_epoch == self.highest_epoch else None

    @property
    def offsets(self) -> str:
        """``offsets 4 to 9``."""
        return offsets_text(self.first_offset, self.last_offset)


def offsets_text(first: int, last: int | None) -> str:
    """``offset 4``, ``offsets 4 to 9``, or ``offsets from 4 on``."""
    if last is None:
        return f"offsets from {first} on"
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def open_parts(case: Case) -> Sequence[OpenPart]:
    """The open batches in offset order; those that were not read are a part of unknown batches at the end."""
    batches = case.batches
    highest = LAST_EPOCH if case.epoch < 0 else case.epoch
    if batches is None or not len(batches.open_data):
        lowest = -1 if case.first_epoch is None else case.first_epoch
        return [_unread_part(case.start or 0, lowest, highest, after=None)]
    headers, data = batches.excerpt.headers, batches.open_data
    timed: Headers = headers[batches.excerpt.has_brokers_time]
    # A batch that has a broker's time of its own is at that time, neither before nor after it.
    before = timed["base_offset"].searchsorted(data["base_offset"], side="left")
    after = timed["base_offset"].searchsorted(data["base_offset"], side="right") - 1
    epochs = data["producer_epoch"]
    changes = (np.diff(before) != 0) | (np.diff(after) != 0) | (np.diff(epochs) != 0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    stops = [*starts[1:], len(data)]
    parts = [
        OpenPart(
            first_offset=max(int(data["base_offset"][start]), case.start or 0),
            last_offset=int(data["last_offset"][stop - 1]),
            lowest_epoch=int(epochs[start]),
            highest_epoch=int(epochs[start]),
            after=_brokers_time(timed, int(after[start])),
            before=_brokers_time(timed, int(before[start])),
            written_at=min(times, default=None),
            written_until=max(times, default=None),
        )
        for start, stop in zip(starts, stops, strict=True)
        for times in [[time for time in data["max_timestamp"][start:stop].tolist() if time >= 0]]
    ]
    end = case.leader.high_watermark if case.leader.high_watermark is not None else case.leader.log_end_offset
    is_cut = end is not None and batches.excerpt.stop < end
    if (is_cut or not _has_last(data, case.producer)) and not len(batches.markers_after):
        latest = _brokers_time(timed, len(timed) - 1)
        parts.append(_unread_part(batches.excerpt.stop, parts[-1].highest_epoch, highest, after=latest))
    return parts


def _has_last(data: Headers, state: Producer) -> bool:
    """Whether the last batch by the producer's state is among these; one that is not replicated yet is not."""
    if state.last_sequence is None:
        return True
    is_last = (data["producer_epoch"] == state.producer_epoch) & (last_sequences(data) == state.last_sequence)
    return bool(is_last.any())


def _unread_part(first_offset: int, lowest: int, highest: int, *, after: LogTime | None) -> OpenPart:
    return OpenPart(
        first_offset=first_offset,
        last_offset=None,
        lowest_epoch=lowest,
        highest_epoch=max(lowest, highest),
        after=after,
        before=None,
    )


def _brokers_time(timed: Headers, index: int) -> LogTime | None:
    if not 0 <= index < len(timed):
        return None
    return LogTime(
        time=float(timed["max_timestamp"][index]),
        leader_epoch=int(timed["leader_epoch"][index]),
        is_exact=bool(timed["attributes"][index] & (CONTROL | LOG_APPEND_TIME) == LOG_APPEND_TIME),
    )
