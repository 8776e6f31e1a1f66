"""Records of ``__transaction_state`` and ``__consumer_offsets``."""
