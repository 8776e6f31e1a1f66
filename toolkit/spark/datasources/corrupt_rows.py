"""Spark's modes: what becomes of rows that say what could not be read."""

from __future__ import annotations

__all__ = ["MODES"]

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""They are kept, left out, or end the query."""
