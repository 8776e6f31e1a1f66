"""Every option of the data sources is read, and its value is used: what each changes, as text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from tests.stored import compare
from toolkit.errors import UsageError
from toolkit.spark.datasources import batches_reader, log_plan, log_reader, samples_reader
from toolkit.spark.datasources.live_options import (
    CONNECTION,
    OF_BATCHES,
    OF_SAMPLES,
    BatchesOptions,
    TransactionsOptions,
    batches_options,
    transactions_options,
)
from toolkit.spark.datasources.log_options import FOR_ALL, TAKES, LogOptions, read_options
from toolkit.spark.datasources.reader_options import OFFSETS, SELECTION

VALUES = (
    *("other", "7", "7m", "orders-7", "true", "false", '{"orders": [7]}', '{"orders": {"7": 8}}'),
    *("2001-02-03T04:05:06Z", "FAILFAST", "samples", "producers"),
)
SOURCES: Mapping[str, tuple[Callable[[Mapping[str, str]], Any], Mapping[str, str], Sequence[str]]] = {
    **{
        f"kafka_log_dir {table}": (read_options, {"path": "some", "table": table}, (*FOR_ALL, *takes))
        for takes, table in {takes: table for table, takes in TAKES.items()}.items()
    },
    "kafka_log_live": (batches_options, {"subscribe": "some"}, (*OF_BATCHES, *CONNECTION, *SELECTION, *OFFSETS)),
    "kafka_txn_samples": (transactions_options, {}, (*OF_SAMPLES, *CONNECTION)),
}
READERS: Mapping[type, Sequence[ModuleType]] = {
    LogOptions: (log_plan, log_reader),
    BatchesOptions: (batches_reader,),
    TransactionsOptions: (samples_reader,),
}


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The fields of options, also of those in a field, as text."""
    if is_dataclass(value):
        for each in fields(value):
            yield from flat(getattr(value, each.name), f"{name}.{each.name}".strip("."))
    else:
        yield name, repr(value)


def changed(parse: Callable[[Mapping[str, str]], Any], base: Mapping[str, str], option: str) -> str:
    """What the first value that is accepted changes."""
    before = dict(flat(parse(base)))
    without = {name: value for name, value in base.items() if name not in SELECTION or option not in SELECTION}
    refusals = 0
    for value in VALUES:
        try:
            after = dict(flat(parse({**without, option: value})))
        except (UsageError, ValueError):  # one that only the pipeline sets has no sentence
            refusals += 1
            continue
        if after != before:
            shown = "; ".join(f"{name}={value}" for name, value in after.items() if value != before.get(name))
            return f"{option}={value}: {shown}"
    return f"{option}: {'refused' if refusals == len(VALUES) else 'no effect'}"


def test_every_option_is_parsed() -> None:
    lines = []
    for name, (parse, base, options) in SOURCES.items():
        lines += [name, *(f"    {changed(parse, base, option)}" for option in options)]
    ignored = {line.strip() for line in lines if line.endswith("no effect")}
    assert ignored == {"commandConfig: no effect"}, "but for the client, whose settings are parsed elsewhere"
    compare("spark_options.txt", lines)


def test_every_option_is_used() -> None:
    for options, modules in READERS.items():
        read = {
            node.attr
            for module in modules
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("options")
        }
        assert read == {each.name for each in fields(options)}, options
