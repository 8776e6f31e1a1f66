"""The registry of tables: each is declared once, and each source has one function for it."""

from __future__ import annotations

import datetime as dt
import inspect
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import toolkit
from toolkit import Cluster, LogDir, Recording
from toolkit.errors import UsageError
from toolkit.lab import samples
from toolkit.lab.lab_source import open_sample
from toolkit.schema import MISSING_OFFSETS, OFFSET_VISIBILITY, SEGMENTS, Row
from toolkit.schema.live import Partition
from toolkit.schema.log import Batch, LogSegment, LogTransaction, PastTransaction
from toolkit.schema.table import TableRow
from toolkit.sources import progress_bar as progress_module
from toolkit.sources.progress_bar import progress
from toolkit.sources.source import CLUSTER, SOURCE_TABLES, DeclaredTable, Source, TableArguments, implements, tables_of

SOURCES: list[type[Source]] = [Cluster, LogDir, Recording]


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_a_source_lists_only_the_tables_that_it_has(source: type[Source]) -> None:
    """`Recording` listed 62 names, 39 of which could only fail."""
    names = dir(object.__new__(source))
    listed = [getattr(getattr(source, name), "table_name", None) for name in names if hasattr(source, name)]
    assert {name for name in listed if name is not None} == {*tables_of(source.kind)}
    assert {"records", "read", "findings", "finding_rows"} <= {*names}


def test_packages_list_what_they_export() -> None:
    assert dir(toolkit) == sorted(toolkit.__all__)


@pytest.mark.parametrize("declared", SOURCE_TABLES.values(), ids=SOURCE_TABLES)
def test_an_argument_has_the_same_default_in_every_table(declared: DeclaredTable) -> None:
    defaults = {field.name: field.default for field in fields(TableArguments)}
    for name, parameter in list(inspect.signature(declared.spec).parameters.items())[1:]:
        assert parameter.default is defaults[name], name
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


def test_a_source_has_functions_for_its_tables_and_no_others() -> None:
    with pytest.raises(TypeError, match=r"Partial and the declarations of a cluster differ by \['batches', "):

        class Partial(Source):
            kind = CLUSTER

    def segments(self: Cluster, arguments: TableArguments) -> list[LogSegment]:
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
    with pytest.raises(UsageError, match=r"LogDir has no table findings_over_time\. Read it from a recording, "):
        files.findings_over_time()
    with pytest.raises(UsageError, match="before it starts"):
        files.batches(start=5, stop=3)


def test_arguments_are_understood_as_users_write_them() -> None:
    """`topic=` was a TypeError, and the text of a time, which the command line takes, no offset."""
    arguments = TableArguments.of(start="2026-11-21T13:00:00+01:00", stop="log_end", at="2026-11-21T12:00:00Z")
    noon = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    assert (arguments.start, arguments.stop, arguments.at) == (noon, "log_end", noon)
    for name in ("start", "at"):
        with pytest.raises(UsageError, match=r"^The time 2026-11-21 has no zone\. Write it as 2026-11-21T12:00:00Z"):
            TableArguments.of(**{name: "2026-11-21"})
        with pytest.raises(UsageError, match=r"^The time 2026-11-21 12:00:00 has no time zone\."):
            TableArguments.of(**{name: noon.replace(tzinfo=None)})
    with pytest.raises(UsageError, match=r"^'tomorrow' is not an offset\. Use a number, a time as 2026-"):
        TableArguments.of(start="tomorrow")
    with pytest.raises(UsageError, match=r"^datetime\.date\(2026, 11, 21\) is not a time\. Pass a datetime"):
        TableArguments.of(at=dt.date(2026, 11, 21))


def test_topic_and_partition_are_names_of_arguments_too() -> None:
    class Seen(Recording):
        def read(self, table: str, arguments: TableArguments) -> list[Row]:
            seen.append((table, arguments.topics, arguments.partitions))
            return []

    seen: list[object] = []
    source: Any = object.__new__(Seen)
    source.finding_rows(topic="orders", partition=2)
    source.finding_rows(topics=["orders"], partitions=[2])
    assert seen == [("findings", ["orders"], [2])] * 2
    for wrong in ({"tpic": "orders"}, {"topic": "orders", "topics": "orders"}):
        with pytest.raises(UsageError, match=r"^Seen\.findings: got an unexpected .* Its arguments: topics, "):
            source.findings(**wrong)


@pytest.mark.parametrize("record", [Batch, LogTransaction, PastTransaction, Partition])
def test_records_are_the_rows_of_the_frame(record: type[TableRow]) -> None:
    """Tables that are read as Arrow were no records: TypeError: unhashable type."""
    source = samples.load("long-history").log_dir()
    found, rows = source.records(record), record.table.rows(getattr(source, record.table.name)())
    assert found
    assert record.table.rows(record.table.frame(found)) == rows


def test_the_frames_of_offsets_are_their_rows() -> None:
    log_dir = samples.load("several-open").log_dir()
    topic = samples.load("several-open").topic
    rows = log_dir.offset_visibility_rows(topic, 0, 2)
    assert (rows[0]["topic"], rows[0]["partition"], rows[0]["offset"]) == (topic, 0, 2)
    assert log_dir.offset_visibility(topic, 0, 2).equals(OFFSET_VISIBILITY.frame(rows))
    everything = log_dir.missing_offsets(topic, 0)
    first = int(everything["first_offset"][0])
    options: dict[str, Any]
    for options in ({"start": first + 1}, {"stop": first + 1}, {"read_committed": False}):
        frame = log_dir.missing_offsets(topic, 0, **options)
        assert frame.equals(MISSING_OFFSETS.frame(log_dir.missing_offset_rows(topic, 0, **options)))
        assert not frame.equals(everything), options
    with pytest.raises(UsageError, match="ends at 1"):
        log_dir.missing_offsets(topic, 0, start=2, stop=1)


def test_a_sample_without_a_trail_of_actions_has_one_of_its_own() -> None:
    with open_sample(samples.load("several-open")) as source:
        assert source.audit.path == source.temporary() / "audit.jsonl"


@pytest.mark.parametrize("where", ["pipe", "terminal", "notebook"])
def test_progress_is_shown_in_a_terminal_or_notebook(
    where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if where != "pipe":
        monkeypatch.setattr(progress_module, "DELAY", 0.0)
    if where == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    elif where == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with progress("orders-0", total=100, unit="offsets") as advance:
        advance(40)
        advance(60)
    output = capsys.readouterr()
    assert output.out == ""
    assert "orders-0" in output.err if where != "pipe" else output.err == ""
