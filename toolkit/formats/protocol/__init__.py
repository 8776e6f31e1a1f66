"""Kafka's primitive types, and protocol messages with thousands of partitions."""
