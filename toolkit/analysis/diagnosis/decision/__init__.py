"""Decide: who holds the LSO, what was decided about the records, and what is safe. The only place that sets a verdict.

A wrong `hanging` makes an operator abort a live transaction, which silently loses part of it, or a committed one. So
`hanging` needs a response from every coordinator, the proven right to see every id, responses from the partition leader
before and after, the same result in every observation, and the coordinator's log back to before these records. If any
of these is missing, the verdict is `unknown` and names it.

The rules are tables, read from top to bottom; the first that applies decides (`Case.decision`, `decide`). Those on open
transactions are one table in two parts: `OWNED_RULES`, then `DISOWNED_RULES`. Nothing downstream changes a decision:
what contradicts it is evidence, which has to be there before.
"""
