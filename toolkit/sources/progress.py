"""A bar for a person who waits: in a terminal or a notebook, never in a pipe or a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

DELAY = 1.0  # seconds; what is done sooner needs no bar


@contextmanager
def progress(title: str, *, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show how far a long read has come.

    Parameters
    ----------
    title
        What is read.
    total
        How many units there are.
    unit
        Their name.

    Returns
    -------
    context manager
        Gives a function that takes how many units have been read since it was last called.
    """
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=title, total=total, unit=f" {unit}", unit_scale=True, delay=DELAY, leave=False) as bar:
        yield bar.update
