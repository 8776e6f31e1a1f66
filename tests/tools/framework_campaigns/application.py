"""What the application of each framework has: a process, its input, and what consumers receive of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.java_clients import JavaClient
from toolkit.lab import Kafka

TIMEOUT_MS = 6000  # of transactions


class Application:
    """A framework's application with one process, which numbers what it writes from 0 on.

    Parameters
    ----------
    kafka
        The cluster.
    folder
        For its files.
    seconds
        For how long it is disturbed.
    """

    owner: str
    """What findings say of its transactions."""
    prefix: str
    """Of its transactional ids."""
    topic: str
    """Where it writes."""
    keeps_after_timeout = True
    """Whether it writes again what a timeout has aborted."""

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        self.kafka, self.folder = kafka, folder
        self.written = 0
        self.client: JavaClient | None = None
        self._is_started = False

    def new_client(self) -> JavaClient:
        """The next process."""
        raise NotImplementedError

    def read(self, message: Message) -> int:
        """The number in a record."""
        raise NotImplementedError

    def write_more(self) -> None:
        """Add input, about 20 times per second."""

    def end_input(self) -> None:
        """Write the rest of an input of its own at once."""

    def tend(self) -> None:
        """Bring back what has failed while the process goes on."""

    def problems(self) -> list[str]:
        """What else is wrong at the end."""
        return []

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return False

    def start(self) -> None:
        """Start a process."""
        self.client = self.new_client()
        self.client.__enter__()
        self._is_started = True

    def kill(self) -> None:
        """SIGKILL; nothing if it does not run."""
        if self.client is not None and self._is_started:
            self._is_started = False
            self.client.process.kill()
            self.client.process.wait(60)
            self.client.__exit__(None, None, None)

    def send_signal(self, number: int) -> None:
        """To its process."""
        assert self.client is not None
        self.client.process.send_signal(number)

    def expected(self) -> list[int]:
        """What it has to write."""
        return list(range(self.written))

    def visible(self) -> list[int]:
        """What a read_committed consumer receives of it."""
        return self.received(self.topic, self.read)

    def received(self, topic: str, read: Callable[[Message], int]) -> list[int]:
        """The numbers that a read_committed consumer receives of a topic."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "reader"}
        found: list[int] = []
        with Consumer({**settings, "enable.partition.eof": True, "log_level": 0}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                found.append(read(message))
        return found

    def create(self, *topics: str) -> None:
        """Create topics with one partition on all brokers."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        count = len(self.kafka.broker_ids)
        for created in admin.create_topics([NewTopic(each, 1, count) for each in topics]).values():
            created.result()
