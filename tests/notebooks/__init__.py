"""The notebooks: run as they are, clean in git, and what they store is really compared."""
