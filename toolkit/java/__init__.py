"""Java and jars on this machine: for the embedded Kafka and a local Spark."""
