"""The data source of live partitions' logs."""
