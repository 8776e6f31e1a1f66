"""What Spark's Python workers do after every task, made short."""

from __future__ import annotations

import gc
import sys

from pyspark import TaskContext

__all__ = ["spare_what_is_loaded"]

_SPARED: set[bool] = set()  # whether numba was there: its modules are the most


def spare_what_is_loaded() -> None:
    """Leave the modules that are loaded by now out of garbage collections, once in a worker.

    A worker that is used again collects garbage after each task, and to look through all the modules takes it longer
    than to read a hundred megabytes of a log.
    """
    with_numba = "numba" in sys.modules
    if TaskContext.get() is not None and with_numba not in _SPARED:
        _SPARED.add(with_numba)
        gc.collect()
        gc.freeze()
