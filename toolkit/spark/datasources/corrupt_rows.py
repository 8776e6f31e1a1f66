"""Spark's modes for error rows."""

from __future__ import annotations

__all__ = ["MODES"]

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""They are kept, left out, or end the query."""
