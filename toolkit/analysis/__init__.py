"""Rows to rows: pure functions of frames and a clock; imports no source."""
