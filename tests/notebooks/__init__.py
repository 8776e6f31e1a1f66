"""The notebooks: run unchanged, clean in git, and with stored outputs that are really compared."""

import sys

# With it, jsonschema builds a grammar of IRIs at import: a second in every process, and notebooks have none.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
