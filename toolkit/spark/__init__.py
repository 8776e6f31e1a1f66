"""The same rows and rules on Spark: data sources and a pipeline. The only room that imports pyspark."""

from toolkit.spark.artifact import ship
from toolkit.spark.compared import differences
from toolkit.spark.recording import recorded, write_recording
from toolkit.spark.sources import register

__all__ = ["differences", "recorded", "register", "ship", "write_recording"]
