"""Rows as text of a terminal, CSV, JSON with its envelope, and Parquet."""

from __future__ import annotations

import csv
import datetime as dt
import html
import io
import json
import os
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.errors import UsageError
from toolkit.schema.coerce import Scope
from toolkit.schema.durations import duration
from toolkit.schema.table import utc_now
from toolkit.version import __version__
from toolkit.views.document import Count, Grid

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.schema import Row, Table
    from toolkit.sources.source import Source


ENVELOPE_VERSION = 1
"""Of the fields before the rows; raised when one of them changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields of an answer before its rows."""

    schema: str  # name of the answer: ``docs/reference/schemas`` has a JSON Schema of each
    schema_version: str  # ``1.2``: that of these fields, and that of the columns of the rows
    tool_version: str = __version__
    cluster_id: str | None = None  # null where no broker and no file says it
    principal: str | None = None  # user name at the brokers; null if there is none
    time: dt.datetime = field(default_factory=utc_now)  # by this machine's clock
    scope: Scope | None = None  # null if nothing was read
    scope_text: str | None = None  # the same as an all-clear names it; null of what was not read for findings

    @classmethod
    def of(cls, schema: str, version: int, source: Source | None, scope: Scope | None) -> Envelope:
        """The envelope of an answer that a source gave; null if it needed none."""
        return cls(
            schema=schema,
            schema_version=f"{ENVELOPE_VERSION}.{version}",
            cluster_id=None if source is None else source.cluster_id,
            principal=None if source is None else source.principal,
            scope=scope,
            scope_text=source.scope_text if source is not None and scope is source.scope else None,
        )

    def fields(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


MIN_ROOM = 30  # columns of a text
_ASIDE = {"error", "last_update_time"}  # shown if a row has one


def table_grid(
    table: Table, rows: Sequence[Row], *, without: Collection[str] = (), columns: Sequence[str] | None = None
) -> Grid:
    """Rows of a table for a person.

    `without`: columns to leave out. ``observed_at`` is left out too: JSON and CSV have every column.
    `columns`: show exactly these columns, in this order.
    """
    hidden = {"observed_at", *without} | {name for name in _ASIDE if not any(row.get(name) for row in rows)}
    names = [name for name in table.names if name not in hidden] if columns is None else columns
    cells = tuple(tuple(row.get(name) for name in names) for row in rows)
    return Grid(title="", columns=tuple(names), rows=cells, empty=f"no {table.name.replace('_', ' ')}")


class GridTexts(NamedTuple):
    """The headings and cells of a grid as texts; `kinds`: of each column, ``number``, ``time`` or nothing."""

    names: list[str]
    cells: list[list[str]]
    kinds: list[str]

    @classmethod
    def of(cls, grid: Grid) -> GridTexts:
        """Times say that they are UTC in their heading."""
        kinds = list(map(_kind, zip(*grid.rows, strict=True))) if grid.rows else [""] * len(grid.columns)
        between = "_" if any("_" in name for name in grid.columns) else " "
        names = [
            f"{name}{between}(UTC)" if kind == "time" else name for name, kind in zip(grid.columns, kinds, strict=True)
        ]
        cells = [[cell_text(cell, is_precise=grid.is_precise) for cell in row] for row in grid.rows]
        return cls(list(map(printable, names)), cells, kinds)


def _kind(column: Collection[object]) -> str:
    if any(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in column):
        return "number"
    return "time" if any(isinstance(cell, dt.datetime) for cell in column) else ""


def grid_lines(grid: Grid, *, width: int | None = None, widest: int | None = None) -> list[str]:
    """Aligned columns, or one block per row if they do not fit into `width`. No value is ever cut.

    `width`: columns of the terminal; null for no limit.
    `widest`: a longer cell has several lines; null for no limit.
    """
    if not grid.rows:
        return [printable(grid.empty)]
    names, cells, kinds = GridTexts.of(grid)
    numbers = [kind == "number" for kind in kinds]
    lines = text_columns(names, [[_in_lines(cell, widest) for cell in row] for row in cells], numbers)
    if width is None or max(map(len, lines)) <= width:
        return lines
    rooms = [max(map(len, [*_words(name), *column])) for name, *column in zip(names, *cells, strict=True)]
    fitting = (room for room in range(max(rooms), MIN_ROOM - 1, -1)
               if sum(min(room, each) + 2 for each in rooms) - 2 <= width)  # fmt: skip
    if room := next(fitting, None):
        return text_columns(names, [[_in_lines(cell, room) for cell in row] for row in cells], numbers)
    names = [name.replace("_(", " (") for name in names]
    longest = max(map(len, names))
    blocks = [
        [
            f"{'' if number else name:<{longest}}  {line}"
            for name, cell in zip(names, row, strict=True)
            if cell != "-"
            for number, line in enumerate(_in_lines(cell, max(width - longest - 2, MIN_ROOM)).split("\n"))
        ]
        for row in cells
    ]
    return [line for block in blocks for line in [*block, ""]][:-1]


def _in_lines(cell: str, room: int | None) -> str:
    """A cell with a line for as much of it as there is room, if it is longer."""
    if room is None or len(cell) <= room:
        return cell
    return "\n".join(textwrap.wrap(cell, room, break_on_hyphens=False))


def _words(name: str) -> list[str]:
    """Of a heading, which may be that of a column of a table."""
    return name.replace("_", " ").split() or [""]


def wrap(text: str, *, before: str, width: int | None) -> list[str]:
    """Text as lines with a hanging indent after `before`, or below it where too little is left of the width."""
    if width is None:
        return [before + text]
    if len(before) + min(len(text), MIN_ROOM) > max(width, 50) and before.strip():
        indent = " " * (len(before) - len(before.lstrip()) + 4)
        return [before.rstrip(), *wrap(text, before=indent, width=max(width, len(indent) + MIN_ROOM))]
    return textwrap.wrap(
        text,
        max(width, len(before) + MIN_ROOM),
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [before.rstrip()]


def json_pieces(table: Table, rows: Iterable[Row]) -> Iterator[str]:
    """One JSON array, an object per row with exactly the table's columns; times are ISO 8601 in UTC."""
    return array_pieces({name: row.get(name) for name in table.names} for row in rows)


def array_pieces(rows: Iterable[Row]) -> Iterator[str]:
    """One JSON array, an object per row; times are ISO 8601 in UTC."""
    before = "["
    for row in rows:
        yield f"{before}\n  {json.dumps(row, default=json_default)}"
        before = ","
    yield "\n]\n" if before == "," else "[]\n"


def answer_pieces(envelope: Envelope, rows: Iterable[str]) -> Iterator[str]:
    """One JSON object: the fields of an envelope, then ``rows``, which are the pieces of an array."""
    yield "{\n"
    for name, value in envelope.fields().items():
        yield f'"{name}": {json.dumps(value, default=json_default)},\n'
    yield '"rows": '
    yield from rows
    yield "}\n"


def csv_pieces(table: Table, rows: Iterable[Row]) -> Iterator[str]:
    """CSV with a header line; null is an empty cell, a list is JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.names)
    for row in rows:
        writer.writerow(csv_cells(table, row))
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def csv_cells(table: Table, row: Row) -> list[Any]:
    """The cells of a row of CSV."""
    return [_flat(row.get(name)) for name in table.names]


def cell_text(value: Any, *, is_precise: bool = False) -> str:
    """A value as text: null is a dash, topic partitions are ``orders-0, orders-1``; `is_precise`: times have ms."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        ms = f".{value.microsecond // 1000:03}" if is_precise else ""
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}{ms}"
    if isinstance(value, dt.timedelta):
        return duration(value)
    if isinstance(value, Count | float):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(cell_text, value))
    if isinstance(value, dict) and value.keys() == {"topic", "partition"}:
        return printable(f"{value['topic']}-{value['partition']}")
    return printable(str(value))


def printable(text: str) -> str:
    """Escape control characters, which ids and error texts may contain."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, longest: int) -> str:
    """A text, with an ellipsis in its middle if it is longer."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]}…{text[-(longest - longest // 2 - 1) :]}"


def plain(text: object, *, longest: int | None = None) -> str:
    """A text escaped for plotly and Markdown, which interpret markup, links and formulas."""
    whole = printable(str(text))
    return html.escape(whole if longest is None else shortened(whole, longest), quote=False).replace("$", "&#36;")


def spellings(name: str) -> list[str]:
    """A name as it is, and as our sentences escape it; the longest first."""
    spelled = {
        name,
        printable(name),
        repr(name)[1:-1],
        json.dumps(name)[1:-1],
        json.dumps(name, ensure_ascii=False)[1:-1],
    }
    return sorted(spelled, key=len, reverse=True)


def count(value: int, one: str, many: str = "") -> str:
    """``1 record``, ``2,115 records``."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def size_text(count: int) -> str:
    """A size for a person: ``1.2 MB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def text_columns(names: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[bool]) -> list[str]:
    """Aligned columns; a long heading over a narrow column is wrapped, and a cell may have several lines."""
    broken = [[cell.split("\n") for cell in row] for row in cells]
    columns = [[line for cell in column for line in cell] for column in zip(*broken, strict=True)]
    widths = [max(map(len, [*_words(name), *column])) for name, column in zip(names, columns, strict=True)]
    heads = [textwrap.wrap(name.replace("_", " "), width) for name, width in zip(names, widths, strict=True)]
    height = max(map(len, heads))
    head = zip(*([""] * (height - len(words)) + words for words in heads), strict=True)
    body = [line for row in broken for line in zip_longest(*row, fillvalue="")]
    return [
        "  ".join(
            f"{cell:>{width}}" if number else f"{cell:<{width}}"
            for cell, width, number in zip(line, widths, numbers, strict=True)
        ).rstrip()
        for line in [*head, *body]
    ]


def json_default(value: object) -> str:
    """A value that JSON lacks: a time is ISO 8601 in UTC."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no place in a table")


def _flat(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, default=json_default)
    if isinstance(value, dt.datetime):
        return json_default(value)
    return str(value).lower() if isinstance(value, bool) else value


SUFFIXES = (".parquet", ".csv", ".json")


class WriteCounts(NamedTuple):
    """Number of rows in a file, and of rows with an error."""

    rows: int
    errors: int


def write_file(path: Path, table: Table, tables: Iterable[pa.Table]) -> WriteCounts:
    """Write tables of one schema. A file that cannot be written completely is not created.

    `path`: the file; its suffix selects the format.
    Raises UsageError for another suffix, or a path that cannot be written to.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
    rows = errors = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows, errors
        for part in tables:
            rows += part.num_rows
            errors += part.num_rows - part["error"].null_count if "error" in part.column_names else 0
            yield part

    with replaced_file(path) as unfinished:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            with pq.ParquetWriter(unfinished, table.arrow_schema) as writer:
                for part in counted():
                    writer.write_table(part)
        else:
            pieces = json_pieces if path.suffix == ".json" else csv_pieces
            with unfinished.open("w", encoding="utf-8", newline="") as file:
                file.writelines(pieces(table, (row for part in counted() for row in part.to_pylist())))
    return WriteCounts(rows, errors)


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Write to another file beside `path`, which replaces it at the end, or is deleted.

    Raises UsageError if the path cannot be written to.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as exc:
        raise UsageError(
            f"{path} cannot be written: {exc.strerror}.", do="Name a file in a folder that you may write to."
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)
