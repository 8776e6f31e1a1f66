"""Spark on this machine: a local session, and Delta Lake for it."""
