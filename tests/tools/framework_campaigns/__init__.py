"""Frameworks that write exactly once, killed, frozen past the transaction timeout, fenced and rolled, and diagnosed."""
