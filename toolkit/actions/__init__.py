"""The only code that changes a cluster."""
