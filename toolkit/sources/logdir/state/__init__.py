"""The end of a replica's log: state, open transactions, LSO holds, and doubts about their consistency."""
