"""Schemas of messages that kafka-python does not bring, as its own JSON."""
