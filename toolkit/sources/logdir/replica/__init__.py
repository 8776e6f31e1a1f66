"""One replica of a partition in files: where its files are, what is in them, and what its end says."""
