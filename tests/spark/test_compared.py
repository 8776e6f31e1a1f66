"""`differences` reports the rows that differ."""

import datetime as dt

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from toolkit.lab.samples import load
from toolkit.schema import LOG_TRANSACTIONS
from toolkit.spark import differences, register


def test_only_different_rows_are_reported(spark: SparkSession) -> None:
    register(spark)
    log_dir = load("late-message").log_dir()
    spark_rows = spark.read.format("kafka_log_dir").option("table", "log_transactions").load(str(log_dir.paths[0]))
    expected = log_dir.log_transactions()
    assert differences(spark_rows, expected, LOG_TRANSACTIONS).empty
    assert differences(spark_rows.orderBy(sf.desc("first_offset")), expected, LOG_TRANSACTIONS).empty, "in any order"
    duplicated = differences(spark_rows.union(spark_rows.where("first_offset = 15")), expected, LOG_TRANSACTIONS)
    assert [(row.only_in, row.first_offset) for row in duplicated.itertuples()] == [("spark", 15)]
    shifted = spark_rows.withColumn("start", sf.col("start") + sf.expr("interval 1 millisecond")).where(
        "first_offset = 13"
    )
    shift_differences = differences(shifted, expected[expected.first_offset == 13], LOG_TRANSACTIONS)
    assert list(shift_differences.only_in) == ["spark", "pandas"]
    assert shift_differences.start[0] - shift_differences.start[1] == dt.timedelta(milliseconds=1)


def test_attributes_added_by_spark_connect_are_ignored() -> None:
    frame = load("late-message").log_dir().log_transactions(topics=["orders"])
    rows = LOG_TRANSACTIONS.rows(frame)
    frame.attrs["metrics"] = [object()]
    assert LOG_TRANSACTIONS.rows(frame) == rows, "and no warning"
    assert list(frame.attrs) == ["metrics"]
