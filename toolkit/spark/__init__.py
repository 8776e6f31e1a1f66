"""The same rows and rules on Spark: data sources and a pipeline. The only room that imports pyspark."""

from toolkit.spark.artifact import ship
from toolkit.spark.sources import register

__all__ = ["register", "ship"]
