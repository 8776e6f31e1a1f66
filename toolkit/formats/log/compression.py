"""Compressed records of a batch, as Java and librdkafka write them; what comes out is bounded.

Sources: ``Compression`` and ``CompressionType`` in Kafka's clients; the framing of ``SnappyOutputStream`` in
snappy-java, which Java writes and librdkafka does not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolkit.errors import DecodeError
from toolkit.formats.protocol.primitives import Buffer

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["decompress"]

FRAMED_SNAPPY = b"\x82SNAPPY\0"  # then two version numbers of four bytes, then blocks of length and raw snappy
FRAMED_SNAPPY_HEADER = len(FRAMED_SNAPPY) + 8
FIRST_GUESS = 16  # times the compressed size; a buffer that is too small is made larger and filled anew
SMALLEST_BUFFER = 65_536
GZIP = 16 + zlib.MAX_WBITS  # zlib's way to say: with a gzip header and trailer


def decompress(codec: str, data: Buffer, *, limit: int, position: int = 0) -> bytes:
    """The bytes that were compressed.

    Parameters
    ----------
    codec
        ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``, as `BatchHeader.compression` has it.
    data
        Everything of the batch after its header.
    limit
        Bytes that may come out, so that a few bytes that claim to be gigabytes cost no memory.
    position
        Where ``data``, or the batch it is from, starts; for the error only.

    Raises
    ------
    DecodeError
        If the codec is not known, the bytes are damaged or end early, or more than ``limit`` would come out.
    """
    if len(data) > limit or codec == "none":
        return _within(data, limit, position)
    if codec not in CODECS:
        raise DecodeError(
            f"The compression of the batch at byte {position} is {codec}.",
            position=position,
            means="A newer Kafka wrote it, or the bytes are damaged; gzip, snappy, lz4 and zstd are known here.",
        )
    from cramjam import DecompressionError

    try:
        return _within(CODECS[codec](bytes(data), limit), limit, position)
    except (DecompressionError, zlib.error, EOFError) as exc:
        raise DecodeError(
            f"The {codec} bytes of the batch at byte {position} cannot be decompressed: {exc}.",
            position=position,
            means="The bytes are damaged or end early.",
        ) from None


def _within(data: Buffer | None, limit: int, position: int) -> bytes:
    """What came out; ``None`` or too much of it is an error."""
    if data is None or len(data) > limit:
        raise DecodeError(
            f"The records of the batch at byte {position} take more than {limit} bytes.",
            position=position,
            means="The bytes are damaged, or made to exhaust memory; Kafka's own batches are far smaller.",
            do="Raise the limit if such batches are yours.",
        )
    return bytes(data)


def _gzip(data: bytes, limit: int) -> bytes | None:
    member = zlib.decompressobj(GZIP)
    out = member.decompress(data, limit + 1)
    if len(out) > limit:
        return None
    if not member.eof or member.unused_data:
        raise EOFError("bytes follow after the end" if member.eof else "they end early")
    return out


def _snappy(data: bytes, limit: int) -> bytes | None:
    if not data.startswith(FRAMED_SNAPPY):
        return _raw_snappy(data, limit)
    if len(data) < FRAMED_SNAPPY_HEADER:
        raise EOFError("they end early")
    out = bytearray()
    at = FRAMED_SNAPPY_HEADER
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise EOFError("a block runs past the end")
        block = _raw_snappy(data[at + 4 : end], limit - len(out))
        if block is None:
            return None
        out += block
        at = end
    return bytes(out)


def _raw_snappy(data: bytes, limit: int) -> bytes | None:
    from cramjam import snappy

    if snappy.decompress_raw_len(data) > limit:  # as the block itself says, and then keeps to
        return None
    return bytes(snappy.decompress_raw(data))


def _lz4(data: bytes, limit: int) -> bytes | None:
    from cramjam import lz4

    return _into_a_buffer(lz4, data, limit)


def _zstd(data: bytes, limit: int) -> bytes | None:
    from cramjam import zstd

    return _into_a_buffer(zstd, data, limit)


def _into_a_buffer(codec: ModuleType, data: bytes, limit: int) -> bytes | None:
    """Decompress into a buffer of fixed size, which nothing in the bytes can make grow."""
    from cramjam import DecompressionError

    size = min(max(FIRST_GUESS * len(data), SMALLEST_BUFFER), limit)
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: codec.decompress_into(data, buffer)])
        except DecompressionError as exc:
            if "whole buffer" not in str(exc):
                raise
        if size == limit:
            return None
        size = min(4 * size, limit)


CODECS: dict[str, Callable[[bytes, int], bytes | None]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
