"""Derive transactions, LSO, producer state and statistics from the batches of one partition."""
