"""Errors and log lines that people paste: which symptom they show, and what they name."""
