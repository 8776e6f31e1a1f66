"""The library's folds of logs and findings, on Spark."""
