"""Headers of record batches as arrays: the result of a scan of a segment, a Fetch response or a dump; Arrow columns.

Sources: ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch``, ``ControlRecordType`` and ``EndTransactionMarker`` in
Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_args, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.formats.batches import (
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    read_varint,
)
from toolkit.schema import BATCHES, Table, arrow_type
from toolkit.schema.table import LAST_TIME, UNKNOWN_LOG, LogId

HeaderField = Literal[
    "position",
    "size",
    "base_offset",
    "last_offset",
    "base_timestamp",  # ms, raw; a delete horizon where the attributes say so
    "max_timestamp",
    "producer_id",
    "crc",
    "base_sequence",
    "record_count",
    "leader_epoch",
    "coordinator_epoch",  # of a marker
    "attributes",
    "producer_epoch",
    "marker",  # ABORT, COMMIT, another type of control record, NO_MARKER or UNREAD_MARKER
    "magic",
    "crc_ok",  # 1 right, 0 wrong, -1 not checked
]
_NARROW = {
    "crc": "u4",
    **dict.fromkeys(("base_sequence", "record_count", "leader_epoch", "coordinator_epoch"), "i4"),
    **dict.fromkeys(("attributes", "producer_epoch", "marker"), "i2"),
    **dict.fromkeys(("magic", "crc_ok"), "i1"),
}
HEADER = np.dtype([(name, _NARROW.get(name, "i8")) for name in get_args(HeaderField)])
"""One row per batch in file order; numbers are as written, so -1 means unknown."""

ABORT, COMMIT, SNAPSHOT_FOOTER, NO_MARKER = 0, 1, 4, -1  # ControlRecordType
UNREAD_MARKER = -2  # a control batch whose record was not read: a dump that shows batches only

RAW = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
        ("records", "V43"),  # as much of the first record as a marker takes at most
    ]
)
"""The first bytes of a batch of magic 2; after a shorter batch, of whatever follows it."""
RAW_BYTES = RAW.itemsize

SAME_NAME: list[HeaderField] = [name for name in get_args(HeaderField) if name in (RAW.names or ())]
MESSAGE = np.dtype(  # magic 0, and magic 1, which alone has the time
    {
        "names": ["offset", "crc", "attributes", "timestamp"],
        "formats": [">i8", ">u4", "u1", ">i8"],
        "offsets": [0, 12, 17, 18],
        "itemsize": RAW_BYTES,
    }
)
MARKER = np.dtype(  # where every varint of the record takes one byte, which is how Kafka writes it
    {
        "names": [
            "size",
            "times",
            "key_size",
            "key_version",
            "type",
            "value_size",
            "value_version",
            "coordinator_epoch",
        ],
        "formats": ["u1", "2u1", "u1", ">i2", ">i2", "u1", ">i2", ">i4"],
        "offsets": [HEADER_SIZE + at for at in (0, 2, 4, 5, 7, 9, 10, 12)],
        "itemsize": RAW_BYTES,
    }
)
MARKER_SIZE = HEADER_SIZE + 17

Array = Any
"""A numpy array; with ``NDArray[Any]``, mypy takes half as long again, for numpy's overloads."""

Field = TypeVar("Field", bound=str, contravariant=True)


class StructuredRow(Protocol[Field]):
    """A row of a structured array."""

    def __getitem__(self, field: Field, /) -> Any: ...


class StructuredArray(Protocol[Field]):
    """What mypy knows of a structured numpy array: the names of its fields. Another name is an error."""

    @overload  # in numpy's order, or mypy takes no numpy array for one
    def __getitem__(self, rows: npt.NDArray[Any], /) -> StructuredArray[Field]: ...
    @overload
    def __getitem__(self, row: int, /) -> StructuredRow[Field]: ...
    @overload
    def __getitem__(self, rows: slice | list[int], /) -> StructuredArray[Field]: ...
    @overload
    def __getitem__(self, field: Field, /) -> Array: ...
    def __setitem__(self, key: int | slice | npt.NDArray[Any] | Field, values: Any, /) -> None: ...
    def __array__(self) -> npt.NDArray[Any]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[StructuredRow[Field]]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def size(self) -> int: ...
    def copy(self) -> StructuredArray[Field]: ...
    def tobytes(self) -> bytes: ...
    def tolist(self) -> Any: ...
    def view(self, dtype: npt.DTypeLike, /) -> Array: ...


Headers: TypeAlias = StructuredArray[HeaderField]
"""A structured array of `HEADER`."""
Header: TypeAlias = StructuredRow[HeaderField]
"""A row of it."""


Rows = TypeVar("Rows", bound=StructuredArray[Any])


class DamagedRange(NamedTuple):
    """A range of bytes that is no batch."""

    position: int
    size: int  # how many bytes were skipped
    # ``"NAME: sentence"``: ``TORN_TAIL`` (normal after a crash), ``CORRUPT_BATCH``, ``NOT_A_SEGMENT``, ``UNREADABLE``;
    # for an index ``CORRUPT_ENTRY``; for a dump those of `toolkit.formats.dumps`
    reason: str

    @property
    def is_torn(self) -> bool:
        """Whether a crash, or a broker that is writing, leaves such an end."""
        return self.reason.startswith("TORN_TAIL")

    @property
    def is_unreadable(self) -> bool:
        """Whether the file could not be opened or read; its bytes may be intact."""
        return self.reason.startswith("UNREADABLE")


