"""Tables as a notebook shows them."""

import base64
import datetime as dt
import gzip
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

from tests.actions.rows import RowCluster, abort_plan
from tests.views.plots.busy import finding
from tests.views.plots.drawn import traces
from toolkit.errors import UsageError
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, Row
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.views import show
from toolkit.views.finding_document import age, by_urgency
from toolkit.views.plots import plot_overview

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)


class Page(HTMLParser):
    """The cells and headings of a table, its attributes, and everything that is not text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.bodies: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tbody":
            self.bodies.append([])
        if tag == "td":
            self.bodies[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.bodies and self.bodies[-1]:
            self.bodies[-1][-1] += data.rstrip("\n")


def page(data: object, **options: object) -> Page:
    return Page(show(data, **options)._repr_html_())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Findings of several samples, each under its own name."""
    names = ("open-young", "several-open", "overdue", "orphan")
    return [{**row, "topic": name} for name in names for row in load(name).finding_rows()]


def test_a_terminal_gets_text(rows: list[Row]) -> None:
    assert "hang" in repr(show(rows, now=NOW)).splitlines()[-1]
    healthy = [{**rows[0], "verdict": "ongoing", "action": None}]
    last = repr(show(healthy, now=NOW)).splitlines()[-1]
    assert last.startswith("none of these hangs, 1 "), "nothing hangs, of rows from which those that hang were left out"
    selection = repr(show(rows, columns=["verdict", "start_offset"])).splitlines()
    assert selection[0].split() == ["start"]
    assert selection[2].split() == ["hanging", "13"], "that of the older sample holds on"
    assert repr(show(LOG_TRANSACTIONS.frame(), LOG_TRANSACTIONS)) == "no log transactions"


def test_all_rows_are_in_the_page_and_the_text_is_bounded() -> None:
    """Above 200 rows only the first ones were sorted, and the text of 10,000 was 3.5 MB."""
    (row, *_) = LOG_TRANSACTIONS.rows(load("late-message").log_dir().log_transactions())
    many = show([{**row, "first_offset": offset} for offset in range(10_000)], LOG_TRANSACTIONS)
    text = many._repr_html_()
    table_page = Page(text)
    (packed,) = (attrs["data-rest"] for _, attrs in table_page.tags if "data-rest" in attrs)
    rest = Page(gzip.decompress(base64.b64decode(packed or "")).decode())
    assert len(table_page.bodies) + len(rest.bodies) == 10_000
    assert "9999" in rest.bodies[-1]
    assert "The first 50 of 10,000 rows." in text
    assert len(text) < 600_000
    assert repr(many).splitlines()[-1] == "... and 9,940 more rows"
    assert len(repr(many)) < 70_000  # a long path has two lines
    assert "No findings" in show([])._repr_html_()


def test_a_frame_without_a_column_keeps_its_view(rows: list[Row]) -> None:
    frame = FINDINGS.frame(rows)
    assert show(frame.drop(columns=["evidence", "remedy"]))._is_answer
    assert not show(frame.drop(columns=["reason"]))._is_answer


@pytest.mark.parametrize("columns", [["topic", "verdict"], ["topic"], ["broker_id", "error"], ["opened_at", "outcome"]])
def test_a_few_columns_are_shown_by_any_table_that_has_them(columns: list[str], rows: list[Row]) -> None:
    """Columns that this table never has null were filled with nulls: pyarrow's error."""
    frame = FINDINGS.frame(rows)
    bodies = page(frame[[name for name in columns if name in frame]]).bodies
    assert len(bodies) == len(rows)


def test_what_holds_ages_as_what_is_open_behind_it() -> None:
    """The panel's next one was a younger transaction: a hold stood still between two observations."""
    then = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    observed = {"brokers_time": then, "observed_at": then}
    (holder,) = records_of([finding(held_ms=60_000, held_to=None, **observed)], Finding)
    opened_at = then - dt.timedelta(seconds=50)
    (behind,) = records_of(
        [finding(partition=1, held_ms=None, held_from=None, opened_at=opened_at, **observed)], Finding
    )
    later = then + dt.timedelta(seconds=30)
    assert [age(each, later) for each in (holder, behind)] == [dt.timedelta(seconds=90), dt.timedelta(seconds=80)]
    assert by_urgency([behind, holder], later) == [holder, behind]
    assert age(replace(holder, held_to=then), later) == dt.timedelta(seconds=60)


def test_plot_and_table_have_the_same_order_and_ages() -> None:
    """Observed half a minute apart: the table counted each age up to its own row's time."""
    held = NOW - dt.timedelta(hours=1)
    rows = [
        finding(topic="a", held_from=held, brokers_time=NOW - dt.timedelta(seconds=30)),
        finding(topic="b", held_from=held - dt.timedelta(seconds=5), brokers_time=NOW),
        finding(topic="c", verdict=Verdict.UNKNOWN, held_from=held, brokers_time=NOW),
        finding(topic="d", verdict=Verdict.OVERDUE, held_from=held, brokers_time=NOW),
    ]
    drawn = traces(plot_overview(rows))["held for"]
    bodies = page(rows).bodies
    assert [body[1].split("held")[0] for body in bodies] == list(drawn["y"]) == ["b-0", "a-0", "c-0", "d-0"]
    for body, text in zip(bodies, drawn["text"], strict=True):
        assert body[2].split("since")[0] == text.split("· ")[1]


def test_a_time_in_microseconds_is_shown() -> None:
    """As a frame of pandas or Spark has it; it was a traceback of Arrow."""
    opened = pd.DataFrame({"topic": ["orders"], "opened_at": pd.to_datetime(["2026-11-21T12:00:00.123456Z"])})
    assert "2026-11-21 12:00:00" in repr(show(opened))
    assert "2026-11-21 12:00:00" in repr(show(opened.convert_dtypes(dtype_backend="pyarrow")))


def test_other_data_frames_are_rejected(rows: list[Row]) -> None:
    import pandas as pd

    with pytest.raises(UsageError, match="not columns of one"):
        show(pd.DataFrame({"price": [1]}))
    with pytest.raises(UsageError, match="findings has no column price"):
        show(rows, columns=["price"])


def test_the_ipython_extension_shows_data_frames_this_way(rows: list[Row]) -> None:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell

    import toolkit

    shell: Any = InteractiveShell()  # type: ignore[no-untyped-call]
    html = shell.display_formatter.formatters["text/html"]
    findings, other = FINDINGS.frame(rows), pd.DataFrame({"price": [1]})
    toolkit.load_ipython_extension(shell)
    assert 'class="kafka-txn answers"' in html(findings)
    assert "dataframe" in html(other)
    assert 'class="kafka-txn answers"' in html(findings.drop(columns="evidence"))
    assert "dataframe" in html(findings[["topic", "verdict"]]), "what somebody chose is shown as chosen"
    plan = abort_plan(RowCluster())
    assert "An abort marker would end" in html(plan), "it was the text of a dataclass, and show() asked for findings"
    with pytest.raises(UsageError, match="show_plan"):
        show(plan)  # type: ignore[arg-type]
    toolkit.unload_ipython_extension(shell)
    assert "dataframe" in html(findings)
    assert html(plan) is None
