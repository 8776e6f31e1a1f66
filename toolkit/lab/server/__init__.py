"""The processes of a Kafka on this machine: jars, properties, storage, brokers."""
