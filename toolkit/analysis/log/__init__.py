"""From batches of one partition: transactions, LSO, producer state, statistics, invariants."""
