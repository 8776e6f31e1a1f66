"""The files of a log directory, and the replicas that they hold."""
