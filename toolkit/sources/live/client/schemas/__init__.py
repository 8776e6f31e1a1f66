"""Schemas of messages that kafka-python lacks, in its JSON format."""
