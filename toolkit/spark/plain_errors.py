"""Our errors inside Spark's: the sentence, without the way through the code that led to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from toolkit.errors import ToolkitError

__all__ = ["plainly", "plainly_each"]

Given = ParamSpec("Given")
Got = TypeVar("Got")


def plainly(function: Callable[Given, Got]) -> Callable[Given, Got]:
    """A function of a data source; Spark prints the traceback of its errors before their text."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Got:
        try:
            return function(*args, **kwargs)
        except ToolkitError as error:
            raise error.with_traceback(None) from None

    return call


def plainly_each(function: Callable[Given, Iterator[Got]]) -> Callable[Given, Iterator[Got]]:
    """The same for one that yields."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Iterator[Got]:
        try:
            yield from function(*args, **kwargs)
        except ToolkitError as error:
            raise error.with_traceback(None) from None

    return call
