"""What a cluster and its clients do, or do not do, against hanging transactions (KIP-890)."""

from __future__ import annotations

from toolkit.schema.table import BOOL, INT32, STRING, TIME, Column, Table

__all__ = ["EXPOSURE"]

EXPOSURE = Table(
    "exposure",
    "one setting that decides whether transactions can hang, or one client that has to be protected from it",
    (
        Column("subject", STRING, "cluster, broker, known bug or transactional_id.", nullable=False),
        Column("name", STRING, "Feature or setting, by Kafka's name; issue in JIRA of a known bug.", nullable=False),
        Column("transactional_id", STRING, "Id of the client; null for the cluster and for brokers."),
        Column("value", STRING, "What it is set to; null where it does not exist there, or could not be read."),
        Column("exposed", BOOL, "Whether transactions can hang, or hold an LSO for long, by it; null if not known."),
        Column("means", STRING, "What that means, as a sentence.", nullable=False),
        Column("broker_id", INT32, "Broker that answered, or that should have."),
        Column("observed_at", TIME, "When the answer arrived, by this machine's clock.", nullable=False),
        Column("error", STRING, "Kafka error name and text where the answer is missing; null where it is whole."),
    ),
    key=("subject", "broker_id", "name", "transactional_id"),
    sort=("subject", "broker_id", "name", "transactional_id"),
)
