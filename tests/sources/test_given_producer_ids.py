"""A producer id that the cluster never gave out: by real metadata logs."""

import pytest

from tests.brokers import by_tier
from tests.spark.read_log import plan_read, read
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.sources.logdir.consistency import foreign_id_doubts

FOREIGN = 4_000_000


@pytest.mark.parametrize("version", by_tier("3.5.2", "4.3.1"))
def test_a_transaction_with_an_id_of_another_cluster_never_hangs(version: str) -> None:
    """Its start looks as that of a hanging one beside it; only the metadata log tells that it was copied here."""
    with Kafka(version, properties=EVERYDAY.properties) as kafka:
        own = INCIDENTS["never_added"](kafka)
        with Cluster(kafka.bootstrap_servers) as cluster:
            copied = TxnProducer(cluster.client, "elsewhere")
            copied.producer_id, copied.producer_epoch = FOREIGN, 0
            copied.send(own.topic, own.partition)
        kafka.stop_broker(1)
        files = LogDir(kafka.log_dirs[1], consistent_copy=True)
        rows = {row["producer_id"]: row for row in files.finding_rows(topics=[own.topic]) if row["producer_id"]}
        reader, tasks = plan_read(kafka.log_dirs[1], table="findings", subscribe=own.topic, consistentCopy=True)
        of_spark = {row["producer_id"]: row["missing"] for row in read(reader, tasks).to_pylist()}
    assert rows[own.producer_id]["verdict"] == "hanging", rows[own.producer_id]["missing"]
    assert (rows[FOREIGN]["verdict"], rows[FOREIGN]["action"]) == ("unknown", None)
    (missing,) = rows[FOREIGN]["missing"]
    assert of_spark[FOREIGN] == [missing], "tasks of Spark read the metadata log, too"
    assert missing.startswith(f"the cluster that gave out producer id {FOREIGN}: this one has not, by its metadata log")


def test_an_id_from_the_next_block_on_is_foreign() -> None:
    assert foreign_id_doubts(None, 5000) == []
    assert foreign_id_doubts(2000, 1999) == []
    assert len(foreign_id_doubts(2000, 2000)) == 1
