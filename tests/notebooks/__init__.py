"""The notebooks: run as they are, clean in git, and what they store is really compared."""

import sys

# With it, jsonschema makes a grammar of IRIs as it is imported: a second in every process, and notebooks have none.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
