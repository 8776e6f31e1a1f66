"""What the records of ``__transaction_state`` tell: states, histories, endings."""
