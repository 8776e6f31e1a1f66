"""Files of a log directory besides the log segments: checkpoints, indexes, producer snapshots."""
