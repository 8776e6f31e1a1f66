"""The tables of ``kafka-txn pipeline`` as a declarative pipeline: each update reads the log directories anew."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from toolkit.schema import TABLES
from toolkit.spark import register
from toolkit.spark.pipeline.stored_tables import STORED_NAMES

NAMES = ("log_transactions", "lso_timeline", "transaction_history", "lso_holds", "findings")
MIN_HELD_MS = 60_000
spark = SparkSession.active()
register(spark)
logs = spark.conf.get("spark.kafka_txn.logs") or ""
of_findings = {
    "consistentCopy": spark.conf.get("spark.kafka_txn.consistent_copy") or "false",
    "minHeld": f"{MIN_HELD_MS}ms",
}


def define(name: str) -> None:
    """Define a table."""

    @dp.materialized_view(name=name, comment=f"One row: {TABLES[name].row}.")
    def rows() -> DataFrame:
        options = {"table": name, **(of_findings if name == "findings" else {})}
        found = spark.read.format("kafka_log_dir").options(**options).load(logs).withColumnsRenamed(STORED_NAMES)
        return found.where(f"coalesce(held_ms >= {MIN_HELD_MS}, true)") if name == "lso_holds" else found


for each in NAMES:
    define(each)
