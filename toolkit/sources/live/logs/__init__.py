"""Logs of a live cluster, read by Fetch."""
