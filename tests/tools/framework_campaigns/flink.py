"""Apache Flink's KafkaSink with exactly-once delivery."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Message

from tests.java_clients import FlinkJob
from tests.tools.framework_campaigns.application import TIMEOUT_MS, Application
from toolkit.lab import Kafka

RECORDS_PER_S = 20
SLOW_S = 900  # up to which a round of all steps takes longer than wanted


class Flink(Application):
    """A job of Flink, restored from its last completed checkpoint after a kill."""

    owner, prefix, topic = "Apache Flink", "flink-", "from-flink"
    keeps_after_timeout = False  # what a checkpoint has pre-committed

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
        self.create(self.topic)
        self.written = RECORDS_PER_S * 2 * int(seconds + SLOW_S)  # more than it writes meanwhile

    def new_client(self) -> FlinkJob:
        checkpoint = self.client.last_checkpoint() if isinstance(self.client, FlinkJob) else None
        return FlinkJob(
            self.kafka,
            self.folder,
            topic=self.topic,
            prefix="flink",
            restored=checkpoint,
            records=self.written,
            rate=RECORDS_PER_S,
            timeout_ms=TIMEOUT_MS,
        )

    def end_input(self) -> None:
        """It writes the rest at once, and ends."""
        assert isinstance(self.client, FlinkJob)
        self.client.unpaced.touch()

    @property
    def is_over(self) -> bool:
        return self.client is not None and self.client.process.poll() == 0

    def read(self, message: Message) -> int:
        return int(message.value() or b"")
