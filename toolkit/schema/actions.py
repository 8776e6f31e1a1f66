"""The audit trail: actions on a cluster, by whom, why, and their result."""

from __future__ import annotations

from toolkit.schema.live import EVIDENCE
from toolkit.schema.table import INT16, INT32, INT64, STRING, TIME, Column, Table

__all__ = ["ACTIONS"]

ACTIONS = Table(
    "actions",
    "one step of an action on a cluster: before its request is sent, and after it was answered",
    (
        Column("at", TIME, "When the line was written, by the clock of the acting machine.", nullable=False),
        Column("action_id", STRING, "The same on both steps of an action.", nullable=False),
        Column("action", STRING, "abort or fence.", nullable=False),
        Column(
            "step",
            STRING,
            "intent: the request is sent next. outcome: the response or error. refused: nothing was sent. An "
            "intent without outcome is an action that may have happened.",
            nullable=False,
        ),
        Column("who", STRING, "User and host.", nullable=False),
        Column("bootstrap_servers", STRING, "The cluster, as it was addressed.", nullable=False),
        Column("target", STRING, "What was confirmed: orders-0@913095344, or a transactional id.", nullable=False),
        Column("topic", STRING, "Topic of the marker; null for a fence."),
        Column("partition", INT32, "Partition of the marker; null for a fence."),
        Column("start_offset", INT64, "First offset of the transaction on it; null for a fence."),
        Column("producer_id", INT64, "Producer whose transaction is ended."),
        Column("producer_epoch", INT16, "Its epoch."),
        Column("transactional_id", STRING, "Id that owns it, where one is known."),
        Column("verdict", STRING, "The verdict of the fresh check, right before."),
        Column("reason", STRING, "Why it was that."),
        Column("override", STRING, "The verdict that was overridden by name; null where none was."),
        Column("evidence", EVIDENCE, "What the fresh check saw."),
        Column("request", STRING, "The request, by the names of Kafka's protocol."),
        Column("response", STRING, "The response."),
        Column("last_stable_offset_before", INT64, "LSO of the partition before."),
        Column("last_stable_offset_after", INT64, "LSO of the partition after."),
        Column("error", STRING, "What failed, or why it was refused, as NAME: sentence."),
    ),
    key=("action_id", "step"),
    sort=("at", "action_id", "step"),
)