class LostOffsets(NamedTuple):
    """Offsets that were not read between two batches, and that the cleaner did not remove."""

    expected: int  # the offset after the batches before
    found: int  # the next base offset, of a segment or of a batch; less than `expected` if offsets go back
    # what is missing, as ``NAME: sentence``; null if damaged bytes between the batches have an error of their own
    error: str | None
    damaged: DamagedRange | None = None  # the last range of those bytes

    @property
    def reason(self) -> str:
        """`error`, or that of the damaged bytes, or which offsets these are: a torn end alone is normal."""
        if self.damaged is not None and not self.damaged.is_torn:
            return self.damaged.reason
        return self.error or f"OFFSETS_LOST: Offsets {self.expected:,} to {self.found - 1:,} could not be read"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogChunk:
    """Consecutive batches of a log: their headers, and the ranges of bytes that are none."""

    headers: Headers = field(default_factory=lambda: np.empty(0, HEADER))
    damage: tuple[DamagedRange, ...] = ()  # ranges between or after them
    end: int = 0  # position up to which bytes were scanned
    file: str | None = None  # the file of these bytes; null if a broker sent them
    missing: LostOffsets | None = None  # what is missing before its first batch, if `at_missing_offsets` found it
    # bytes of the file by position, if they were kept: of most batches
    pieces: Sequence[tuple[int, bytes]] = ()


def concatenate(parts: Iterable[Rows], dtype: np.dtype[Any] = HEADER) -> Rows:
    """Concatenate structured arrays of one type, as plain bytes: numpy copies these faster than fields."""
    row = np.dtype(f"V{dtype.itemsize}")
    whole: Any = np.concatenate([np.empty(0, row), *(part.view(row) for part in parts)], dtype=row).view(dtype)
    return whole  # type: ignore[no-any-return]


def take_rows(rows: Rows, indices: Array) -> Rows:
    """Rows of a structured array: ``rows[indices]``, but copied row by row and not field by field."""
    items = rows.view(np.dtype((np.void, rows.dtype.itemsize)))
    taken: Rows = np.take(items, indices).view(rows.dtype)
    return taken


def read_raw_headers(
    first_bytes: npt.NDArray[Any], *, position: npt.NDArray[np.int64], crc_ok: npt.NDArray[np.int8]
) -> Headers:
    """Headers from the first bytes of batches.

    `first_bytes`: the first `RAW_BYTES` of each batch. `position`, `crc_ok`: columns that are not in the bytes.
    """
    raw = first_bytes.view(RAW)
    headers: Headers = np.empty(len(raw), HEADER)
    headers["position"], headers["crc_ok"] = position, crc_ok
    headers["size"] = raw["length"].astype(np.int64) + LENGTH_END
    for name in SAME_NAME:
        headers[name] = raw[name]
    headers["last_offset"] = headers["base_offset"] + raw["last_offset_delta"]
    headers["marker"], headers["coordinator_epoch"] = NO_MARKER, -1
    old = raw["magic"] < 2
    control = np.flatnonzero((headers["attributes"] & CONTROL != 0) & ~old)
    if len(control):
        headers["marker"][control], headers["coordinator_epoch"][control] = _markers(raw[control])
    if old.any():
        _fill_in_messages(headers, raw, np.flatnonzero(old))
    return headers


def _markers(raw: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int32]]:
    """Type and coordinator epoch of control batches."""
    short = raw.view(MARKER)
    is_end = (short["type"] == ABORT) | (short["type"] == COMMIT)
    usual = (
        (raw["attributes"] & 7 == 0)
        & (raw["length"] + LENGTH_END == MARKER_SIZE)
        & (short["size"] == 2 * 16)
        & (short["times"] < 0x80).all(axis=1)
        & (short["key_size"] == 2 * 4)
        & (short["value_size"] == 2 * 6)
        & (short["key_version"] >= 0)
        & (short["value_version"] >= 0)
        & is_end
    )
    types, epochs = short["type"].astype(np.int16), short["coordinator_epoch"].astype(np.int32)
    for i in np.flatnonzero(~usual).tolist():
        types[i], epochs[i] = _read_marker(raw[i].tobytes()) if raw["attributes"][i] & 7 == 0 else (UNREAD_MARKER, -1)
    return types, epochs


