"""Every interleaving of a small Kafka with our requests: what the verdicts and actions do in each of its states."""
