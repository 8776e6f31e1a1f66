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
        frame: Any = _method(spec, table, of, shape=table.frame, returns="pandas.DataFrame")
        frame.__declaration__ = spec, table, of
        declared: Callable[Concatenate[S, P], pd.DataFrame] = frame
        return declared

    return declare


def rows_of_table(method: Callable[Concatenate[S, P], pd.DataFrame]) -> Callable[Concatenate[S, P], list[Row]]:
    """The same table as a sorted list of dicts."""
    spec, table, of = _declaration(method)
    rows: Callable[Concatenate[S, P], list[Row]] = _method(spec, table, of, shape=table.ordered, returns="list of Row")
    return rows


def arrow_tables_of(
    method: Callable[Concatenate[S, P], pd.DataFrame],
) -> Callable[Concatenate[S, P], Iterator[pa.Table]]:
    """The same table as a stream of Arrow tables in bounded memory, for sources that read logs."""
    spec, table, of = _declaration(method)
    tables: Callable[Concatenate[S, P], Iterator[pa.Table]]
    tables = _method(spec, table, of, shape=iter, returns="Iterator of pyarrow.Table")
    return tables


def _method(
    spec: Callable[..., None], table: Table, of: str, *, shape: Callable[[Iterable[Any]], Any], returns: str
) -> Any:
    """The method that reads the table from the source's own method; defaults are not passed on."""
    signature = inspect.signature(spec)

    @functools.wraps(spec)
    def method(source: Any, /, *args: Any, **kwargs: Any) -> Any:
        bound = dict(signature.bind(source, *args, **kwargs).arguments)
        del bound["self"]
        source_name, read = type(source).__name__, getattr(source, f"_{spec.__name__}", None)
        if read is None:
            raise UsageError(f"{source_name} has no table {table.name}.", do=f"Read it from {of}." if of else "")
        arguments = {
            name: _checked(name, value)
            for name, value in bound.items()
            if value is not signature.parameters[name].default
        }
        supported = inspect.signature(read).parameters
        for name in arguments:
            if name not in supported:
                raise UsageError(f"{source_name}.{spec.__name__} does not take {name}.", means=ARGUMENTS[name])
        return shape(read(**arguments))

    method.__doc__ = _docstring(spec, table, returns)
    method.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
    return method


def _checked(name: str, value: Any) -> Any:
    """The argument, one topic or partition as a list; raise for a time without zone."""
    if isinstance(value, dt.datetime):
        return in_utc(value)
    return as_list(value) if name in {"topics", "partitions"} else value


def as_list(value: Any) -> Any:
    """One topic or partition as a list."""
    return [value] if isinstance(value, (str, int)) else value


def _docstring(spec: Callable[..., None], table: Table, returns: str) -> str:
    names = [name for name in inspect.signature(spec).parameters if name != "self"]
    parameters = "".join(f"{name}\n    {ARGUMENTS[name]}\n" for name in names)
    summary = f"{table.row[0].upper()}{table.row[1:]} (``schema.{table.name.upper()}``), one row each."
    details = inspect.cleandoc(spec.__doc__ or "")
    text = f"{summary}\n\n{details}\n\n" if details else f"{summary}\n\n"
    text += f"Parameters\n----------\n{parameters}\n" if names else ""
    text += f"Returns\n-------\n{returns}\n\nRaises\n------\nNotFound\n"
    text += "    If the source does not have the selected topic, partition or broker.\n"
    text += "UsageError\n    If this source has no such table or argument, or an argument is invalid.\n"
    return text


def _declaration(method: Any) -> Any:
    return method.__declaration__
