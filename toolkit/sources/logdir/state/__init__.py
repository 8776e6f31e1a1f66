"""The end of a replica's log: state, open transactions, holds, and what speaks against trusting them."""
