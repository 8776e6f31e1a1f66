"""Records of ``__transaction_state``: the state of a transactional id.

Sources: ``TransactionLogKey.json``, ``TransactionLogValue.json`` and ``TransactionLog`` in Kafka's
transaction-coordinator, 2.8 to 4.3; KIP-890 (tags 0 to 2), KIP-915 (flexible values), KIP-939 (tag 3).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from toolkit.errors import DecodeError, UsageError
from toolkit.formats.primitives import Buffer, Reader, known
from toolkit.schema.table import TopicPartition

STATE_TOPIC = "__transaction_state"

HEAD = struct.Struct(">qhib")  # producer id, producer epoch, timeout, status
TAG_INT16, TAG_INT64 = struct.Struct(">h"), struct.Struct(">q")
TIMES = struct.Struct(">qq")  # last update, start

STATES = (  # by status byte
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class TransactionState(NamedTuple):
    """The value of a ``__transaction_state`` record; missing fields are ``None``, never -1."""

    version: int  # of the value: 0, or 1 once the cluster's feature transaction.version is 1 or higher
    producer_id: int | None
    producer_epoch: int | None  # transaction version 2 raises it in PrepareCommit and PrepareAbort already
    timeout_ms: int
    state: str  # one of STATES
    topic_partitions: tuple[TopicPartition, ...]  # as written; empty where there are none
    last_update_timestamp_ms: int | None  # the coordinator's clock
    start_timestamp_ms: int | None  # the coordinator's clock; stays after the end; None before the first transaction
    previous_producer_id: int | None = None  # the id of the last transaction; 4.3 writes the same one where it stayed
    next_producer_id: int | None = None  # already sent to the client, not yet used
    next_producer_epoch: int | None = None
    client_transaction_version: int | None = None  # 2: the epoch grows with every transaction; None in version 0
    unknown_tags: int = 0  # tagged fields of a newer Kafka, skipped


def read_transaction_key(buf: Buffer) -> str | None:
    """The transactional id of a record.

    ``None`` for a key version of a newer Kafka.
    Raises DecodeError if the bytes end early, are too many, or are not UTF-8.
    """
    reader = Reader(buf, "key of a __transaction_state record")
    if reader.int16() != 0:
        return None
    transactional_id = reader.text(flexible=False)
    reader.end()
    return transactional_id


def read_transaction_value(buf: Buffer) -> TransactionState:
    """The state in a record.

    A tombstone has no value: the id has expired (``transactional.id.expiration.ms``).

    `buf`: value of the record, version 0 or 1.
    Raises DecodeError if the version or status is unknown, or the bytes end early, are too many or contradictory.
    Memory stays within a small multiple of ``buf``, whatever lengths the bytes claim.
    """
    reader = Reader(buf, "value of a __transaction_state record")
    version = reader.int16()
    if version not in {0, 1}:
        raise DecodeError(
            f"The value of a __transaction_state record has version {version}.",
            position=0,
            means="A newer Kafka wrote it; versions 0 and 1 are known here.",
            do="Upgrade kafka-txn-toolkit.",
        )
    flexible = version == 1
    producer_id, producer_epoch, timeout_ms, status = reader.fields(HEAD)
    if not 0 <= status < len(STATES):
        raise DecodeError(
            f"Transaction status {status} is not known.",
            position=reader.position - 1,
            means="A newer Kafka wrote it, or the bytes are damaged.",
        )
    topic_partitions: list[TopicPartition] = []  # Empty is written with a null array
    for _ in range(reader.length(flexible=flexible, item_size=3 if flexible else 6, nullable=True)):
        topic = reader.text(flexible=flexible)
        topic_partitions += [TopicPartition(topic, partition) for partition in reader.int32s(flexible=flexible)]
        if flexible:
            reader.tags()
    last_update_timestamp_ms, start_timestamp_ms = reader.fields(TIMES)
    tags, unknown_tags = reader.tags(keep=4) if flexible else ({}, 0)
    reader.end()
    return TransactionState(
        version=version,
        producer_id=known(producer_id),
        producer_epoch=known(producer_epoch),
        timeout_ms=timeout_ms,
        state=STATES[status],
        topic_partitions=tuple(topic_partitions),
        last_update_timestamp_ms=known(last_update_timestamp_ms),
        start_timestamp_ms=known(start_timestamp_ms),
        previous_producer_id=known(_read_tag(tags.get(0), TAG_INT64)),
        next_producer_id=known(_read_tag(tags.get(1), TAG_INT64)),
        client_transaction_version=_read_tag(tags.get(2), TAG_INT16, default=0) if flexible else None,
        next_producer_epoch=known(_read_tag(tags.get(3), TAG_INT16)),
        unknown_tags=unknown_tags,
    )


def coordinator_partition(key: str, partitions: int) -> int:
    """The partition of ``__transaction_state`` or ``__consumer_offsets`` that an id hashes to.

    Its leader is the coordinator: ``Utils.abs(key.hashCode()) % partitions``, in ``TransactionStateManager`` and
    ``GroupCoordinatorService`` alike.

    Parameters
    ----------
    key
        A transactional id or a group id.
    partitions
        Number of partitions of the topic; 50 by default.

    Examples
    --------
    >>> coordinator_partition("my-group", 50)
    12
    """
    if partitions < 1:
        raise UsageError(
            f"A topic cannot have {partitions} partitions.", do="Read the number from the topic's metadata."
        )
    units = key.encode("utf-16-be", "surrogatepass")  # Java hashes UTF-16 code units
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", units):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return 0 if signed == -(2**31) else abs(signed) % partitions


def _read_tag(field: tuple[int, bytes] | None, form: struct.Struct, *, default: int = -1) -> int:
    if field is None:
        return default
    position, data = field
    if len(data) != form.size:
        raise DecodeError(f"A tagged field of {form.size} bytes has {len(data)}.", position=position)
    (value,) = form.unpack(data)
    return int(value)
