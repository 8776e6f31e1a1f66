"""Kafka's primitive types, and the messages of its protocol that name thousands of partitions."""
