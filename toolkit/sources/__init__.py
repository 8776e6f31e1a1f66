"""Sources: a live cluster, log directories, recordings."""
