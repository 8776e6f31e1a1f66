"""The transactional client of a walk, of transaction version 1 or 2: a step that is refused raises `NotDone`."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from toolkit.lab.clients import ALWAYS_UP, PASSING, TxnProducer
from toolkit.schema.table import TopicPartition
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, error_name, write_batch

PATIENCE_S = 2.0
NOT_ADDED = {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"}  # a leader that verifies refuses such a batch


class NotDone(Exception):
    """A step was refused, and nothing has happened. `is_over`: whether the client has to be replaced."""

    def __init__(self, error: object, *, is_over: bool) -> None:
        super().__init__(f"{error:.200}" if isinstance(error, str) else f"{error!r:.200}")
        self.is_over = is_over


class RawClient(TxnProducer):
    """Every request by hand; it may also write what is in no transaction.

    `clock_ahead`: the time of its records against this machine's.
    """

    def __init__(self, client: BrokerClient, transactional_id: str, *, version: int, timeout_ms: int) -> None:
        super().__init__(client, transactional_id, timeout_ms=timeout_ms, transaction_version=version)
        self.clock_ahead = dt.timedelta()
        self.added: set[TopicPartition] = set()

    @property
    def version(self) -> int:
        return self.transaction_version

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def begin(self) -> None:
        self.added.clear()

    def write(self, tp: TopicPartition, value: str) -> int:
        if tp not in self.added:
            self.add(*tp)
        offset = self.produce(tp, value, version=self.transaction_version)
        if self.transaction_version == 1 or self._includes(tp):
            self.added.add(tp)
        return offset

    def _includes(self, tp: TopicPartition) -> bool:
        """Whether the coordinator has a partition: a leader that thinks a transaction is open adds none."""
        ids = [self.transactional_id]
        described = self._ask(
            lambda: broker_client.DescribeTransactions(transactional_ids=ids),
            codes=lambda message: [message.transaction_states[0].error_code],
        )
        topics = described.transaction_states[0].topics
        return any(each.topic == tp.topic and tp.partition in each.partitions for each in topics)

    def produce(self, tp: TopicPartition, value: str, *, version: int = 1) -> int:
        """Write a record; with version 1, only `add` adds its partition."""
        sequence = self._sequences.get(tp, 0)
        batch = write_batch(
            [(self.transactional_id.encode(), value.encode())],
            timestamp=dt.datetime.now(dt.UTC) + self.clock_ahead,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = broker_client.Produce.TopicProduceData
        produced = self._ask(
            lambda: broker_client.Produce(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    data(name=tp.topic, partition_data=[data.PartitionProduceData(index=tp.partition, records=batch)])
                ],
                **({"min_version": 12, "max_version": 12} if version == 2 else {"max_version": 8}),
            ),
            codes=lambda message: [message.responses[0].partition_responses[0].error_code],
        )
        self._sequences[tp] = sequence + 1
        return int(produced.responses[0].partition_responses[0].base_offset)

    def end(self, *, commit: bool) -> None:
        ended = self._end_txn(commit=commit)
        with suppress(NotDone):  # the coordinator has decided; until the markers are written, it refuses a repetition
            ended = self._end_txn(commit=commit)
        if self.transaction_version == 2:
            self._adopt(ended)
        self.added.clear()

    def _ask(
        self, request: Callable[[], Any], *, codes: Callable[[Any], Iterable[int]], to: Callable[[], int] | None = None
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self.cluster.send_one(request(), broker_id=ALWAYS_UP)
            errors = {error_name(code) for code in codes(message)} - {"NONE"}
            if not errors:
                return message
            if errors - PASSING or time.monotonic() > deadline:
                name = str(request().name).removesuffix("Request")
                raise NotDone(f"{name}: {', '.join(sorted(errors))}", is_over=not errors <= NOT_ADDED | PASSING)
            time.sleep(0.01)
