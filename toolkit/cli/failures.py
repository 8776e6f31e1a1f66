"""Errors of a command as one sentence each on stderr, without a traceback, and its exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from toolkit.cli.output import remark
from toolkit.errors import BrokerError, ToolkitError

__all__ = ["BROKEN_PIPE", "INCOMPLETE", "INTERRUPTED", "INVALID", "exit_on_failure"]

INVALID, INCOMPLETE = 2, 3
BROKEN_PIPE, INTERRUPTED = 141, 130  # 128 + SIGPIPE, 128 + SIGINT: what a shell expects of either

EXTRAS = {
    "jinja2": "notebooks",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "plotly": "notebooks",
    "prometheus_client": "metrics",
    "pyspark": "spark",
    "yaml": "metrics",
}
"""Package to the extra that installs it; all others belong to every install."""


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """Turn errors into `typer.Exit`; an error of the program itself stays one, with its traceback."""
    try:
        yield
    except BrokerError as error:  # a broker answered, and did not show what was asked for
        raise _exit(f"kafka-txn: {error}", INCOMPLETE) from error
    except ToolkitError as error:
        raise _exit(f"kafka-txn: {error}", INVALID) from error
    except BrokenPipeError as error:
        _drop_output()
        raise typer.Exit(BROKEN_PIPE) from error
    except KeyboardInterrupt as error:
        raise _exit("kafka-txn: interrupted.", INTERRUPTED) from error
    except ImportError as error:
        if _is_interrupted(error):
            raise _exit("kafka-txn: interrupted.", INTERRUPTED) from error
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        text = f"kafka-txn: {error.name} is not installed. pip install 'kafka-txn-toolkit[{extra}]'."
        raise _exit(text, INVALID) from error
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
            raise
        _drop_output()
        where = f" to {error.filename}" if error.filename else ""
        text = f"kafka-txn: The output could not be written{where}: {error.strerror}. What was written is incomplete."
        raise _exit(text, INVALID) from error


def _exit(text: str, code: int) -> typer.Exit:
    with suppress(OSError):  # stderr may be what cannot be written
        remark(text)
    return typer.Exit(code)


def _drop_output() -> None:
    """Leave nothing for the interpreter to write at its exit: it would fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # a stdout that is no file
        os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an import that failed: modules in C raise their own error about it."""
    seen = 0
    while error is not None and seen < 20:
        if isinstance(error, KeyboardInterrupt):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
