"""Declare a table of a source once; its signature gives the frame, the rows, their docs and the argument checks."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from toolkit.errors import UsageError
from toolkit.schema import Row, Table
from toolkit.schema.coerce import in_utc

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["arrow_tables_of", "as_list", "rows_of_table", "source_table"]

P = ParamSpec("P")
S = TypeVar("S")

ARGUMENTS: Mapping[str, str] = {
    "topics": "Topic names, or one; null for all, internal ones included.",
    "partitions": "Numbers, or one, for each of `topics`; or pairs of topic and number, without `topics`.",
    "start": "First offset; or a time with zone, for the first record at or after it; or ``log_start``, ``lso``, "
    "``high_watermark``, ``log_end``. Batches are not split.",
    "stop": "First offset to leave out, likewise.",
    "at": "Recording only: the newest sample at or before this time (with zone); null for the newest.",
    "broker_id": "Cluster only: the replicas of this broker, leaders or not.",
    "producer_id": "Only rows of this producer, and error rows.",
    "producer_ids": "Only ids with these producer ids.",
    "transactional_ids": "Only these ids; one that does not exist is a row with `error`. Null for all.",
    "transactional_id_pattern": "Only ids that fully match this regular expression.",
    "groups": "Only these groups; null for all.",
    "states": "Only ids in these states.",
    "min_duration_ms": "Only ids with a transaction open for longer than this.",
    "crc": "Verify the checksum of every batch.",
    "recheck_after": "Cluster only: seconds before the confirming second check; 5 if null, 0 disables it.",
    "max_transaction_timeout_ms": "Older live transactions are ``long``; null for the brokers' default, 15 min.",
    "log_evidence": "Read the log around a held LSO (a few megabytes) for cause, opening time and impact.",
    "kafka_version": "Release of the brokers, as ``4.2.1``: brokers report only their minor release, and not by name.",
    "min_held_ms": "Files and recordings only: also ``ended`` transactions that held the LSO at least this long.",
}
"""What each argument means, in every table."""


def source_table(
    table: Table, *, of: str = ""
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], pd.DataFrame]]:
    """Declare a method that returns a table as a frame.

    A source implements it as a method of the same name with a leading underscore, which takes the arguments that it
    supports and returns rows or Arrow tables. Any other argument is a `UsageError`.

    Parameters
    ----------
    table
        The schema of the result.
    of
        The sources that have the table, for the error of those that do not.
    """

    def declare(spec: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], pd.DataFrame]:
        @functools.wraps(spec)
        def frame(source: S, /, *args: P.args, **kwargs: P.kwargs) -> pd.DataFrame:
            return table.frame(_read(source, spec, table, args, kwargs, of))

        frame.__declaration__ = spec, table, of  # type: ignore[attr-defined]
        documented: Callable[Concatenate[S, P], pd.DataFrame]
        documented = _documented(frame, spec, table, "pandas.DataFrame")
        return documented

    return declare


def rows_of_table(method: Callable[Concatenate[S, P], pd.DataFrame]) -> Callable[Concatenate[S, P], list[Row]]:
    """The same table as a sorted list of dicts."""
    spec, table, of = _declaration(method)

    def rows(source: S, /, *args: P.args, **kwargs: P.kwargs) -> list[Row]:
        found: list[Row] = table.ordered(_read(source, spec, table, args, kwargs, of))
        return found

    documented: Callable[Concatenate[S, P], list[Row]] = _documented(rows, spec, table, "list of Row")
    return documented


def arrow_tables_of(
    method: Callable[Concatenate[S, P], pd.DataFrame],
) -> Callable[Concatenate[S, P], Iterator[pa.Table]]:
    """The same table as a stream of Arrow tables in bounded memory, for sources that read logs."""
    spec, table, of = _declaration(method)

    def tables(source: S, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[pa.Table]:
        found: Any = _read(source, spec, table, args, kwargs, of)
        return iter(found)

    documented: Callable[Concatenate[S, P], Iterator[pa.Table]]
    documented = _documented(tables, spec, table, "Iterator of pyarrow.Table")
    return documented


def _read(
    source: Any, spec: Callable[..., None], table: Table, args: tuple[Any, ...], kwargs: Mapping[str, Any], of: str
) -> Iterable[Any]:
    """Rows or Arrow tables from the source's own method; defaults are not passed on."""
    signature = inspect.signature(spec)
    bound = dict(signature.bind(source, *args, **kwargs).arguments)
    del bound["self"]
    source_name, read = type(source).__name__, getattr(source, f"_{spec.__name__}", None)
    if read is None:
        raise UsageError(f"{source_name} has no table {table.name}.", do=f"Read it from {of}." if of else "")
    arguments = {
        name: _checked(name, value) for name, value in bound.items() if value is not signature.parameters[name].default
    }
    supported = inspect.signature(read).parameters
    for name in arguments:
        if name not in supported:
            raise UsageError(f"{source_name}.{spec.__name__} does not take {name}.", means=ARGUMENTS[name])
    found: Iterable[Any] = read(**arguments)
    return found


def _checked(name: str, value: Any) -> Any:
    """The argument, one topic or partition as a list; raise for a time without zone."""
    if isinstance(value, dt.datetime):
        return in_utc(value)
    return as_list(value) if name in {"topics", "partitions"} else value


def as_list(value: Any) -> Any:
    """One topic or partition as a list."""
    return [value] if isinstance(value, (str, int)) else value


def _documented(method: Any, spec: Callable[..., None], table: Table, returns: str) -> Any:
    """Set signature and docstring from the declaration."""
    signature = inspect.signature(spec)
    names = [name for name in signature.parameters if name != "self"]
    parameters = "".join(f"{name}\n    {ARGUMENTS[name]}\n" for name in names)
    summary = f"{table.row[0].upper()}{table.row[1:]} (``schema.{table.name.upper()}``), one row each."
    details = inspect.cleandoc(spec.__doc__ or "")
    text = f"{summary}\n\n{details}\n\n" if details else f"{summary}\n\n"
    text += f"Parameters\n----------\n{parameters}\n" if names else ""
    text += f"Returns\n-------\n{returns}\n\nRaises\n------\nNotFound\n"
    text += "    If the source does not have the selected topic, partition or broker.\n"
    text += "UsageError\n    If this source has no such table or argument, or an argument is invalid.\n"
    method.__doc__ = text
    method.__signature__ = signature.replace(return_annotation=returns)
    return method


def _declaration(method: Any) -> Any:
    return method.__declaration__
