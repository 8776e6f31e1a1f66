"""Explain pasted errors: as text, in a notebook, and as rows.

>>> explain("InvalidTxnStateException: ...")  # doctest: +SKIP
"""

from __future__ import annotations

from toolkit.views.symptoms.explained_error import ExplainedError, explain

__all__ = ["ExplainedError", "explain"]
