"""What the batches of one partition tell: transactions, LSO, producer state, statistics, invariants."""
