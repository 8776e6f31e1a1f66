"""What brokers answer about partitions, producers, transactions, groups and rights."""
