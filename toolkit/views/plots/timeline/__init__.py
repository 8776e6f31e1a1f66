"""The timeline of a partition: its LSO and log end, transactions, and labels."""
