"""What held the LSO over time, and how it ended."""
