"""The data source of what a cluster answers: as a batch or as a stream."""
