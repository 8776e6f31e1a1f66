"""Record batches of a log: where they are, their headers, checksums and records."""
