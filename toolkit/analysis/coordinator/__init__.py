"""States, owners, histories and endings of transactions, from records of ``__transaction_state``."""
