"""The records of one open transaction on one partition, read from its leader in bounded memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from toolkit.errors import BrokerError, DecodeError
from toolkit.formats.log.batch_records import Record, read_records
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.schema.live import Partition
from toolkit.schema.table import Error
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, read_offsets


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The producer's last batch on the partition by its state, which ends the read; without a sequence, nothing does.

    Offsets that a group commits have no sequence: their batches are read up to the high watermark.
    """

    producer_epoch: int
    last_sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch of the transaction."""

    base_offset: int
    last_offset: int
    size: int  # bytes in the log
    record_count: int
    producer_epoch: int
    last_sequence: int
    producer_id: int
    buffer: bytes
    position: int

    def records(self) -> Iterator[Record]:
        """Its records, with their headers. Raises BrokerError if the batch is damaged."""
        try:
            yield from read_records(self.buffer, self.position, with_headers=True)
        except DecodeError as error:
            raise BrokerError(error.what, code="CORRUPT_MESSAGE", means=error.means) from error


def open_batches(
    client: BrokerClient, partition: Partition, *, producer_id: int, start_offset: int, last: LastBatch
) -> Generator[OpenBatch, None, None]:
    """Batches of a producer's open transaction in offset order; those that retention deleted are missing.

    `producer_id`, `start_offset`: the transaction. As it is open, all that its producer wrote since is of it.
    Raises BrokerError if a part of the log could not be read.
    """
    first = max(start_offset, partition.log_start_offset or 0)
    stop = partition.high_watermark or 0
    with closing(read_offsets(client, partition, first, stop, crc=True).chunks) as chunks:
        for chunk in chunks:
            _check(chunk, f"{partition.topic}-{partition.partition}")
            for batch in _batches(chunk, producer_id):
                yield batch
                end = (batch.producer_epoch, batch.last_sequence)
                if last.last_sequence is not None and end == (last.producer_epoch, last.last_sequence):
                    return


def _check(chunk: FetchedChunk, name: str) -> None:
    """A torn tail is how a response ends; everything else that is no batch is damage."""
    damage = [each.reason for each in chunk.damage if not each.reason.startswith("TORN_TAIL")]
    wrong = chunk.headers["crc_ok"] == 0
    if wrong.any():
        offset = int(chunk.headers["base_offset"][wrong][0])
        damage.append(f"CORRUPT_MESSAGE: The checksum of the batch at offset {offset} does not match its bytes.")
    for error in [chunk.error, *damage]:
        if error:
            code, text = Error.of(error)
            raise BrokerError(f"The log of {name} could not be read: {text.rstrip('.') or code}.", code=code)


def _batches(chunk: FetchedChunk, producer_id: int) -> Iterator[OpenBatch]:
    headers = chunk.headers
    is_data = (headers["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    for header in headers[(headers["producer_id"] == producer_id) & is_data]:
        offsets = int(header["last_offset"]) - int(header["base_offset"])
        sequence = int(header["base_sequence"])
        yield OpenBatch(
            base_offset=int(header["base_offset"]),
            last_offset=int(header["last_offset"]),
            size=int(header["size"]),
            record_count=int(header["record_count"]),
            producer_epoch=int(header["producer_epoch"]),
            last_sequence=-1 if sequence < 0 else (sequence + offsets) % (1 << 31),
            producer_id=int(header["producer_id"]),
            buffer=chunk.records,
            position=int(header["position"]),
        )
