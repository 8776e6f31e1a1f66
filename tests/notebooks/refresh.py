"""``python -m tests.notebooks.refresh [NAME ...]``: run notebooks and store the outputs that belong in git.

A name is the start of a file's name: ``01``, or ``04_abort``. Without one, all are run.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.notebooks.books import BOOKS, cleaned, read, write
from tests.notebooks.running import own_folders


def main(names: list[str]) -> int:
    """Run notebooks and store them; an exception in a cell ends the run, and that notebook is not stored."""
    selected = [path for path in BOOKS if not names or path.stem.startswith(tuple(names))]
    if not selected:
        print(f"No notebook is called {' or '.join(names)}; there are {', '.join(path.stem for path in BOOKS)}.")
        return 2
    with tempfile.TemporaryDirectory(prefix="kafka-txn-notebooks-") as folder:
        os.environ.update(own_folders(Path(folder)))  # before Jupyter reads its folders
        from nbclient import NotebookClient

        for path in selected:
            book = read(path)
            NotebookClient(book, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
            write(cleaned(book), path)
            print(f"stored {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
