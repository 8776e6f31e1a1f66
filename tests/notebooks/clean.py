"""``python -m tests.notebooks.clean [FILE ...]``: remove from notebooks what does not belong in git.

Exits with 1 if it changed a notebook, as a pre-commit hook does.
"""

import sys
from pathlib import Path

from tests.notebooks.books import BOOKS, cleaned, read, write


def main(paths: list[Path]) -> int:
    """Clean the notebooks, all of them if none is named."""
    changed = 0
    for path in paths or BOOKS:
        before = path.read_bytes()
        write(cleaned(read(path)), path)
        if path.read_bytes() != before:
            print(f"cleaned {path}")
            changed = 1
    return changed


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
