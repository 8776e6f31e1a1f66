"""Progress bars in a terminal or a notebook, never in a pipe or a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DELAY = 1.0  # seconds before a bar shows


@contextmanager
def progress(title: str, *, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show the progress of a long read.

    Returns: yields a function that takes the number of units read since its last call.
    """
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=title, total=total, unit=f" {unit}", unit_scale=True, delay=DELAY, leave=False) as bar:
        yield bar.update
