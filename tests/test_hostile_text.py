"""Names from outside reach no terminal, shell, page or table as anything but a name."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.distinct import CONTROL, HOSTILE, Tags, cells, hostile_rows
from tests.test_cli_flags import CLUSTER, contexts
from tests.views.test_text import finding
from toolkit.cli.commands import app
from toolkit.cli.options import SourceOptions
from toolkit.cli.output import remark, show
from toolkit.errors import ToolkitError
from toolkit.schema import FINDINGS, GROUP_LAG, MISSING_OFFSETS, OFFSET_VISIBILITY, TABLES
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.table import TableRow
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import group_offsets
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.source import SOURCE_TABLES, TableArguments
from toolkit.views import show as show_table
from toolkit.views.finding_document import finding_lines, short_lines
from toolkit.views.report import report
from toolkit.views.row_formats import csv_pieces, grid_lines, json_pieces, table_grid

VALID = {"action": "abort", "state": "Ongoing", "outcome": "undecided", "cause": None, "status": "open"}
READING = {
    *("coordinator", "describe", "describe-producers", "diagnose", "exposure", "find-hanging", "gaps", "history"),
    *("lag", "list", "partitions", "why"),
}


class HostileCluster(Cluster):
    """A cluster in which every text is hostile, but for words of Kafka and of ours."""

    def __init__(self) -> None:
        self.client: Any = None

    def read(self, table: str, arguments: TableArguments) -> list[TableRow]:
        declared = SOURCE_TABLES[table].table
        (record,) = (each for each in TableRow.__subclasses__() if getattr(each, "table", None) is declared)
        return records_of(hostile_rows(declared, **VALID, verdict=Verdict.UNKNOWN, key_type="group"), record)

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


def test_an_id_of_a_short_line_is_as_a_shell_takes_it() -> None:
    """Its control characters were escaped within single quotes, where a shell leaves them as they are."""
    (line,) = short_lines(records_of([finding(transactional_id="a\x1bb;ls")], Finding))
    assert r"$'a\x1bb;ls'" in line.split()


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
