"""Bytes and text of Kafka to rows; no sockets, no clients."""
