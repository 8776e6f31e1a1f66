"""Which software a broker runs, by what it answers."""
