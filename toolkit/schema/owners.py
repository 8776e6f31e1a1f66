"""Who runs each transactional id."""

from __future__ import annotations

from toolkit.schema.table import INT32, STRING, TIME, Column, Table

__all__ = ["TRANSACTION_OWNERS"]

TRANSACTION_OWNERS = Table(
    "transaction_owners",
    "a transactional id, and who runs it: framework, application, task, member and host",
    (
        Column("transactional_id", STRING, "The id; null where a broker's ids could not be read."),
        Column("framework", STRING, "Kafka Streams, Kafka Connect, Apache Flink, Spring Kafka or ksqlDB."),
        Column("application", STRING, "application.id, group.id of a Connect cluster or of consumers, or prefix."),
        Column("task", STRING, "Which part of it: thread, connector and task, or subtask."),
        Column("member_id", STRING, "Member of the group that is this part."),
        Column("client_id", STRING, "Client id of that member."),
        Column("host", STRING, "Address of that member; the REST URL of a Connect worker."),
        Column(
            "confidence",
            STRING,
            "certain: the members of a group prove it; likely: by the form of the id; unknown.",
            nullable=False,
        ),
        Column("reason", STRING, "Why, as a sentence.", nullable=False),
        Column("broker_id", INT32, "Broker that returned the id, or should have."),
        Column("observed_at", TIME, "When that answer arrived, by this machine's clock.", nullable=False),
        Column("error", STRING, "Kafka error name and text where the answer is missing; null where it is whole."),
    ),
    key=("transactional_id",),
    sort=("transactional_id", "broker_id"),
)
