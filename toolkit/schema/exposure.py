"""Which settings and clients of a cluster allow hanging transactions (KIP-890)."""

from __future__ import annotations

from toolkit.schema.table import BOOL, INT32, STRING, TIME, Column, Table

__all__ = ["EXPOSURE"]

EXPOSURE = Table(
    "exposure",
    "one setting that decides whether transactions can hang, or one client that can leave a transaction hanging",
    (
        Column("subject", STRING, "cluster, broker, known bug or transactional_id.", nullable=False),
        Column("name", STRING, "Kafka's name of the feature or setting; Jira issue of a known bug.", nullable=False),
        Column("transactional_id", STRING, "Transactional id of the client; null for the cluster and brokers."),
        Column("value", STRING, "Its value; null if it does not exist there or could not be read."),
        Column("exposed", BOOL, "Whether it lets transactions hang or hold an LSO for long; null if unknown."),
        Column("means", STRING, "What that means, as a sentence.", nullable=False),
        Column("broker_id", INT32, "Broker that answered or should have answered."),
        Column("observed_at", TIME, "When the response arrived, by this machine's clock.", nullable=False),
        Column("error", STRING, "Kafka error name and message if the response is missing; null if it is complete."),
    ),
    key=("subject", "broker_id", "name", "transactional_id"),
    sort=("subject", "broker_id", "name", "transactional_id"),
)
