"""The sink of Apache Iceberg in a worker of Kafka Connect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Message

from tests.tools.framework_campaigns.application import TIMEOUT_MS
from tests.tools.framework_campaigns.connect import NumbersConnector


class Iceberg(NumbersConnector):
    """The sink of Apache Iceberg in a Connect worker: its tasks and its coordinator write to a control topic.

    They have new transactional ids whenever the connector starts, so nobody continues the ids of a killed one.
    """

    owner, prefix, topic = "Apache Iceberg sink", "lake-", "control-iceberg"
    connector_jars = "iceberg-1.12.0"

    def connector(self) -> Mapping[str, str]:
        servers = self.kafka.bootstrap_servers
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "numbers",
            "consumer.override.auto.offset.reset": "earliest",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "iceberg.tables": "lake.numbers",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": self.folder.as_uri(),
            "iceberg.control.commit.interval-ms": "500",
            "iceberg.control.commit.timeout-ms": "3000",
            "iceberg.coordinator.transactional.prefix": self.prefix,
            "iceberg.kafka.bootstrap.servers": servers,
            "iceberg.kafka.transaction.timeout.ms": str(TIMEOUT_MS),
        }

    def value(self) -> str:
        return json.dumps({"number": self.written})

    def read(self, message: Message) -> int:
        return int(json.loads(message.value() or b"")["number"])

    def visible(self) -> list[int]:
        """The numbers in the newest snapshot of its table."""
        table = self.folder / "lake" / "numbers"
        versions = sorted(table.glob("metadata/v*.metadata.json"), key=lambda each: int(each.name[1:].split(".")[0]))
        snapshots = json.loads(versions[-1].read_text())["snapshots"] if versions else []
        if not snapshots:
            return []
        files = [
            entry["data_file"]["file_path"]
            for manifest in _avro(snapshots[-1]["manifest-list"])
            for entry in _avro(manifest["manifest_path"])
            if entry["status"] != ICEBERG_DELETED
        ]
        return [number for each in files for number in pq.read_table(_local(each))["number"].to_pylist()]


ICEBERG_DELETED = 2  # status of a manifest's entry


def _avro(uri: str) -> list[Any]:
    with _local(uri).open("rb") as file:
        return list(fastavro.reader(file))


def _local(uri: str) -> Path:
    return Path(urlsplit(uri).path)
