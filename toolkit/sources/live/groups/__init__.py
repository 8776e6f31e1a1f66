"""Consumer groups, share groups and their members, from the brokers."""
