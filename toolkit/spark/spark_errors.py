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
UNWRITABLE = re.compile(
    r"No space left on device|Read-only file system|Permission denied|Access ?Denied"
    r"|(?<=DELTA_CANNOT_CREATE_LOG_PATH\] Cannot create )\S+"
)
UNREADABLE = re.compile(
    r"FAILED_READ_FILE[.\w]*\] Encountered error while reading file (\S+?)\.? "
    r"|DELTA_VERSIONS_NOT_CONTIGUOUS\] (Versions \(\d+, \d+\) are not contiguous)"
)
COMPLETE = "Each stored table is complete: as it was before this run, or with the rows of this run."
FAILED = "Spark failed: "
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
    """Raise an error of this package instead of one of Spark: the one that it contains, or what it means.

    Raises SetupError for other errors of Spark, with the first line and the first cause.
    """
    try:
        yield
    except Exception as error:
        # By name, as a client of Spark Connect may lack Py4J.
        if not isinstance(error, PySparkException) and not type(error).__module__.startswith("py4j."):
            raise
        found = _translated(error)
        raise found from (error if str(found).startswith(FAILED) else None)  # the cause of others is in the sentence


def _translated(error: Exception) -> ToolkitError:
    text = str(error)
    if found := RAISED.search(text):
        kind: type[ToolkitError] = getattr(errors, found[1]) if found[1] in PLAIN else ToolkitError
        return kind(found[2], do="")  # which its text has
    if NO_DELTA in text:
        return SetupError(
            "This Spark session has no Delta Lake.",
            do="Start it with local_session(config=delta_settings()), or add these settings to your own.",
        )
    if missing := NO_MODULE.search(text):
        return SetupError(
            f"The executors of this Spark lack the package {missing[1]}.",
            do="Install it there; toolkit.spark.probe(spark) lists what executors have.",
        )
    if reason := UNWRITABLE.search(text):
        reason_text = f"{reason[0]} cannot be created" if reason[0].startswith(("/", "file:")) else reason[0]
        return SetupError(f"The tables cannot be written: {reason_text}.", means=COMPLETE, do="Run it again.")
    if file := UNREADABLE.search(text):
        what = f"{file[1]} is missing or cut" if file[1] else file[2]
        return SetupError(
            f"A stored table cannot be read: {what}.",
            do="Restore that file, or remove the table: the next run reads again what the logs still have.",
        )
    more = OUT_OF_MEMORY.search(text) and " Give Spark more memory: --conf spark.driver.memory=4g."
    return SetupError(
        f"{FAILED}{_reason(error)}",
        means=COMPLETE,
        do=f"Run it again (--format parquet: into an empty folder).{more or ''}",
    )


def _reason(error: Exception) -> str:
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    in_java = [(message or name).strip() for name, message in JAVA_CAUSE.findall(text)]
    if in_java and first.startswith("An error occurred while calling"):  # Py4J's own line names an object
        first = in_java[0]
    return first if not in_java or in_java[-1] in first else f"{first.rstrip('.')}: {in_java[-1]}"
