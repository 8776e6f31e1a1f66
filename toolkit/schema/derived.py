"""Tables computed from other tables: reconciliation, LSO holds, observation times."""

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
        Column("producer_epoch", INT16, "Leader: epoch of the producer's newest batch."),
        Column("transactional_id", STRING, "Coordinator: id that owns this producer id; null if none does."),
        Column("state", STRING, "Coordinator: state of that id."),
        Column("owner_epoch", INT16, "Coordinator: epoch of that id."),
        Column("expects_marker", BOOL, "Coordinator: whether this partition still expects its marker."),
        Column(
            "was_added",
            BOOL,
            "Coordinator's log: whether a transaction of that epoch ever included this partition; null if the log was "
            "not read completely.",
        ),
        Column(
            "last_ended", STRING, "Coordinator's log: how the last such transaction ended (transaction_history.ended)."
        ),
        Column("verdict", STRING, "Verdict of its finding; null if none: it opened or ended in between."),
        Column("combination", STRING, "One of sources.COMBINATIONS.", nullable=False),
        Column("means", STRING, "What the combination means, as a sentence.", nullable=False),
    ),
    key=("topic", "partition", "producer_id"),
    sort=("topic", "partition", "start_offset"),
)

LOG_TRANSACTION_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "first_epoch", "first_offset", "marker_offset"),
    *("marker_epoch", "coordinator_epoch", "marker", "start", "start_clock", "end", "first_sequence", "truncated"),
    *("broker_id", "file", "error"),
)
"""Columns of ``schema.LOG_TRANSACTIONS`` that `LSO_HOLDS` includes."""

LSO_HOLDS = Table(
    "lso_holds",
    "a transaction that held the LSO of its partition; a row without first_offset is a marker with its time",
    (
        *(column for column in LOG_TRANSACTIONS.columns if column.name in LOG_TRANSACTION_COLUMNS),
        Column("after_offset", INT64, "Offset of the marker that ended the previous hold; null if nothing was open."),
        Column("not_before", TIME, "Time of the last marker before its first batch, if nothing else was open."),
        Column("not_after", TIME, "Time of the first marker after its first batch; of after_offset if it is set."),
        Column(
            "opened_at",
            TIME,
            "When the transaction opened, by the clock in opened_at_clock; null if no clock can be right.",
        ),
        Column(
            "opened_at_clock",
            STRING,
            "producer (CreateTime), or broker: LogAppendTime, or the time of the last marker before the first batch.",
        ),
        Column("held_from", TIME, "When it began to hold the LSO; null if the log does not show it."),
        Column("held_to", TIME, "When its marker was written; null if it is open."),
        Column("held_ms", INT64, "How long it held the LSO; null if it is open or a time is unknown.", unit="ms"),
        Column("least_ms", INT64, "How long it held the LSO at least, by marker times alone.", unit="ms"),
        Column("as_of", TIME, "Time of the last marker in the log: the state is as of then."),
        Column("log_end_offset", INT64, "Offset after the last batch that was read."),
        Column("records_held", INT64, "Data records from its first offset to its marker.", unit="records"),
        Column("bytes_held", INT64, "Bytes of the batches in that range, other markers included.", unit="bytes"),
    ),
    key=("topic", "partition", "first_offset"),
    sort=("topic", "partition", "broker_id", "first_offset"),
)
"""The step between log transactions and findings. The last three columns are filled after counting."""

OBSERVATION_TIMES = Table(
    "observation_times",
    "a sample of a recording that did not fail",
    (
        Column("sampled_at", TIME, "When the sample was due.", nullable=False),
        Column("next_sampled_at", TIME, "When the next such sample was due; null for the last one."),
        Column("missed", STRING, "Samples that failed or are missing after it, before the next one; null if none."),
        Column("next_topic_gap", STRING, "Why the next sample may lack topics; null if it has all."),
    ),
    key=("sampled_at",),
    sort=("sampled_at",),
)
"""Samples in order, without failed ones."""
