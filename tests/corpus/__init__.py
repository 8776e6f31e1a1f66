"""Answers of the toolkit on inputs that real brokers made, stored as text."""
