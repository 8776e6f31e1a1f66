"""Named invariants of every intact log, and the batches that violate them.

A violation is a row, not an exception, because it is evidence. What Kafka does itself is no violation: a marker without
data (an empty transaction), the next transaction with the same epoch (before transaction version 2), offsets and
sequence numbers that compaction removed.

Sources: ``ProducerAppendInfo``, ``LogValidator`` and ``UnifiedLog`` in Kafka; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from toolkit.analysis.coordinator.transaction_states import IdReplica, is_allowed, replica_of, state_of
from toolkit.analysis.log.producer_order import OrderViolation, ProducerOrder, is_of_producer
from toolkit.analysis.log.stable_sort import take_rows
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import HEADER, Array, Header, HeaderField, Headers
from toolkit.schema.log import TransactionLogRecord, Violation

INVARIANTS: Mapping[str, str] = MappingProxyType(
    {
        "position": "A batch starts where the one before it in the file ends.",
        "offset_order": "A batch begins after the last offset of the one before it.",
        "offset_gap": "Offsets have no gaps, except after compaction.",
        "offset_range": "The last offset of a batch is not before its first.",
        "record_count": "A batch has one record for each of its offsets; after compaction it may have fewer.",
        "crc": "The bytes of a batch match its checksum.",
        "leader_epoch": "The leader epoch never decreases.",
        "producer_epoch": "The epoch of a producer never decreases.",
        "sequence": "A producer's sequence numbers increase by one, and start at 0 in each epoch.",
        "late_batch": "No transactional batch is written in an epoch that a marker has ended for good.",
        "coordinator_epoch": "The coordinator epoch in a producer's markers never decreases.",
        "coordinator_state": "A transactional id changes its state only as its coordinator allows.",
        "coordinator_producer_epoch": "The epoch that a coordinator writes for a producer id never decreases.",
        "coordinator_producer_id": "A transactional id changes its producer id only at InitProducerId or at a "
        "transaction's end.",
    }
)
"""Invariant to its description."""

AT_ONCE = 1000  # rows of one invariant; then one row per range counts the others
BLOCK = 65_536  # batches at once, so that their columns stay in the processor's cache
REMEMBERED = 500_000  # batches of producers, a few of each; a dropped producer counts as new
NOTHING: Headers = np.zeros(0, HEADER)


class InvariantChecker:
    """Checks the batches of one partition, range by range in the order of the log.

    Parameters
    ----------
    topic, partition, broker_id
        Location of the batches, copied into the violations.
    compacted
        Whether the log cleaner may have cleaned the log: then offsets and sequences may have gaps.

    Examples
    --------
    >>> checker = InvariantChecker(topic="orders", partition=0)
    >>> for part in scan_file(path):  # doctest: +SKIP
    ...     violations += checker.check(part.headers, file=path)
    """

    def __init__(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        compacted: bool = False,
    ) -> None:
        self._topic, self._partition, self._broker_id = topic, partition, broker_id
        self._compacted = compacted
        self._last: Headers = NOTHING
        self._last_file: str | None = None
        self._leader_epoch = -1
        self._of_producers: Headers = NOTHING
        self._reported: Counter[str] = Counter()

    def check(self, headers: Headers, *, file: str | None = None) -> list[Violation]:
        """Violations of the next batches.

        After a thousand of one invariant, it gets one per range with the number of violations.
        `file`: their file; without one, positions are not checked.
        """
        size = max(BLOCK, self._of_producers.size)
        blocks = [headers[start : start + size] for start in range(0, headers.size, size)]
        return [row for block in blocks for row in self._check(block, file)]

    def _check(self, headers: Headers, file: str | None) -> Iterator[Violation]:
        breaks = [*self._alone(headers), *self._neighbours(headers, file), *self._producers(headers)]
        self._last, self._last_file = headers[-1:].copy(), file
        rows = [found for broken in breaks for found in self._rows(broken, headers, file)]
        yield from (row for _, row in sorted(rows, key=lambda found: found[0]))

    def _alone(self, headers: Headers) -> Iterator[OrderViolation]:
        """Invariants of a single batch."""
        count, first, last = headers["record_count"], headers["base_offset"], headers["last_offset"]
        offsets = last - first + 1
        wrong = (count > offsets) | ((count < offsets) & (not self._compacted))
        wrong &= (headers["magic"] >= 2) & (offsets > 0) & (count >= 0)
        yield OrderViolation(
            "record_count", np.flatnonzero(wrong), lambda i: f"{count[i]} records have {offsets[i]} offsets."
        )
        yield OrderViolation(
            "offset_range", np.flatnonzero(offsets <= 0), lambda i: f"Its offsets are {first[i]} to {last[i]}."
        )
        yield OrderViolation(
            "crc",
            np.flatnonzero(headers["crc_ok"] == 0),
            lambda i: f"The bytes do not match the checksum {headers['crc'][i]:#010x}.",
        )

    def _neighbours(self, headers: Headers, file: str | None) -> Iterator[OrderViolation]:
        """Invariants of a batch and the one before it."""
        first, before = headers["base_offset"], self._shifted(headers, "last_offset")
        known = np.ones(headers.size, np.bool_)
        known[0] = self._last.size > 0
        yield OrderViolation(
            "offset_order", np.flatnonzero(known & (first <= before)), lambda i: f"It follows offset {before[i]}."
        )
        if not self._compacted:
            yield OrderViolation(
                "offset_gap",
                np.flatnonzero(known & (first > before + 1)),
                lambda i: f"{int(first[i]) - int(before[i]) - 1} offsets are missing after {before[i]}.",
            )
        if file is not None:
            end = self._shifted(headers, "position") + self._shifted(headers, "size")
            known[0] &= file == self._last_file
            yield OrderViolation(
                "position",
                np.flatnonzero(known & (headers["position"] != end)),
                lambda i: f"It starts at byte {headers['position'][i]}; the one before it ends at {end[i]}.",
            )
        yield self._leader_epochs(headers["leader_epoch"])

    def _leader_epochs(self, epochs: Array) -> OrderViolation:
        newest = np.maximum.accumulate(np.concatenate(([self._leader_epoch], epochs)))
        self._leader_epoch = int(newest[-1])
        back = (epochs >= 0) & (epochs < newest[:-1])
        return OrderViolation(
            "leader_epoch", np.flatnonzero(back), lambda i: f"Leader epoch {epochs[i]} follows {newest[i]}."
        )

    def _producers(self, headers: Headers) -> Iterator[OrderViolation]:
        """Invariants of a batch and its producer's earlier batches."""
        selected = np.flatnonzero(is_of_producer(headers))
        if not selected.size:
            return
        known = self._of_producers
        is_selected = np.isin(known["producer_id"], headers["producer_id"][selected])
        carried = take_rows(known, np.flatnonzero(is_selected))
        ordered = ProducerOrder(carried, headers, selected, compacted=self._compacted)
        for broken in ordered.breaks():
            yield _in_the_log(broken, ordered.order - carried.size, selected)
        known = np.concatenate((take_rows(known, np.flatnonzero(~is_selected)), ordered.remembered()))
        self._of_producers = known[-REMEMBERED:] if known.size > 2 * REMEMBERED else known

    def _shifted(self, headers: Headers, name: HeaderField) -> Array:
        """A column, shifted by one batch."""
        before = self._last[name] if self._last.size else headers[name][:1]
        return np.concatenate((before, headers[name][:-1]))

    def _rows(self, broken: OrderViolation, headers: Headers, file: str | None) -> Iterator[tuple[int, Violation]]:
        room = max(AT_ONCE - self._reported[broken.invariant], 0)
        self._reported[broken.invariant] += broken.at.size
        for index in broken.at[:room]:
            yield int(index), self._violation(broken.invariant, headers[index], broken.detail(int(index)), file)
        left = broken.at[room:]
        if left.size:
            text = f"This and {left.size - 1} more up to offset {headers['base_offset'][left[-1]]}."
            yield int(left[0]), self._violation(broken.invariant, headers[left[0]], text, file)

    def _violation(self, invariant: str, header: Header, detail: str, file: str | None) -> Violation:
        producer_id = int(header["producer_id"])
        return Violation(
            invariant=invariant,
            topic=self._topic,
            partition=self._partition,
            offset=int(header["base_offset"]),
            producer_id=None if producer_id < 0 else producer_id,
            detail=detail,
            broker_id=self._broker_id,
            file=file,
            position=None if file is None else int(header["position"]),
        )


