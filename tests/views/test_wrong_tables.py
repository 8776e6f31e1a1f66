"""A plot or report of another table says which one it wants: a missing column is null, and reads as nothing open."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

from tests.distinct import distinct_rows
from toolkit import schema
from toolkit.errors import UsageError
from toolkit.lab.samples import load
from toolkit.schema import TABLES
from toolkit.schema.coerce import table_of
from toolkit.views.finding_document import finding_lines, summary
from toolkit.views.finding_steps import next_steps
from toolkit.views.plots import number_tiles, plot_holds, plot_lag, plot_overview, plot_timeline
from toolkit.views.report import report
from toolkit.views.show_table import show

OTHER_NAMES = {"rows": "group_lag", "recorded_findings": "findings"}
FUNCTIONS = (finding_lines, next_steps, number_tiles, plot_holds, plot_lag, plot_overview, plot_timeline,
             report, summary)  # fmt: skip


def _parameters() -> Iterator[Any]:
    for function in FUNCTIONS:
        parameters = inspect.signature(function).parameters.values()
        first = next(iter(parameters)).name
        for name in (each.name for each in parameters if "Data" in str(each.annotation)):
            yield pytest.param(function, first, name, id=f"{function.__name__}-{name}")


@pytest.mark.parametrize(("function", "first", "name"), list(_parameters()))
@pytest.mark.parametrize("as_frame", [True, False], ids=["frame", "rows"])
def test_another_table_is_refused(function: Callable[..., Any], first: str, name: str, as_frame: bool) -> None:
    """Each of the others, as frame and as rows."""
    wanted = TABLES[OTHER_NAMES.get(name, name)]
    others = [each for each in TABLES.values() if not set(each.names) <= set(wanted.names)]
    assert len(others) > 20
    for other in others:
        data = other.frame() if as_frame else distinct_rows(other)
        with pytest.raises(UsageError, match=f"The table {wanted.name} is needed; this is {other.name}"):
            function(**{first: [], name: data})


def test_columns_of_no_table_are_refused() -> None:
    """Of columns that no table has, the error names those that are there."""
    with pytest.raises(UsageError, match="The table findings is needed; the columns here are lso, topic"):
        plot_overview(pd.DataFrame({"topic": ["orders"], "lso": [3]}))


def test_columns_of_ones_own_are_left_out() -> None:
    """A frame of findings with a column of one's own, or with some of its columns, is one of findings."""
    frame = schema.FINDINGS.frame()
    assert show(frame.assign(application="billing")).table is schema.FINDINGS
    assert summary(frame.assign(application="billing")) == summary(frame[["topic", "verdict"]]) == summary([])


def test_an_empty_selection_says_nothing_of_the_cluster() -> None:
    """It said that nothing hangs, while four partitions did."""
    shown = show(schema.FINDINGS.frame())
    assert repr(shown) == repr(show([])) == "no findings"
    assert "No findings." in shown._repr_html_()
    assert table_of([]) is None


def test_a_selection_does_not_say_what_is_open_beside_it() -> None:
    """Of the rows that hang alone, it said that nothing else is open, and the LSO of the next one of them."""
    found = load("several-open").log_dir().findings()
    assert "next     the LSO goes to 14\n" in repr(show(found))
    first = repr(show(found[found.queue_position == 1]))
    assert "the LSO goes to the high watermark, if nothing else is open" in first
    assert "the LSO goes" not in repr(show(found[found.queue_position != 2]))
