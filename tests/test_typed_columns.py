"""A wrong column is an error of mypy: wrong names are seeded in copies of every module that reads rows.

In the copies, each attribute that is named like a column gets another name, and so does each column that a record or
``replace`` takes; ``reveal_type`` shows what each object is whose column is read by a string. One run of mypy checks
all of them. By its name this file comes after tests/test_style.py, whose run of mypy leaves what this one needs of
other packages in the cache.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from toolkit.schema import TABLES
from toolkit.schema.record import TableRow

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("mypy")]

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["actions", "analysis", "sources", "spark", "views"]
COLUMNS = {column.name for table in TABLES.values() for column in table.columns}
TAKES_COLUMNS = {"replace", *(record.__name__ for record in TableRow.__subclasses__())}
LINE = re.compile(r'(toolkit/\S+?):(\d+): (?:(error): |note: Revealed type is "(.*)")')
UNTYPED = {"Any", "types.ModuleType"}  # responses of kafka-python, Arrow, Spark; `re.error`
A_DICT = re.compile(r"(?:builtins\.dict|dict|typing\.(?:Mutable)?Mapping)\[str, Any\]")
DICT_READERS = {
    "actions": set(),
    "analysis": {"history/resume_state.py"},
    "sources": {"live/logs/partition_tables.py"},
    "spark": {"pipeline/tables/stored_tables.py", "datasources/batches_reader.py"},
    "views": {
        "agent/agent_tools.py",
        "panel/abort_panel.py",
        "panel/layout.py",
        "plots/figure_svg.py",
        "plots/svg_axis.py",
        "report/redaction.py",
        "report/incident.py",
        "report/report.py",
    },
}
"""Modules that read columns of dicts: what comes from JSON, Arrow, pandas or Spark, and is no record yet."""


@dataclass(slots=True)
class Seeded:
    """A copy of a module with its seeds.

    Parameters
    ----------
    code
        The copy, with the lines of the module.
    attributes, strings
        Names of the columns that are read on a line.
    errors
        Lines with an error.
    types
        Types of the objects on a line.
    """

    code: bytes
    attributes: dict[int, list[str]]
    strings: dict[int, list[str]]
    errors: set[int] = field(default_factory=set)
    types: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def uses(tree: ast.Module) -> Iterator[ast.Attribute | ast.Subscript | ast.Call]:
    """Where a column is read or set, methods apart; not in f-strings, whose parts have no positions before 3.12."""
    unplaced = {id(each) for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for each in ast.walk(text)}
    called = {id(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in unplaced or id(node) in called:
            continue
        match node:
            case ast.Attribute(value=ast.Name("self" | "cls")):
                pass
            case ast.Attribute() if node.attr in COLUMNS:
                yield node
            case ast.Call(func=ast.Name(name)) if name in TAKES_COLUMNS:
                yield node
            case ast.Subscript(ctx=ast.Load(), slice=ast.Constant(value)) if value in COLUMNS:
                yield node


def seed(path: Path) -> Seeded:
    text = path.read_text()
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    added: defaultdict[int, list[tuple[int, bool, bytes]]] = defaultdict(list)
    attributes: defaultdict[int, list[str]] = defaultdict(list)
    strings: defaultdict[int, list[str]] = defaultdict(list)
    for node in uses(ast.parse(text)):
        if isinstance(node, ast.Call):
            for each in node.keywords:
                if each.arg in COLUMNS:
                    attributes[node.lineno].append(each.arg)  # mypy shows the line of the call
                    added[each.lineno].append((each.col_offset + len(each.arg), False, b"_"))
            continue
        value = node.value
        assert value.end_lineno
        assert node.end_lineno
        added[value.lineno].append((value.col_offset, True, b"reveal_type("))
        added[value.end_lineno].append((value.end_col_offset or 0, False, b")"))
        if isinstance(node, ast.Attribute):
            attributes[node.lineno].append(node.attr)
            added[node.end_lineno].append((node.end_col_offset or 0, False, b"_"))
        else:
            strings[node.lineno].append(ast.unparse(node))
    for number, parts in added.items():
        for at, _, what in sorted(parts, key=lambda part: part[:2], reverse=True):
            lines[number - 1] = lines[number - 1][:at] + what + lines[number - 1][at:]
    return Seeded(b"".join(lines), dict(attributes), dict(strings))


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seeded]:
    """Every module with seeds, after mypy has read it."""
    folder = tmp_path_factory.mktemp("seeded")
    modules = {path.relative_to(ROOT).as_posix(): seed(path) for path in sorted((ROOT / "toolkit").rglob("*.py"))}
    modules = {name: each for name, each in modules.items() if each.attributes or each.strings}
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--hide-error-context", "--no-error-summary", "toolkit"]
    for name, each in modules.items():
        copy = folder / name.replace("/", "+")
        copy.write_bytes(each.code)
        command += ["--shadow-file", name, str(copy)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1100)
    assert "revealed" in done.stdout.lower(), done.stdout[-3000:] + done.stderr
    for name, line, error, type_name in LINE.findall(done.stdout):
        if error:
            modules[name].errors.add(int(line))
        else:
            modules[name].types[int(line)].append(type_name)
    return modules


def of_room(checked: dict[str, Seeded], room: str) -> Iterator[tuple[str, Seeded]]:
    return ((name, each) for name, each in checked.items() if name.startswith(f"toolkit/{room}/"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_wrong_column_of_a_record_is_an_error(room: str, checked: dict[str, Seeded]) -> None:
    seeds = [
        (f"{name}:{line}", names, line in each.errors, each.types[line])
        for name, each in of_room(checked, room)
        for line, names in each.attributes.items()
    ]
    assert sum(is_error for *_, is_error, _ in seeds) > 50
    assert [seed for seed in seeds if not seed[2] and UNTYPED.isdisjoint(seed[3])] == []


@pytest.mark.parametrize("room", ROOMS)
def test_only_borders_read_columns_of_dicts(room: str, checked: dict[str, Seeded]) -> None:
    readers = {
        name: [text for line in each.strings if any(map(A_DICT.match, each.types[line])) for text in each.strings[line]]
        for name, each in of_room(checked, room)
    }
    readers = {name.removeprefix(f"toolkit/{room}/"): texts for name, texts in readers.items() if texts}
    assert {name: texts for name, texts in readers.items() if name not in DICT_READERS[room]} == {}
    assert DICT_READERS[room] - readers.keys() == set(), "these read none any more"
