"""The records that an abort discards, as it saves them."""

from __future__ import annotations

from toolkit.schema.table import BINARY, INT16, INT32, INT64, STRING, TIME, Column, ListOf, StructOf, Table

SAVED_RECORDS = Table(
    "saved_records",
    "one record of a transaction that an abort discarded on a partition",
    (
        Column("topic", STRING, "Topic name.", nullable=False),
        Column("partition", INT32, "Partition number.", nullable=False),
        Column("offset", INT64, "Offset of the record.", nullable=False),
        Column("timestamp", TIME, "Time of the record; null if it has none, or one beyond the year 9999."),
        Column("producer_id", INT64, "Producer id (PID).", nullable=False),
        Column("producer_epoch", INT16, "Producer epoch of its batch.", nullable=False),
        Column("key", BINARY, "Key as written; null if it has none."),
        Column("value", BINARY, "Value as written; null for a tombstone."),
        Column(
            "headers", ListOf(StructOf((("key", STRING), ("value", BINARY)))), "Headers in their order.", nullable=False
        ),
        Column("group_id", STRING, "Group of a committed offset; null on other topics than __consumer_offsets."),
        Column("committed_topic", STRING, "Topic of a committed offset."),
        Column("committed_partition", INT32, "Partition of a committed offset."),
        Column("committed_offset", INT64, "Committed offset; null for a tombstone, which removes one."),
        Column("committed_leader_epoch", INT32, "Leader epoch that was committed with it."),
    ),
    key=("topic", "partition", "offset"),
    sort=("topic", "partition", "offset"),
)
