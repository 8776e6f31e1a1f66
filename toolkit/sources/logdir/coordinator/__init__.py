"""``__transaction_state`` and ``__consumer_offsets`` in files."""
