"""Tables as a notebook shows them."""

import datetime as dt
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from toolkit.analysis.diagnosis.verdicts import VERDICTS
from toolkit.errors import UsageError
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, Row
from toolkit.schema.docs_links import DOCS_URL
from toolkit.views import show

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


def test_findings_are_sorted_worst_first_and_explained(rows: list[Row]) -> None:
    table_page = page(FINDINGS.frame(rows), now=NOW)
    assert [body[0] for body in table_page.bodies] == ["hanging"] * 3 + ["overdue"] + ["ongoing"] * 2
    assert {attrs["class"] for tag, attrs in table_page.tags if tag == "b"} == {"hanging", "overdue", "ongoing"}
    text = show(rows)._repr_html_()
    for verdict in ("hanging", "overdue", "ongoing"):
        assert VERDICTS[verdict] in text
    assert VERDICTS["long"] not in text
    orphan = next(body for body in table_page.bodies if body[1].startswith("orphan-0"))
    assert "held at13" in orphan[1]
    assert "kafka-txn abort --topic orders --partition 0 --start-offset 13" in orphan[-1]


def test_headings_sort_by_value(rows: list[Row]) -> None:
    """A key for each cell: 1,226 records sort after 21, and null last; the browser test clicks on them."""
    table_page = page(rows, now=NOW)
    headings = [attrs for tag, attrs in table_page.tags if tag == "th"]
    assert [("data-number" in heading) for heading in headings] == [False, False, True, True, True]
    keys = [attrs.get("data-key") for tag, attrs in table_page.tags if tag == "td" and attrs.get("class") != "below"]
    held = [int(key) for key in keys[2::5] if key]
    assert len(held) == len(rows)
    assert all(key > 0 for key in held)


def test_columns_of_other_tables_have_descriptions() -> None:
    log_transactions = load("late-message").log_dir().log_transactions()
    table_page = page(log_transactions, columns=["producer_id", "first_offset", "outcome", "start"])
    headings = [attrs["title"] for tag, attrs in table_page.tags if tag == "th"]
    docs = {column.name: column.doc for column in LOG_TRANSACTIONS.columns}
    assert headings[1] == docs["first_offset"]
    assert len(table_page.bodies) == len(log_transactions)
    everything = page(log_transactions)
    assert 4 < len([tag for tag, _ in everything.tags if tag == "th"]) < len(LOG_TRANSACTIONS.names), (
        "only what has values"
    )


def test_external_text_is_escaped() -> None:
    """A transactional id may be any text, also one that means to be a script."""
    (row,) = load("orphan").finding_rows()
    table_page = show([{**row, "transactional_id": "<script>alert(1)</script>\x1b[31m", "groups_held": ["<b>"]}])
    text = table_page._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in text
    assert not re.search(r"https?://", text.replace(DOCS_URL, "")), "nothing asks the network"


def test_error_rows_are_marked_with_their_error(rows: list[Row]) -> None:
    table_page = page([{**rows[0], "error": "NOT_LEADER: gone"}, rows[1]])
    assert sum(attrs.get("class") == "error" for tag, attrs in table_page.tags if tag == "tbody") == 1
    assert "error" in table_page.bodies[-1][-1] or "error" in table_page.bodies[0][-1]


def test_a_terminal_gets_text(rows: list[Row]) -> None:
    assert "hang" in repr(show(rows, now=NOW)).splitlines()[-1]
    selection = repr(show(rows, columns=["verdict", "start_offset"])).splitlines()
    assert selection[0].split() == ["start"]
    assert selection[2].split() == ["hanging", "13"]
    assert repr(show(LOG_TRANSACTIONS.frame(), LOG_TRANSACTIONS)) == "no log transactions"


def test_few_rows_are_one_page_and_many_are_counted() -> None:
    log_transactions = LOG_TRANSACTIONS.rows(load("late-message").log_dir().log_transactions())
    table_page = show(log_transactions * 100)
    assert "200 more rows are not shown" in table_page._repr_html_()
    assert "No findings" in show([])._repr_html_()


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
    assert "dataframe" in html(findings[["topic", "verdict"]]), "what somebody chose is shown as chosen"
    toolkit.unload_ipython_extension(shell)
    assert "dataframe" in html(findings)
