"""The data source of samples of a cluster, as a batch or as a stream."""
