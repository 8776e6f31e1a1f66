"""The batches of one producer around the start of its open transaction."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.analysis.log.log_transactions import last_sequences
from toolkit.formats.log.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, Headers
from toolkit.schema import Row, utc

__all__ = ["ProducerBatches", "have_ended"]

NAMES = {ABORT: "ABORT", COMMIT: "COMMIT"}


def have_ended(headers: Headers, producer_ids: Collection[int]) -> bool:
    """Whether each of these producers has a control batch among the headers."""
    ended = headers["producer_id"][headers["attributes"] & CONTROL != 0]
    return bool(np.isin(list(producer_ids), ended).all())


@dataclass(frozen=True)
class ProducerBatches:
    """A producer's batches and markers in an excerpt.

    Parameters
    ----------
    excerpt
        The excerpt of the partition's log.
    producer_id
        Id of the producer.
    start
        First offset of its open transaction.
    """

    excerpt: Excerpt
    producer_id: int
    start: int

    @cached_property
    def _own(self) -> Headers:
        own: Headers = self.excerpt.headers[self.excerpt.headers["producer_id"] == self.producer_id]
        return own

    @cached_property
    def data(self) -> Headers:
        """Its transactional batches."""
        data: Headers = self._own[self._own["attributes"] & (CONTROL | TRANSACTIONAL) == TRANSACTIONAL]
        return data

    @cached_property
    def markers(self) -> Headers:
        """Its COMMIT and ABORT markers."""
        control = self._own[self._own["attributes"] & CONTROL != 0]
        markers: Headers = control[(control["marker"] == ABORT) | (control["marker"] == COMMIT)]
        return markers

    @cached_property
    def first_batch(self) -> Headers:
        """The batch that contains the start offset: one or none."""
        found = (self.data["base_offset"] <= self.start) & (self.data["last_offset"] >= self.start)
        return self.data[found][:1]

    @cached_property
    def open_data(self) -> Headers:
        """Its batches from the start offset on."""
        return self.data[self.data["last_offset"] >= self.start]

    @cached_property
    def marker_before(self) -> Headers:
        """Its last marker before the start offset: one or none."""
        return self.markers[self.markers["base_offset"] < self.start][-1:]

    @cached_property
    def data_before(self) -> Headers:
        """Its last batch before the start offset: one or none."""
        return self.data[self.data["last_offset"] < self.start][-1:]

    @cached_property
    def markers_after(self) -> Headers:
        """Its markers after the start offset; the first one ended the transaction."""
        return self.markers[self.markers["base_offset"] > self.start]

    @property
    def foreign_opening(self) -> Headers:
        """The batch of another producer that contains the start offset: one or none."""
        headers = self.excerpt.headers
        at_start = (headers["base_offset"] <= self.start) & (headers["last_offset"] >= self.start)
        foreign: Headers = headers[at_start & (headers["producer_id"] != self.producer_id)][:1]
        return foreign

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
    def brokers_time_first(self) -> dt.datetime | None:
        """The first broker time in the excerpt."""
        return _broker_time(self.excerpt.headers)

    def entry(self, name: str, batch: Headers) -> Row:
        """The first batch as a row of the evidence column."""
        (header,) = batch[:1]
        kind = NAMES.get(int(header["marker"]), "batch") if header["attributes"] & CONTROL else "batch"
        text = f"offsets {header['base_offset']}..{header['last_offset']}: {kind}, epoch {header['producer_epoch']}"
        if kind == "batch":
            text += f", sequence {header['base_sequence']}, {header['record_count']} records"
        else:
            text += f", coordinator epoch {header['coordinator_epoch']}"
        time = utc(int(header["max_timestamp"]))
        text += f", leader epoch {header['leader_epoch']}" + (f", {time.isoformat()}" if time else "")
        return {
            "source": self.excerpt.source,
            "broker_id": self.excerpt.broker_id,
            "observed_at": self.excerpt.observed_at,
            "name": name,
            "value": text,
        }


def _broker_time(headers: Headers) -> dt.datetime | None:
    """The first time by a broker's clock: that of a marker, or of a batch under LogAppendTime."""
    for start in range(0, len(headers), 1000):  # it is usually near the start
        chunk = headers[start : start + 1000]
        by_broker = (chunk["attributes"] & (CONTROL | LOG_APPEND_TIME) != 0) & (chunk["max_timestamp"] >= 0)
        if by_broker.any():
            return utc(int(chunk["max_timestamp"][by_broker.argmax()]))
    return None
