"""Write tables to a Parquet, CSV or JSON file, by its suffix, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from toolkit.errors import UsageError
from toolkit.views.row_formats import csv_pieces, json_pieces

if TYPE_CHECKING:
    from toolkit.schema import Row, Table

SUFFIXES = (".parquet", ".csv", ".json")


class WriteCounts(NamedTuple):
    """Number of rows in a file, and of rows with an error."""

    rows: int
    errors: int


def write_file(path: Path, table: Table, found: Iterable[pa.Table]) -> WriteCounts:
    """Write tables of one schema. A file that cannot be written completely is not created.

    Parameters
    ----------
    path
        The file; its suffix selects the format.
    table
        Their declaration.
    found
        The tables.

    Raises
    ------
    UsageError
        For another suffix, or a path that cannot be written to.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    counted = _Counted(found)
    try:
        if path.suffix == ".parquet":
            _write_parquet(unfinished, table, counted)
        else:
            pieces = json_pieces if path.suffix == ".json" else csv_pieces
            with unfinished.open("w", encoding="utf-8", newline="") as file:
                file.writelines(pieces(table, _rows(counted)))
        unfinished.replace(path)
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}.") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return WriteCounts(counted.rows, counted.errors)


class _Counted:
    """Tables, and the number of rows so far, with and without an error."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = tables
        self.rows = self.errors = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            self.rows += table.num_rows
            if "error" in table.column_names:
                self.errors += table.num_rows - table["error"].null_count
            yield table


def _write_parquet(path: Path, table: Table, found: Iterable[pa.Table]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, table.arrow_schema) as writer:
        for each in found:
            writer.write_table(each)


def _rows(tables: Iterable[pa.Table]) -> Iterator[Row]:
    for table in tables:
        yield from table.to_pylist()
