"""Our own errors, raised where Spark's workers or its planner met them, as they were raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from toolkit import errors
from toolkit.errors import LabError, ToolkitError

__all__ = ["plainly_told", "spark_said_plainly"]

RAISED = re.compile(r"^toolkit\.errors\.(\w+): (.+)$", re.MULTILINE)
PLAIN = ("UsageError", "NotFound", "ConnectionFailed", "AuthenticationFailed", "LabError")


@contextmanager
def plainly_told() -> Iterator[None]:
    """Raise as itself what of ours is inside an error of Spark; others stay as they are."""
    try:
        yield
    except PySparkException as error:
        found = RAISED.search(str(error))
        if found is None:
            raise
        kind: type[ToolkitError] = getattr(errors, found[1]) if found[1] in PLAIN else ToolkitError
        raise kind(found[2]) from error


@contextmanager
def spark_said_plainly() -> Iterator[None]:
    """For a command: raise whatever Spark says as one sentence.

    Raises
    ------
    LabError
        With the first line of what Spark said.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (PySparkException, Py4JError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise LabError(
            f"Spark failed: {first.strip()}",
            means="What was stored before is as it was, or will be made whole by the next run.",
            do="Run it again; with more memory (--conf spark.driver.memory=4g) if it ran out of it.",
        ) from error
