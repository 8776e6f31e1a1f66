"""Where the records of each transactional id lie in a partition of ``__transaction_state``: what one read leaves."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby

import numpy as np
import numpy.typing as npt

from toolkit.formats.batches import CONTROL
from toolkit.formats.events import unread_records
from toolkit.formats.headers import Headers
from toolkit.formats.records import STATE_TOPIC
from toolkit.formats.transaction_records import FIELDS, locate
from toolkit.schema import Row
from toolkit.sources.logdir.batches import Pieces, in_pieces

__all__ = ["Decode", "RecordIndex"]

Decode = Callable[[bytes, int, int, str], Iterator[Row]]

CODEC = 0x07


class RecordIndex:
    """Follows the batches of a partition in order: some 30 bytes of memory a record, and what cannot be located.

    Parameters
    ----------
    decode
        From bytes, the position of a batch in them, its position in the file, and the file, to rows of
        ``schema.COORDINATOR_EVENTS``; null where rows are all that there is.

    Attributes
    ----------
    errors
        Rows of what could not be read.
    """

    def __init__(self, decode: Decode | None = None) -> None:
        self._decode = decode or _no_bytes
        self.errors: list[Row] = []
        self._numbers: dict[bytes, int] = {}  # of each key
        self._files: list[str] = []
        self._rows: dict[int, Row] = {}  # by entry: those that were added as rows
        self._keys, self._file_ids, self._sizes = array("i"), array("i"), array("i")
        self._positions, self._producers = array("q"), array("q")
        self._neighbours: list[tuple[int, int]] = []  # previous and next producer ids, with the key's number

    def add(self, headers: Headers, pieces: Pieces, file: str) -> None:
        """The next batches.

        Parameters
        ----------
        headers
            Of batches in the order of the log.
        pieces
            In which most of them lie; the others are read.
        file
            The segment.
        """
        headers = headers[headers["attributes"] & CONTROL == 0]
        if not self._files or self._files[-1] != file:
            self._files.append(file)
        for some, begin, buf in in_pieces(headers, pieces, file):
            self._add(some, buf, begin, file)

    def _add(self, headers: Headers, buf: bytes, begin: int, file: str) -> None:
        positions = headers["position"] - begin
        plain = (headers["record_count"] == 1) & (headers["attributes"] & CODEC == 0) & (headers["magic"] == 2)
        plain &= headers["crc_ok"] == 1
        found = np.zeros((len(headers), FIELDS), np.int64)
        found[plain] = locate(buf, positions[plain], (positions + headers["size"])[plain])
        first = 0
        for odd in [*np.flatnonzero(found[:, 0] == 0).tolist(), len(headers)]:
            self._add_located(headers[first:odd], found[first:odd], buf)
            for position in headers["position"][odd : odd + 1].tolist():
                for row in self._decode(buf, position - begin, position, file):
                    self.add_row(row)
            first = odd + 1

    def _add_located(self, headers: Headers, found: npt.NDArray[np.int64], buf: bytes) -> None:
        numbers, known = [], self._numbers
        for start, end in found[:, :2].tolist():
            numbers.append(known.setdefault(buf[start:end], len(known)))
        self._keys.extend(numbers)
        self._file_ids.extend([len(self._files) - 1] * len(numbers))
        self._sizes.extend(headers["size"].tolist())
        self._positions.extend(headers["position"].tolist())
        self._producers.extend(found[:, 2].tolist())
        for column in (3, 4):
            others = np.flatnonzero((found[:, column] >= 0) & (found[:, column] != found[:, 2]))
            self._neighbours += zip(found[others, column].tolist(), (numbers[row] for row in others), strict=True)

    def add_row(self, row: Row) -> None:
        """The next record, decoded already; or what could not be read."""
        if row.get("transactional_id") is None:
            self.errors.append(row)
            return
        self._rows[len(self._keys)] = row
        number = self._numbers.setdefault(_key(row["transactional_id"]), len(self._numbers))
        self._keys.append(number)
        self._file_ids.append(len(self._files) - 1)
        self._sizes.append(0)
        self._positions.append(0)
        self._producers.append(-1 if row["producer_id"] is None else row["producer_id"])
        named = (row["previous_producer_id"], row["next_producer_id"])
        self._neighbours += [(each, number) for each in named if each is not None]

    def newest(self) -> Iterator[Row]:
        """The newest record of each id, in the order of the log."""
        return self._decoded(sorted({number: entry for entry, number in enumerate(self._keys)}.values()))

    def records(self, transactional_ids: Collection[str]) -> Iterator[Row]:
        """Every record of these ids in the order of the log, and before them what could not be read."""
        yield from self.errors
        wanted = [self._numbers.get(_key(name), -1) for name in transactional_ids]
        yield from self._decoded(np.flatnonzero(np.isin(np.array(self._keys, np.int32), wanted)).tolist())

    def ids_of(self, producer_ids: Collection[int]) -> set[str]:
        """Ids of which a record names one of these producer ids: as its own, its previous or its next one."""
        own = np.isin(np.array(self._producers, np.int64), list(producer_ids))
        numbers = set(np.array(self._keys, np.int32)[own].tolist())
        numbers |= {number for producer_id, number in self._neighbours if producer_id in producer_ids}
        return {key[4:].decode(errors="replace") for key, number in self._numbers.items() if number in numbers}

    def _decoded(self, entries: Iterable[int]) -> Iterator[Row]:
        for file_id, of_file in groupby(entries, key=self._file_ids.__getitem__):
            if file_id < 0:
                yield from (self._rows[entry] for entry in of_file)
                continue
            file = self._files[file_id]
            try:
                with open(file, "rb") as segment:
                    for entry in of_file:
                        if entry in self._rows:
                            yield self._rows[entry]
                            continue
                        position = self._positions[entry]
                        segment.seek(position)
                        yield from self._decode(segment.read(self._sizes[entry]), 0, position, file)
            except OSError as exc:
                yield unread_records(STATE_TOPIC, None, error=f"UNREADABLE: {exc.strerror}.", file=file)


def _key(transactional_id: str) -> bytes:
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def _no_bytes(buf: bytes, position: int, file_position: int, file: str) -> Iterator[Row]:
    return iter(())
