"""An index of the records of ``__transaction_state`` in a log, which finds those of some ids."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from toolkit.formats.coordinator.coordinator_log_rows import CODEC, FIELDS, locate, transaction_log
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Headers
from toolkit.formats.log.scan import SegmentBytes, in_pieces
from toolkit.formats.log_paths import log_path
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord

ENTRY = np.dtype([("key", "i4"), ("file", "i4"), ("size", "i4"), ("position", "i8"), ("producer_id", "i8")])


R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord)


class RecordIndex:
    """Indexes the batches of a partition in order.

    Takes about 30 bytes of memory per record, and the decoded rows of records that cannot be located.

    Parameters
    ----------
    where
        A record that has only partition and broker; null where none is decoded.

    Attributes
    ----------
    errors
        What could not be read.
    """

    def __init__(self, where: TransactionLogRecord | None = None) -> None:
        self._where = where or TransactionLogRecord()
        self.errors: list[TransactionLogRecord] = []
        self._numbers: dict[bytes, int] = {}  # of each key
        self._files: list[str] = []
        self._decoded: dict[int, TransactionLogRecord] = {}  # by entry: records that cannot be located
        self._chunks: list[npt.NDArray[np.void]] = []
        self._count = 0
        self._neighbours: list[tuple[int, int]] = []  # previous and next producer ids, with the key's number

    def add(self, headers: Headers, pieces: SegmentBytes, file: str) -> None:
        """Add the next batches. `pieces`: bytes that contain most of the batches; the others are read from the file."""
        headers = headers[headers["attributes"] & CONTROL == 0]
        if not self._files or self._files[-1] != file:
            self._files.append(file)
        for some, begin, buf in in_pieces(headers, pieces, file):
            positions = some["position"] - begin
            plain = (some["record_count"] == 1) & (some["attributes"] & CODEC == 0) & (some["magic"] == 2)
            plain &= some["crc_ok"] == 1
            found = np.zeros((len(some), FIELDS), np.int64)
            found[plain] = locate(buf, positions[plain], (positions + some["size"])[plain])
            first = 0
            for odd in [*np.flatnonzero(found[:, 0] == 0).tolist(), len(some)]:
                self._add_located(some[first:odd], found[first:odd], buf)
                for position in some["position"][odd : odd + 1].tolist():
                    for record in self._decoded_at(buf, position - begin, file, position):
                        self.add_record(record)
                first = odd + 1

    def _add_located(self, headers: Headers, found: npt.NDArray[np.int64], buf: bytes) -> None:
        known = self._numbers
        keys = zip(found[:, 0].tolist(), found[:, 1].tolist(), strict=True)
        numbers = [known.setdefault(buf[start:end], len(known)) for start, end in keys]
        entries = np.empty(len(numbers), ENTRY)
        entries["key"], entries["file"] = numbers, len(self._files) - 1
        entries["size"], entries["position"] = headers["size"], headers["position"]
        entries["producer_id"] = found[:, 2]
        self._chunks.append(entries)
        self._count += len(entries)
        for column in (3, 4):
            others = np.flatnonzero((found[:, column] >= 0) & (found[:, column] != found[:, 2]))
            self._neighbours += zip(found[others, column].tolist(), (numbers[row] for row in others), strict=True)

    def _decoded_at(self, buf: bytes, at: int, file: str, begin: int) -> Iterator[TransactionLogRecord]:
        return transaction_log(buf, at, where=replace(self._where, file=file), begin=begin)

    def add_record(self, record: TransactionLogRecord) -> None:
        """Add the next record decoded, or what could not be read."""
        if record.transactional_id is None:
            self.errors.append(record)
            return
        self._decoded[self._count] = record
        number = self._numbers.setdefault(_key(record.transactional_id), len(self._numbers))
        producer_id = -1 if record.producer_id is None else record.producer_id
        self._chunks.append(np.array([(number, len(self._files) - 1, 0, 0, producer_id)], ENTRY))
        self._count += 1
        other_ids = (record.previous_producer_id, record.next_producer_id)
        self._neighbours += [(each, number) for each in other_ids if each is not None]

    def newest(self) -> Iterator[TransactionLogRecord]:
        """The newest record of each id, in log order."""
        _, from_the_end = np.unique(self._entries["key"][::-1], return_index=True)
        return self._records(np.sort(self._count - 1 - from_the_end))

    def records(self, transactional_ids: Collection[str]) -> Iterator[TransactionLogRecord]:
        """Read errors, then every record of these ids in log order."""
        yield from self.errors
        key_numbers = [self._numbers.get(_key(name), -1) for name in transactional_ids]
        yield from self._records(np.flatnonzero(np.isin(self._entries["key"], key_numbers)))

    def ids_of(self, producer_ids: Collection[int]) -> set[str]:
        """Ids with a record that has one of these producer ids as its own, previous or next producer id."""
        own = np.isin(self._entries["producer_id"], list(producer_ids))
        numbers = set(self._entries["key"][own].tolist())
        numbers |= {number for producer_id, number in self._neighbours if producer_id in producer_ids}
        return {key[4:].decode(errors="replace") for key, number in self._numbers.items() if number in numbers}

    @property
    def _entries(self) -> npt.NDArray[np.void]:
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate([np.empty(0, ENTRY), *self._chunks])]
        return self._chunks[0]

    def _records(self, numbers: npt.NDArray[np.int64]) -> Iterator[TransactionLogRecord]:
        found = zip(numbers.tolist(), self._entries[numbers].tolist(), strict=True)
        for file_id, of_file in groupby(found, key=lambda each: each[1][1]):
            if file_id < 0:
                yield from (self._decoded[number] for number, _ in of_file)
                continue
            file = self._files[file_id]
            try:
                with log_path(file).open("rb") as segment:
                    for number, (_, _, size, position, _) in of_file:
                        if number in self._decoded:
                            yield self._decoded[number]
                            continue
                        segment.seek(position)
                        yield from self._decoded_at(segment.read(size), 0, file, position)
            except OSError as exc:
                yield replace(self._where, file=file, error=f"UNREADABLE: {exc.strerror}.")


def _key(transactional_id: str) -> bytes:
    """``TransactionLogKey``: version 0, length, transactional id. A key of another version is never taken for it."""
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def between(records: Iterable[R], start: int | None, stop: int | None) -> Iterator[R]:
    """The records with an offset in ``start <= offset < stop``, and what could not be read."""
    for record in records:
        offset = record.offset
        if offset is None or ((start is None or offset >= start) and (stop is None or offset < stop)):
            yield record