def _read_marker(data: bytes) -> tuple[int, int]:
    """Type and coordinator epoch of a control batch whose record has any form that Kafka allows."""
    data = data[: LENGTH_END + int.from_bytes(data[8:LENGTH_END])]
    try:
        _, at = read_varint(data, HEADER_SIZE)
        _, at = read_varint(data, at + 1, 70)  # time
        _, at = read_varint(data, at)  # offset
        key_size, key_at = read_varint(data, at)
        key = data[key_at : key_at + 4]
        value_size, at = read_varint(data, key_at + max(key_size, 0))
    except (IndexError, ValueError):
        return UNREAD_MARKER, -1
    type_ = int.from_bytes(key[2:], signed=True)
    if key_size < 4 or int.from_bytes(key[:2], signed=True) < 0 or (not any(key) and value_size == 0):
        return UNREAD_MARKER, -1  # zeros, which a copy may end in, are no ABORT
    if type_ not in (ABORT, COMMIT) or value_size < 6 or len(data) < at + 6 or data[at] >= 0x80:
        return type_, -1
    return type_, int.from_bytes(data[at + 2 : at + 6], signed=True)


def _fill_in_messages(headers: Headers, raw: npt.NDArray[Any], rows: npt.NDArray[np.intp]) -> None:
    """Fill in messages of magic 0 and 1: one record each, or a wrapper of compressed records."""
    message = raw[rows].view(MESSAGE)
    is_wrapper = message["attributes"] & 7 != 0
    timestamp = np.where(raw["magic"][rows] == 1, message["timestamp"], -1)
    for name in ("producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        headers[name][rows] = -1
    headers["crc"][rows] = message["crc"]
    headers["attributes"][rows] = message["attributes"]
    headers["last_offset"][rows] = message["offset"]  # of a wrapper: of the last message in it
    headers["base_offset"][rows] = np.where(is_wrapper, -1, message["offset"])
    headers["record_count"][rows] = np.where(is_wrapper, -1, 1)
    headers["max_timestamp"][rows] = timestamp
    headers["base_timestamp"][rows] = np.where(is_wrapper, -1, timestamp)


IN_MS = pa.timestamp("ms", tz="UTC")


def numbers(values: Array, *, null: Array | None = None) -> pa.Array:
    """Integers or booleans; null where `null` is true; without `null`, negative integers are null."""
    if null is None and values.dtype != np.bool_:
        null = values < 0
    return pa.array(np.ascontiguousarray(values), mask=null)


def times(milliseconds: Array) -> pa.Array:
    """Epoch milliseconds as UTC times; null if negative or after the year 9999."""
    null = (milliseconds < 0) | (milliseconds > LAST_TIME)
    return numbers(milliseconds, null=null).view(IN_MS)


def labels(codes: Array, names: Sequence[str | None]) -> pa.Array:
    """The name of each code; null for an unknown code."""
    outside = (codes < 0) | (codes >= len(names))
    indices = pa.array(codes.astype(np.int32), mask=outside)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).dictionary_decode()


def arrow_table(table: Table, columns: Mapping[str, pa.Array | str | int | None], *, rows: int) -> pa.Table:
    """An Arrow table with exactly the declared columns.

    `columns`: by column name: an Arrow array, or one value for every row. A column that is missing is null.
    `rows`: number of rows.
    """
    arrays = []
    for column in table.columns:
        values, type_ = columns.get(column.name), arrow_type(column.type)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            arrays.append(values if values.type == type_ else values.cast(type_))
        else:
            arrays.append(pa.repeat(pa.scalar(values, type_), rows))
    return pa.Table.from_arrays(arrays, schema=table.arrow_schema)


COMPRESSION = (*CODECS, *(f"unknown ({codec})" for codec in range(len(CODECS), 8)))
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MARKERS = ("ABORT", "COMMIT")
AS_WRITTEN: tuple[HeaderField, ...] = (
    *("position", "size", "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence"),
    *("leader_epoch", "coordinator_epoch", "record_count", "magic"),
)


def header_table(headers: Headers, where: LogId = UNKNOWN_LOG, *, file: str | None = None) -> pa.Table:
    """Headers as an Arrow table with exactly the columns of ``schema.BATCHES``, in unchanged order.

    `where`, `file`: location of the log; the same on every row.
    """
    attributes, magic = headers["attributes"], headers["magic"]
    in_transactions = magic == 2
    horizon = in_transactions & (attributes & DELETE_HORIZON != 0)
    log_append = np.where(magic == 0, -1, attributes & LOG_APPEND_TIME != 0)  # magic 0 has no time
    columns: dict[str, pa.Array] = {name: numbers(headers[name], null=headers[name] == -1) for name in AS_WRITTEN}
    columns |= {
        "is_transactional": numbers(in_transactions & (attributes & TRANSACTIONAL != 0)),
        "is_control": numbers(in_transactions & (attributes & CONTROL != 0)),
        "marker": labels(headers["marker"], MARKERS),
        "base_timestamp": times(np.where(horizon, -1, headers["base_timestamp"])),
        "max_timestamp": times(headers["max_timestamp"]),
        "delete_horizon": times(np.where(horizon, headers["base_timestamp"], -1)),
        "timestamp_type": labels(log_append, TIMESTAMP_TYPES),
        "compression": labels(attributes & 0x07, COMPRESSION),
        "crc": numbers(headers["crc"].astype(np.int64)),
        "crc_ok": numbers(headers["crc_ok"] == 1, null=headers["crc_ok"] == -1),
    }
    return arrow_table(BATCHES, {**columns, **where.columns, "file": file}, rows=len(headers))
