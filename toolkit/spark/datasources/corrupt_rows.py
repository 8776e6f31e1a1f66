"""Spark's modes for error rows."""

from __future__ import annotations

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""Keep error rows, drop them, or fail the query."""
