"""Records of ``__cluster_metadata``, the log of KRaft's controllers: which producer ids were given out.

Sources: ``MetadataRecordSerde`` (frame version, API key and version before the fields) and ``ProducerIdsRecord.json``
in Kafka's server-common and metadata.
"""

from __future__ import annotations

from toolkit.formats.primitives import Buffer, Reader

PRODUCER_IDS = 15  # API key


def next_producer_id(value: Buffer) -> int | None:
    """The first producer id that is not yet given to any broker; null for every other record.

    Raises
    ------
    DecodeError
        If the bytes end within the record.
    """
    reader = Reader(value, "value of a __cluster_metadata record")
    reader.varint()  # frame version
    if reader.varint() != PRODUCER_IDS:
        return None
    reader.varint()  # version of the record
    reader.int32()  # broker that got the newest block
    reader.int64()  # its epoch
    return reader.int64()
