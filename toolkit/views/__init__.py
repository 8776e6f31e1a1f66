"""Rows to what a person looks at."""
