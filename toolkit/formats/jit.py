"""Functions compiled by numba, only once they are wanted: the import alone takes half a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["compiled"]


def compiled(function: Callable[..., Any], *, example: tuple[Any, ...], helpers: tuple[Any, ...] = ()) -> Any:
    """The jitted form of a function, ready for arguments of the example's types; it lets go of the GIL.

    Parameters
    ----------
    function
        What numba can compile. It stays as it is.
    example
        Arguments that it is called with once.
    helpers
        Functions of the same file that it calls.
    """
    from numba import njit
    from numba.extending import register_jitable

    for helper in helpers:
        register_jitable(helper)
    try:
        jitted = njit(nogil=True, cache=True)(function)
        jitted(*example)
    except (OSError, RuntimeError):  # no folder to keep compiled code in: neither beside the source nor of the user
        jitted = njit(nogil=True)(function)
        jitted(*example)
    return jitted
