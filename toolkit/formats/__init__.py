"""Decode Kafka's bytes and text into rows; no sockets, no clients."""