def _in_the_log(broken: OrderViolation, order: Array, selected: Array) -> OrderViolation:
    """Turn a violation of sorted batches into one of the checked batches, without the carried ones."""
    at = broken.at[order[broken.at] >= 0]
    by_batch = dict(zip(selected[order[at]].tolist(), at.tolist(), strict=True))
    return OrderViolation(broken.invariant, np.array(sorted(by_batch), np.int64), lambda i: broken.detail(by_batch[i]))


def event_violations(events: Iterable[TransactionLogRecord]) -> list[Violation]:
    """Violations in the records of coordinators.

    `events`: the records, in offset order within a partition; compacted or not. An unreadable record is no violation,
    and the next record is not compared with earlier ones.
    """
    last: dict[IdReplica, TransactionLogRecord] = {}
    found: list[Violation] = []
    for event in events:
        replica = replica_of(event)
        if event.transactional_id is None:
            if event.error:
                last = {each: record for each, record in last.items() if each[1:] != replica[1:]}
            continue
        before = last.pop(replica, None)
        if event.error:
            continue
        last[replica] = event
        if before is not None:
            found += [
                Violation(
                    invariant=name,
                    topic=STATE_TOPIC,
                    partition=event.txn_state_partition,
                    offset=event.offset,
                    producer_id=event.producer_id,
                    transactional_id=event.transactional_id,
                    detail=detail,
                    broker_id=event.broker_id,
                    file=event.file,
                    position=event.position,
                )
                for name, detail in _steps(before, event)
            ]
    return found


def _steps(before: TransactionLogRecord, event: TransactionLogRecord) -> Iterator[tuple[str, str]]:
    """Violations of a record, compared with the one before it."""
    state, last_state = state_of(event), state_of(before)
    if not is_allowed(before, event):
        yield "coordinator_state", f"{state} follows {last_state} at offset {before.offset}."
    if before.tombstone or event.tombstone:
        return
    last_id, producer_id = before.producer_id, event.producer_id
    last_epoch, epoch = before.producer_epoch, event.producer_epoch
    if producer_id != last_id and state not in {"Empty", "CompleteCommit", "CompleteAbort"}:
        yield "coordinator_producer_id", f"{state} has producer id {producer_id}; the record before it has {last_id}."
    if producer_id == last_id and epoch is not None and last_epoch is not None and epoch < last_epoch:
        yield "coordinator_producer_epoch", f"Epoch {epoch} of producer {producer_id} follows {last_epoch}."
