"""A live cluster, read over Kafka's protocol."""
