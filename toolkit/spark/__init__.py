"""The same rows and rules on Spark: data sources and a pipeline. The only room that imports pyspark."""
