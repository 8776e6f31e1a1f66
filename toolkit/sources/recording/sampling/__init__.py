"""Take samples of a cluster: once, or periodically, with metrics for Prometheus."""
