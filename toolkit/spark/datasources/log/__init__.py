"""The data source of log directories."""
