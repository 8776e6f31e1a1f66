"""A local Spark session, and Delta Lake for it."""
