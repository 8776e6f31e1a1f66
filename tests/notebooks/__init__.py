"""Tests of the notebooks: they run unchanged, are clean in git, and their stored outputs are compared."""

import sys

# With this package, jsonschema builds a grammar of IRIs at import, for a second; notebooks contain no IRIs.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
