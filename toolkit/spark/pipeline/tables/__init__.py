"""The stored tables: their declarations, rows and states on the way to them, the store, views."""
