"""Diagnose observations: open transactions, verdict rules, causes and impact."""
