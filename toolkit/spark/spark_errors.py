"""Errors of this package in Spark: raised without traceback, and restored from Spark's errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from pyspark.errors import PySparkException

from toolkit import errors
from toolkit.errors import SetupError, ToolkitError

RAISED = re.compile(r"^toolkit\.errors\.(\w+): (.+)$", re.MULTILINE)
JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+([\w$]+)(?:: (.+))?$", re.MULTILINE)
NO_MODULE = re.compile(r"^\s*ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|Java heap space|GC overhead limit|Answer from Java side is empty")
NO_DELTA = "Failed to find the data source: delta."
PLAIN = ("UsageError", "NotFound", "ConnectionFailed", "AuthenticationFailed", "SetupError")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def without_traceback(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a method of a data source to raise errors without traceback, which Spark would print before the text."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except ToolkitError as error:
            raise error.with_traceback(None) from None

    return call


def each_without_traceback(function: Callable[Arguments, Iterator[Result]]) -> Callable[Arguments, Iterator[Result]]:
    """`without_traceback` for a generator."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        try:
            yield from function(*args, **kwargs)
        except ToolkitError as error:
            raise error.with_traceback(None) from None

    return call


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise this package's error instead of the Spark error that contains it, or means it; other errors pass."""
    try:
        yield
    except Exception as error:  # of PySpark, or of Py4J, which a client of Spark Connect lacks
        if NO_DELTA in str(error):
            raise SetupError(
                "This Spark session has no Delta Lake.",
                do="Start it with local_session(config=delta_settings()), or add these settings to your own.",
            ) from error
        found = RAISED.search(str(error)) if isinstance(error, PySparkException) else None
        if found is None:
            raise
        kind: type[ToolkitError] = getattr(errors, found[1]) if found[1] in PLAIN else ToolkitError
        raise kind(found[2]) from error


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Raise any error of Spark as a `SetupError`, for a command.

    Raises SetupError with the first line of Spark's error, and its first cause.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, PySparkException) and not type(error).__module__.startswith("py4j."):
            raise  # by name, as a client of Spark Connect may lack Py4J
        if missing := NO_MODULE.search(str(error)):
            raise SetupError(
                f"The executors of this Spark lack the package {missing[1]}.",
                do="Install it there; toolkit.spark.probe(spark) lists what executors have.",
            ) from error
        more = OUT_OF_MEMORY.search(str(error)) and " Give Spark more memory: --conf spark.driver.memory=4g."
        raise SetupError(
            f"Spark failed: {_reason(error)}",
            means="Each stored table is complete: as it was before this run, or with the rows of this run.",
            do=f"Run it again (--format parquet: into an empty folder).{more or ''}",
        ) from error


def _reason(error: Exception) -> str:
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    in_java = [(message or name).strip() for name, message in JAVA_CAUSE.findall(text)]
    if in_java and first.startswith("An error occurred while calling"):  # Py4J's own line names an object
        first = in_java[0]
    return first if not in_java or in_java[-1] in first else f"{first.rstrip('.')}: {in_java[-1]}"
