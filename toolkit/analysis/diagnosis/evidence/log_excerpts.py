"""Log evidence of a finding: an excerpt of the partition's log, a producer's batches in it, coordinators' records."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from toolkit.analysis.diagnosis import clocks
from toolkit.analysis.log.log_transactions import last_sequences
from toolkit.formats.log.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, Headers
from toolkit.schema import utc
from toolkit.schema.live import EvidenceEntry

CLOCKS_DIFFER = clocks.CLOCKS_DIFFER
NAMES = {ABORT: "ABORT", COMMIT: "COMMIT"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """The part of a partition's log around the first offset of an open transaction.

    `headers`: structured array of `toolkit.formats.log.headers.HEADER`: every batch that contains an offset of ``start
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
    def foreign_opening(self) -> Headers:
        """The batch of another producer that contains the start offset: one or none."""
        headers = self.excerpt.headers
        at_start = (headers["base_offset"] <= self.start) & (headers["last_offset"] >= self.start)
        foreign: Headers = headers[at_start & (headers["producer_id"] != self.producer_id)][:1]
        return foreign

    @property
    def foreign_producer_id(self) -> int | None:
        """The producer of `foreign_opening`; null if there is none."""
        return int(self.foreign_opening["producer_id"][0]) if len(self.foreign_opening) else None

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
