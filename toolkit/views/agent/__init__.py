"""Read-only tools for agents over one source, as a Model Context Protocol server."""
