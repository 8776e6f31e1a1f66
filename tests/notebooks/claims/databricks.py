"""Claims of notebook 8."""

from typing import Any

from tests.spark.frames import assert_same
from toolkit import LogDir
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS


def probe(local: Any, access: Any, source: Any) -> None:
    if local:
        available = access.set_index(["process", "kind", "name"]).available
        assert not available["driver", "gateway", "JVM"]
        assert available["executors", "path", source]
        assert available["executors", "package"].all()


def findings(local: Any, found: Any) -> None:
    if local:
        known = load("late-message").expected
        (row,) = found.to_dict("records")
        assert {name: row[name] for name in ("verdict", "start_offset", "producer_id")}.items() <= known.items()


def report(local: Any, figure: Any, page: Any) -> None:
    if local:
        assert "LSO held at 15" in figure("light").layout.title.text
        assert "orders-0 at offset 15: hanging" in page.markdown


def kept(local: Any, kept: Any, source: Any, consistent_copy: Any, summary: Any) -> None:
    if local:
        assert_same(kept, LogDir(source, consistent_copy=consistent_copy).findings(), FINDINGS)
        assert not any(each.errors for each in summary.tables.values())


def dashboard(local: Any, held_now: Any, kept: Any) -> None:
    if local:
        assert held_now.remedy.tolist() == [row.remedy for row in kept.collect()]
