"""Python data sources for Spark."""
