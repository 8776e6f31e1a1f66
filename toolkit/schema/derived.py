"""Tables computed from others: reconciliation, LSO holds, observation times."""

from __future__ import annotations

from toolkit.schema.log import LOG_TRANSACTIONS
from toolkit.schema.table import BOOL, INT16, INT32, INT64, STRING, TIME, Column, Table

__all__ = ["LOG_TRANSACTION_COLUMNS", "LSO_HOLDS", "OBSERVATION_TIMES", "RECONCILIATION"]

RECONCILIATION = Table(
    "reconciliation",
    "an open transaction on a partition, compared with its coordinator's state",
    (
        Column("topic", STRING, "Topic name.", nullable=False),
        Column("partition", INT32, "Partition number.", nullable=False),
        Column("start_offset", INT64, "Leader: first offset of the open transaction.", nullable=False),
        Column("producer_id", INT64, "Leader: producer id (PID).", nullable=False),
        Column("producer_epoch", INT16, "Leader: epoch of its newest batch."),
        Column("transactional_id", STRING, "Coordinator: id that has this producer id; null where none has."),
        Column("state", STRING, "Coordinator: state of that id."),
        Column("owner_epoch", INT16, "Coordinator: epoch of that id."),
        Column("expects_marker", BOOL, "Coordinator: whether its marker is still to be written here."),
        Column(
            "was_added", BOOL, "Its log: whether that epoch was ever added here; null if the log was not read whole."
        ),
        Column("last_ended", STRING, "Its log: how its last transaction here ended, as of schema.TRANSACTION_HISTORY."),
        Column("verdict", STRING, "Of the finding about it; null where there is none: it opened, or ended, meanwhile."),
        Column("combination", STRING, "One of sources.COMBINATIONS.", nullable=False),
        Column("means", STRING, "What that means, as a sentence.", nullable=False),
    ),
    key=("topic", "partition", "producer_id"),
    sort=("topic", "partition", "start_offset"),
)

LOG_TRANSACTION_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "first_epoch", "first_offset", "marker_offset"),
    *("marker_epoch", "coordinator_epoch", "marker", "start", "start_clock", "end", "first_sequence", "truncated"),
    *("broker_id", "file", "error"),
)
"""Columns of ``schema.LOG_TRANSACTIONS`` that are needed."""

LSO_HOLDS = Table(
    "lso_holds",
    "a transaction that held the LSO of its partition; without first offset, a marker with its time",
    (
        *(column for column in LOG_TRANSACTIONS.columns if column.name in LOG_TRANSACTION_COLUMNS),
        Column("after_offset", INT64, "Marker of the one that held the LSO until then; null where nothing was open."),
        Column("not_before", TIME, "Time of the last marker before it, where nothing else was open."),
        Column("not_after", TIME, "Time of the first marker behind its first batch; of after_offset where that is."),
        Column(
            "opened_at", TIME, "When it opened, by the clock that opened_at_clock names; null where none can be right."
        ),
        Column(
            "opened_at_clock", STRING, "producer, or broker: LogAppendTime, or the time of the last marker before it."
        ),
        Column("held_from", TIME, "From when on it held the LSO; null where that is not shown."),
        Column("held_to", TIME, "When its marker was written; null while it is open."),
        Column("held_ms", INT64, "How long it held the LSO; null while it is open, and where not shown.", unit="ms"),
        Column("least_ms", INT64, "How long at least, by the markers alone.", unit="ms"),
        Column("as_of", TIME, "Time of the last marker of the log: its state is as of then."),
        Column("log_end_offset", INT64, "Offset after the last batch of the log that was read."),
        Column("records_held", INT64, "Data records from its first offset to its marker.", unit="records"),
        Column("bytes_held", INT64, "Bytes of the batches that hold them, other markers included.", unit="bytes"),
    ),
    key=("topic", "partition", "first_offset"),
    sort=("topic", "partition", "broker_id", "first_offset"),
)
"""Between transactions and findings. The last three columns are filled after counting."""

OBSERVATION_TIMES = Table(
    "observation_times",
    "a sample of a recording that did not fail",
    (
        Column("sampled_at", TIME, "When the sample was due.", nullable=False),
        Column("next_sampled_at", TIME, "The same of the next one; null for the last."),
        Column("missed", STRING, "Samples missing between the two; null where none is."),
        Column("next_topic_gap", STRING, "Why the next one may not have been shown every topic; null where it was."),
    ),
    key=("sampled_at",),
    sort=("sampled_at",),
)
"""Samples in their order, without those that failed."""
