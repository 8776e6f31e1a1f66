"""Log directories, copied files and dumps as tables."""
