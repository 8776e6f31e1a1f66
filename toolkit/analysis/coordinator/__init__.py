"""From records of ``__transaction_state``: states, histories, endings."""
