"""Recognize symptoms in pasted errors and log lines, and the resources that they name."""
