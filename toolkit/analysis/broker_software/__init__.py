"""Which software a broker runs, told by what it answers."""
