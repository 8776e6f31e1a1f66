"""Functions compiled by numba on first use, since its import takes half a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compiled(function: Callable[..., Any], *, example: tuple[Any, ...], helpers: tuple[Any, ...] = ()) -> Any:
    """Compile a function for arguments of the example's types; the result releases the GIL.

    Parameters
    ----------
    function
        A function that numba can compile; it is not changed.
    example
        Arguments of one call, which compiles it.
    helpers
        Functions of its module that it calls.
    """
    from numba import njit
    from numba.extending import register_jitable

    for helper in helpers:
        register_jitable(helper)
    try:
        jitted = njit(nogil=True, cache=True)(function)
        jitted(*example)
    except (
        OSError,
        RuntimeError,
    ):  # no writable folder for compiled code, neither beside the source nor in the home directory
        jitted = njit(nogil=True)(function)
        jitted(*example)
    return jitted
