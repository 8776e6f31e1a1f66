"""Python data sources for Spark."""

from toolkit.spark import require_data_sources

require_data_sources()
