"""The audit trail: actions on a cluster, who took them, why, and their results."""

from __future__ import annotations

from toolkit.schema.live import EVIDENCE
from toolkit.schema.table import INT16, INT32, INT64, STRING, TIME, Column, Table

ACTIONS = Table(
    "actions",
    "one step of an action on a cluster: before its request is sent, or after the response",
    (
        Column("at", TIME, "When the line was written, by the clock of the machine that acts.", nullable=False),
        Column("action_id", STRING, "Id of the action; the same for both its steps.", nullable=False),
        Column("action", STRING, "abort, complete or fence.", nullable=False),
        Column(
            "step",
            STRING,
            "intent: the request is sent next. outcome: the response or error. refused: nothing was sent. After an "
            "intent without an outcome, the action may have taken effect.",
            nullable=False,
        ),
        Column("who", STRING, "User and host that took the action.", nullable=False),
        Column("bootstrap_servers", STRING, "Bootstrap servers of the cluster, as configured.", nullable=False),
        Column(
            "target",
            STRING,
            "Target that the user confirmed: orders-0@913095344, or a transactional id.",
            nullable=False,
        ),
        Column("topic", STRING, "Topic of the marker; null for a fence."),
        Column("partition", INT32, "Partition of the marker; null for a fence."),
        Column("start_offset", INT64, "First offset of the transaction on the partition; null for a fence."),
        Column("producer_id", INT64, "Id of the producer whose transaction is ended."),
        Column("producer_epoch", INT16, "Epoch of that producer."),
        Column("transactional_id", STRING, "Transactional id that owns the producer id, if known."),
        Column("verdict", STRING, "Verdict of the check immediately before the request."),
        Column("reason", STRING, "Reason for that verdict, as a sentence."),
        Column(
            "outcome", STRING, "What was decided about the records, by that check: undecided, abort, commit, unknown."
        ),
        Column("override", STRING, "Verdict that the user overrode by name; null if none."),
        Column(
            "records_file", STRING, "Parquet file with the records that an abort discards; null if none was written."
        ),
        Column("evidence", EVIDENCE, "Values that this check observed, with source and time."),
        Column("request", STRING, "Request, with the field names of Kafka's protocol."),
        Column("response", STRING, "Response of the broker."),
        Column("last_stable_offset_before", INT64, "LSO of the partition before the action."),
        Column("last_stable_offset_after", INT64, "LSO of the partition after the action."),
        Column("error", STRING, "What failed, or why the action was refused, as NAME: sentence."),
    ),
    key=("action_id", "step"),
    sort=("at", "action_id", "step"),
)
