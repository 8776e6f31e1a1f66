"""Every table through every form of its rows: no column is lost or takes the place of another."""

from __future__ import annotations

import csv
import datetime as dt
import importlib
import io
import json
import pickle
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq

import toolkit
from tests.distinct import distinct_rows
from toolkit.errors import ActionFailed, BrokerError, NotFound
from toolkit.schema import RECORDED, TABLES, Row
from toolkit.schema.coerce import records_of, rows_of
from toolkit.schema.table import TableRow
from toolkit.sources.recording import Recording
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import Sample
from toolkit.views.row_formats import csv_pieces, json_pieces, write_file


def records() -> list[type[TableRow]]:
    """The record classes of the whole package."""
    for module in pkgutil.walk_packages(toolkit.__path__, "toolkit."):
        importlib.import_module(module.name)

    def below(record: type[TableRow]) -> Iterator[type[TableRow]]:
        for each in record.__subclasses__():
            yield each
            yield from below(each)

    return sorted({each for each in below(TableRow) if "table" in vars(each)}, key=lambda each: each.table.name)


def text(value: object) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [text(each) for each in value]
    return {name: text(each) for name, each in value.items()} if isinstance(value, dict) else value


def cell(value: object) -> str:
    """A value as a cell of CSV has it."""
    plain = text(value)
    if isinstance(plain, bool):
        return str(plain).lower()
    return json.dumps(plain) if isinstance(plain, list | dict) else str(plain)


def test_records() -> None:
    assert len(records()) > len(RECORDED)
    for record in records():
        if record._tables:  # Arrow's own arrays: tests/spark/test_log_state.py
            continue
        nulls = {column.name: None for column in record.table.columns if column.nullable}
        rows = distinct_rows(record.table)
        made = [record.of(row) for row in rows]
        for each, row in zip(made, rows, strict=True):
            scalars = {name: value for name, value in row.items() if not isinstance(value, list)}
            assert {name: getattr(each, name) for name in scalars} == scalars, record
        table = record.table.arrow(rows)
        assert [each.row() for each in made] == rows, record
        assert record.of_table(table) == records_of(record.table.frame(made), record) == made, record
        assert record.of_table(table.slice(1)) == made[1:], record
        nothing = record.of({**rows[0], **nulls})
        alone = record.table.arrow([nothing])
        assert record.of_table(alone) == record.of_table(alone.drop_columns([*nulls])) == [nothing], record
        assert record.table.arrow(made) == table, record
        others = {name: getattr(made[1], name) for name in record.table.names}
        copied: Any = replace  # of any record
        assert copied(made[0], **others) == made[1], record


def test_tables(tmp_path: Path) -> None:
    for table in [each.table for each in records()] + [*TABLES.values()]:
        rows = distinct_rows(table)
        in_order = rows if table.sort else rows[::-1]
        assert table.ordered([table.arrow(reversed(rows))]) == table.ordered(reversed(rows)) == in_order, table.name
        frame = table.frame(rows)
        assert table.rows(frame) == rows_of(frame[table.names[::-1]], table) == rows, table.name
        write_file(tmp_path / f"{table.name}.parquet", table, [table.arrow(rows)])
        assert pq.read_table(tmp_path / f"{table.name}.parquet").to_pylist() == rows, table.name
        if any(column.type == "binary" for column in table.columns):
            continue
        made = "".join(csv_pieces(table, rows))
        assert json.loads("".join(json_pieces(table, rows))) == text(rows), table.name
        cells = [{name: cell(value) for name, value in row.items()} for row in rows]
        assert list(csv.DictReader(io.StringIO(made))) == cells, table.name
        for suffix in (".csv", ".json"):
            write_file(tmp_path / f"{table.name}{suffix}", table, [table.arrow(rows)])
        assert (tmp_path / f"{table.name}.csv").read_text() == made
        assert json.loads((tmp_path / f"{table.name}.json").read_text()) == text(rows)


def test_recordings(tmp_path: Path) -> None:
    due = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    tables: dict[str, Sequence[Row]] = {
        name: [{**row, "sampled_at": due} for row in distinct_rows(table)] for name, table in RECORDED.items()
    }
    tables["samples"] = tables["samples"][:1]
    with SampleWriter(tmp_path) as writer:
        assert writer.write(cast(Sample, SimpleNamespace(due=due, tables=tables)))
        for merged in (False, True):
            if merged:
                writer.merge(now=due + dt.timedelta(days=2))
            for name, rows in tables.items():
                table = RECORDED[name]
                assert table.rows(Recording(tmp_path).history(name)) == table.ordered(rows), (name, merged)


def test_errors() -> None:
    """A worker of a pool sends its error as a pickle: one with more than a text broke the pool."""
    broker = BrokerError("Denied.", code="TOPIC_AUTHORIZATION_FAILED", means="It is.", do="Ask.", command=["kafka-txn"])
    failed = ActionFailed("Late.", effect="uncertain", code="REQUEST_TIMED_OUT", do="Look.")
    for each in (broker, failed, NotFound("Gone.", do="Look.")):
        copy = pickle.loads(pickle.dumps(each))
        assert (type(copy), str(copy), vars(copy)) == (type(each), str(each), vars(each))
