"""The registry of tables: each is declared once, and each source has one function for it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from toolkit import Cluster, LogDir, Recording
from toolkit.errors import UsageError
from toolkit.schema import SEGMENTS, Row
from toolkit.sources.source import Source, tables_of
from toolkit.sources.source_table import CLUSTER, SOURCE_TABLES, DeclaredTable, TableArguments, implements

SOURCES: list[type[Source]] = [Cluster, LogDir, Recording]


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_each_table_of_a_source_has_one_function(source: type[Source]) -> None:
    assert source.functions.keys() == {*tables_of(source.kind)}
    for name, function in source.functions.items():
        assert function.read.__name__ == name
        assert function.takes <= {*SOURCE_TABLES[name].takes}


@pytest.mark.parametrize("declared", SOURCE_TABLES.values(), ids=SOURCE_TABLES)
def test_an_argument_has_the_same_default_in_every_table(declared: DeclaredTable) -> None:
    defaults = {field.name: field.default for field in fields(TableArguments)}
    for name, parameter in list(inspect.signature(declared.spec).parameters.items())[1:]:
        assert parameter.default is defaults[name], name
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


def test_a_source_without_a_function_for_a_table_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match=r"Partial and the declarations of a cluster differ by \['batches', "):

        class Partial(Source):
            kind = CLUSTER


def test_a_source_with_a_function_for_a_table_of_others_cannot_be_defined() -> None:
    def segments(self: Cluster, arguments: TableArguments) -> list[Row]:
        return []

    with pytest.raises(TypeError, match=r"More and the declarations of a cluster differ by \['segments'\]"):
        type("More", (Cluster,), {"segments": implements(Source.segments)(segments)})
    assert SOURCE_TABLES["segments"].table is SEGMENTS


def test_an_argument_that_a_source_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(b"")
    files = LogDir(tmp_path)
    with pytest.raises(UsageError, match=r"LogDir\.producers does not take broker_id\."):
        files.producers(broker_id=1)
    with pytest.raises(UsageError, match=r"LogDir has no table findings_over_time\..*Read it from a recording\."):
        files.findings_over_time()
    with pytest.raises(UsageError, match="before it starts"):
        files.batches(start=5, stop=3)


@pytest.mark.parametrize("folder", ["sources", "spark", "cli"])
def test_no_table_is_found_by_a_composed_name(folder: str) -> None:
    for path in (Path(inspect.getfile(Source)).parents[1] / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
                assert not isinstance(node.args[1], ast.JoinedStr | ast.BinOp), f"{path}:{node.lineno}"
