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
    """Whether every one of these producers has a control batch among the headers."""
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
        """The batch that holds the start offset: one, or none."""
        found = (self.data["base_offset"] <= self.start) & (self.data["last_offset"] >= self.start)
        return self.data[found][:1]

    @cached_property
    def open_data(self) -> Headers:
        """Its batches from the start offset on."""
        return self.data[self.data["last_offset"] >= self.start]

    @cached_property
    def marker_before(self) -> Headers:
        """Its last marker before the start offset: one, or none."""
        return self.markers[self.markers["base_offset"] < self.start][-1:]

    @cached_property
    def data_before(self) -> Headers:
        """Its last batch before that: one, or none."""
        return self.data[self.data["last_offset"] < self.start][-1:]

    @cached_property
    def markers_after(self) -> Headers:
        """Its markers after the start offset: then nothing is open any more."""
        return self.markers[self.markers["base_offset"] > self.start]

    @property
    def foreign_opening(self) -> Headers:
        """The batch of another producer that holds the start offset: one, or none."""
        every = self.excerpt.headers
        holds = (every["base_offset"] <= self.start) & (every["last_offset"] >= self.start)
        foreign: Headers = every[holds & (every["producer_id"] != self.producer_id)][:1]
        return foreign

    @property
    def is_late(self) -> bool:
        """Whether the first batch has the epoch of those that the marker before it ended.

        With transaction version 2 a marker has epoch + 1, with which the producer continues at sequence number 0. With
        version 1 the epoch stays, and the next transaction of a healthy producer has the same bytes.
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
        """Whether the first batch has the next sequence number; null if that is not known."""
        if not len(self.first_batch) or not len(self.data_before) or self.first_batch["base_sequence"][0] < 0:
            return None
        before, first = int(last_sequences(self.data_before)[0]), int(self.first_batch["base_sequence"][0])
        same_epoch = self.first_batch["producer_epoch"][0] == self.data_before["producer_epoch"][0]
        return bool(same_epoch and before >= 0 and first == (before + 1) % 2**31)

    @property
    def brokers_time_before(self) -> dt.datetime | None:
        """The broker's time at the last batch before the start offset that has it; the transaction is younger."""
        every = self.excerpt.headers
        return _broker_time(every[: bisect_left(every["last_offset"], self.start)][-1000:][::-1])

    @property
    def brokers_time_after(self) -> dt.datetime | None:
        """The same at the first batch after the start offset; the transaction is older."""
        every = self.excerpt.headers
        return _broker_time(every[bisect_right(every["base_offset"], self.start) :])

    @property
    def brokers_time_first(self) -> dt.datetime | None:
        """The first time of a broker's clock in all that was read."""
        return _broker_time(self.excerpt.headers)

    def entry(self, name: str, batch: Headers) -> Row:
        """One batch as a row of the evidence column."""
        (one,) = batch[:1]
        what = NAMES.get(int(one["marker"]), "batch") if one["attributes"] & CONTROL else "batch"
        text = f"offsets {one['base_offset']}..{one['last_offset']}: {what}, epoch {one['producer_epoch']}"
        if what == "batch":
            text += f", sequence {one['base_sequence']}, {one['record_count']} records"
        else:
            text += f", coordinator epoch {one['coordinator_epoch']}"
        time = utc(int(one["max_timestamp"]))
        text += f", leader epoch {one['leader_epoch']}" + (f", {time.isoformat()}" if time else "")
        return {
            "source": self.excerpt.source,
            "broker_id": self.excerpt.broker_id,
            "observed_at": self.excerpt.observed_at,
            "name": name,
            "value": text,
        }


def _broker_time(headers: Headers) -> dt.datetime | None:
    """Time of the first of them that a broker's clock made: a marker's, or a batch's under LogAppendTime."""
    for at in range(0, len(headers), 1000):  # mostly it is near
        some = headers[at : at + 1000]
        by_broker = (some["attributes"] & (CONTROL | LOG_APPEND_TIME) != 0) & (some["max_timestamp"] >= 0)
        if by_broker.any():
            return utc(int(some["max_timestamp"][by_broker.argmax()]))
    return None
