"""Java and jars on this machine: what the embedded Kafka and a local Spark run on."""
