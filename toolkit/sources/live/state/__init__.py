"""State of partitions, producers, transactions, groups and rights, from the brokers."""
