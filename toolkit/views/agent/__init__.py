"""Answers for agents: read-only tools over one source, as a Model Context Protocol server."""
