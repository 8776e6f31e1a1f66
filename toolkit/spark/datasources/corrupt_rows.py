"""Spark's modes for error rows."""

from __future__ import annotations

__all__ = ["MODES"]

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""Keep error rows, drop them, or fail the query."""
