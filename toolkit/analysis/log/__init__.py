"""Derive transactions, LSO, producer state, statistics and invariants from the batches of one partition."""
