"""``kafka-txn why`` after DeleteRecords: a transaction did not begin where the log now begins."""

import json

import pytest

from tests.builders import delete_records
from tests.process import on
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, config_of
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema import Row
from toolkit.sources.live.broker_client import BrokerClient

pytestmark = pytest.mark.lab


def visibility(kafka: Kafka, topic: str, offset: int) -> Row:
    done = on(kafka, "why", "--topic", topic, "--partition", "0", "--offset", str(offset), "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    found: Row = row
    return found


def test_the_start_of_a_transaction_is_not_the_log_start(kafka: Kafka) -> None:
    with INCIDENTS["open_young"](kafka) as staged, BrokerClient(config_of(kafka)) as client:
        topic = staged.topic
        producer = TxnProducer(client, "why-ended").init()
        producer.add(topic, 0)
        begun = producer.send(topic, 0, records=3)
        last = producer.send(topic, 0, records=3) + 2
        producer.end(commit=True)
        assert visibility(kafka, topic, last)["first_offset"] == begun
        marker = last + 1
        assert f"which began at {begun}" in visibility(kafka, topic, marker)["reason"]
        delete_records(client, topic, before=last)

        ended = visibility(kafka, topic, last)
        assert (ended["outcome"], ended["log_start_offset"], ended["first_offset"]) == ("commit", last, None)
        reason = visibility(kafka, topic, marker)["reason"]
        assert "whose start is deleted or was not read" in reason
        assert f"began at {last}" not in reason


def test_the_start_of_an_open_transaction_is_that_of_its_leader(kafka: Kafka) -> None:
    with INCIDENTS["open_young"](kafka) as staged, BrokerClient(config_of(kafka)) as client:
        producer = TxnProducer(client, "why-open").init()
        producer.add(staged.topic, 0)
        begun = producer.send(staged.topic, 0, records=2)
        last = producer.send(staged.topic, 0, records=2) + 1
        delete_records(client, staged.topic, before=last)
        row = visibility(kafka, staged.topic, last)
        assert (row["status"], row["first_offset"]) == ("open", begun)
        assert f"which began at {begun}, before the log start offset {last}" in row["reason"]
        producer.end(commit=False)
