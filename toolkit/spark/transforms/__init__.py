"""The library's folds on Spark."""
