"""Names from outside reach no terminal, shell, page or table as anything but a name."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.distinct import CONTROL, HOSTILE, Tags, cells, hostile_rows
from tests.test_cli_flags import CLUSTER, contexts
from toolkit.cli.commands import app
from toolkit.cli.options import SourceOptions
from toolkit.cli.output import remark, show
from toolkit.errors import ToolkitError
from toolkit.schema import FINDINGS, GROUP_LAG, MISSING_OFFSETS, OFFSET_VISIBILITY, TABLES, Row
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import group_offsets
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.source import SOURCE_TABLES, TableArguments
from toolkit.views import show as show_table
from toolkit.views.finding_document import finding_lines
from toolkit.views.report import report
from toolkit.views.row_formats import csv_pieces, grid_lines, json_pieces, table_grid

ROOT = Path(__file__).parent.parent / "toolkit"
NAMES = re.compile(
    r"--(?:topic|transactional-id|group|list|confirm|override|log-dir|recording|command-config|flink-checkpoint) $"
)
QUOTED = re.compile(r"(?:shlex\.)?quote\(|^(?:path|name|override|OFFSETS_TOPIC)$")
VALID = {"action": "abort", "state": "Ongoing", "outcome": "undecided", "cause": None, "status": "open"}
READING = {
    *("coordinator", "describe", "describe-producers", "diagnose", "exposure", "find-hanging", "gaps", "history"),
    *("lag", "list", "partitions", "why"),
}
WRITES = {"print", "sys.stderr.write", "sys.stdout.write", "typer.echo"}
WRITERS = {  # what writes to the terminal by itself: no names from outside
    "_clear": "moves the cursor",
    "_show": "counts and times of samples",
    "_version": "our version",
    "_watched": "clears the screen",
    "end": "a line end",
    "grafana_dashboard": "our dashboard",
    "main": "our sentence",
    "prometheus_rules": "our rules",
}


class HostileCluster(Cluster):
    """A cluster in which every text is hostile, but for words of Kafka and of ours."""

    def __init__(self) -> None:
        self.client: Any = None

    def read(self, table: str, arguments: TableArguments) -> list[Row]:
        return [*hostile_rows(SOURCE_TABLES[table].table, **VALID, verdict=Verdict.UNKNOWN, key_type="group")]

    def __getattribute__(self, name: str) -> Any:
        table = {"group_lag_rows": GROUP_LAG, "missing_offset_rows": MISSING_OFFSETS}.get(name)
        table = OFFSET_VISIBILITY if name == "offset_visibility_rows" else table
        if table is not None:
            return lambda *arguments, **options: hostile_rows(table, **VALID)
        return super().__getattribute__(name)

    def topic_gaps(self) -> list[str]:
        return [HOSTILE]

    def close(self) -> None:
        """Nothing is open."""


def test_every_table_is_shown_as_data() -> None:
    for table in TABLES.values():
        rows = hostile_rows(table, verdict=Verdict.HANGING)
        lines = grid_lines(table_grid(table, rows))
        assert not CONTROL.search("".join(lines)), table.name
        assert all("\n" not in line for line in lines), table.name
        if "binary" in {column.type for column in table.columns}:
            continue
        parsed = json.loads("".join(json_pieces(table, rows)))
        assert [each.get("error") for each in parsed] == [each.get("error") for each in rows]
        assert len(list(csv.reader(io.StringIO("".join(csv_pieces(table, rows)))))) == 1 + len(rows), table.name
        page = show_table(table.frame(rows))._repr_html_() if table is not FINDINGS else ""
        assert not CONTROL.search(page), table.name
        assert not [each for each in Tags(page).scripts if "alert(1)" in each], table.name


@pytest.mark.parametrize("verdict", Verdict)
def test_findings_are_shown_as_data(verdict: str) -> None:
    rows = hostile_rows(FINDINGS, **VALID, verdict=verdict, remedy="kafka-txn abort", topic=f"orders{HOSTILE}")
    assert not CONTROL.search("\n".join(finding_lines(rows))), verdict
    page = report([{**row, "cluster_id": HOSTILE} for row in rows], title=HOSTILE)
    assert not CONTROL.search(page.html + page.markdown)
    assert not [each for each in Tags(page.html).scripts if "alert(1)" in each]
    for line, number, above in cells(page.markdown):
        assert number == above, line


def test_commands_clean_what_they_print(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SourceOptions, "cluster", lambda options: HostileCluster())
    monkeypatch.setattr(group_offsets, "groups_with_offsets", lambda client: ([HOSTILE], [HOSTILE]))
    group: Any = typer.main.get_command(app)
    shown = set()
    for name, command in group.commands.items():
        for context in contexts(name, command):
            if name in READING and context.startswith(CLUSTER):
                result = CliRunner().invoke(app, [name, *context.split()])
                assert result.exception is None or isinstance(result.exception, SystemExit), (name, result)
                assert not CONTROL.search(result.output), name
                shown |= {name} if "touch" in result.stdout else set()
    assert shown == READING


def test_what_is_written_to_the_terminal_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    show([HOSTILE])
    remark(HOSTILE)
    remark(str(ToolkitError(HOSTILE, means=HOSTILE, do=HOSTILE)))
    written = "".join(capsys.readouterr())
    assert "touch x" in written
    assert not re.search(CONTROL.pattern.removesuffix("|31m\\n"), written)


def functions() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


def test_only_the_output_writes_to_the_terminal() -> None:
    found = {
        node.name
        for path, node in functions()
        if isinstance(node, ast.FunctionDef) and path.parent.name == "cli" and path.name != "output.py"
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in WRITES
    }
    assert found == WRITERS.keys()


def test_names_in_commands_are_quoted() -> None:
    raw = []
    for path, node in functions():
        for before, value in pairwise(node.values if isinstance(node, ast.JoinedStr) else ()):
            if isinstance(value, ast.FormattedValue) and NAMES.search(str(getattr(before, "value", ""))):
                shown = ast.unparse(value.value)
                raw += [f"{path.relative_to(ROOT)}:{value.lineno}: {shown}"] if not QUOTED.search(shown) else []
    assert not raw, "\n".join(raw)
