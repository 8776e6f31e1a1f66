"""Tables and rows through each writer, whole: each text, sort key, class and unit, of rows for the rare branches."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.distinct import distinct_rows
from tests.stored import compare
from tests.views.plots.busy import NOW, finding
from tests.views.plots.test_stored_drawings import LONG_NAME, NO_HOLD, PLACE, lags, overview_rows, transaction
from toolkit.schema import EXPOSURE, LOG_TRANSACTIONS, PRODUCERS, Row, Table
from toolkit.schema.live import Exposure, OffsetVisibility
from toolkit.schema.log import TransactionStatistics
from toolkit.views import show, show_table
from toolkit.views.document import Count
from toolkit.views.renderers import text_lines
from toolkit.views.row_formats import (
    cell_text,
    count,
    csv_pieces,
    grid_lines,
    json_pieces,
    plain,
    shortened,
    size_text,
    spellings,
    table_grid,
    wrap,
)
from toolkit.views.show_table import TableView, exposure_parts, lag_parts, statistic_sections, visibility_section

HOUR = dt.timedelta(hours=1)


def shown(view: TableView) -> Iterator[str]:
    """The text, and the HTML between style and script, an element a line."""
    yield from repr(view).split("\n")
    yield from view._repr_html_().partition("</style>")[2].partition("<script>")[0].replace("<", "\n<").split("\n")


def test_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, offsets or neither wait; a partition that was not read, hidden topics, names of 40 and 41 letters."""
    monkeypatch.setattr(show_table, "MAX_ROWS", 14)
    nothing = dict.fromkeys(("producer_id", "producer_epoch", "start_offset", "last_stable_offset", "queue_position"))
    rows = [
        *overview_rows(),
        finding(topic=None, partition=None, verdict="unknown", missing=["DESCRIBE on topics"], **nothing, **NO_HOLD),
        finding(topic="unread", verdict="unknown", error="TIMEOUT: no <answer>", groups_held=None, **nothing),
        finding(topic="of 40", transactional_id="i" * 40, producer_epoch=None, offsets_held=1, records_held=None),
        finding(topic="of 41", transactional_id="i" * 41, records_held=1, opened_at=NOW - 2 * HOUR, held_from=None),
        finding(topic="left out", verdict="clear"),
    ]
    compare("tables/findings.txt", shown(show(rows)))


@pytest.mark.parametrize("table", [LOG_TRANSACTIONS, EXPOSURE], ids=lambda table: table.name)
def test_another_table(table: Table) -> None:
    """Each type of a column, a null in each of them, a long cell and a row with an error."""
    rows = distinct_rows(table)
    nulls: Row = {column.name: None if column.nullable else rows[0][column.name] for column in table.columns}
    lines = list(shown(show([*rows, nulls, rows[1] | {"error": "E" * 41}], table)))
    compare(f"tables/{table.name}.txt", lines)


def statistics() -> list[TransactionStatistics]:
    """Of a busy log, two idle ones, one that was not read, and all of them."""
    names = ("committed", "aborted", "empty", "open", "undecided", "batches_count", "batches_sum", "duration_ms_count")
    none: dict[str, Any] = dict.fromkeys((*names, "duration_ms_sum"), 0)
    busy: dict[str, Any] = {name: 1001 * number for number, name in enumerate(none, start=1)} | {
        f"{name}_{kind}": number + 2.25 if kind == "mean" else number
        for name, kinds in (("batches", (3, 44, 555)), ("duration_ms", (-6, 77, 8888)))
        for kind, number in zip(("min", "mean", "max"), kinds, strict=True)
    }
    return [
        TransactionStatistics(**PLACE, **busy, broker_id=2),
        *(TransactionStatistics(topic="idle", partition=number, **none) for number in range(2)),
        TransactionStatistics(topic="unread", partition=0, **none, error="OFFSETS_LOST: none"),
        TransactionStatistics(**none | {"undecided": 7}),
    ]


def exposures() -> Iterator[Exposure]:
    """Of the same on two brokers, of many ids, of a partition of the state log, not exposed, not known."""
    known = Exposure(subject="known_bug", name="KAFKA-1", value="4.0", exposed=False, means="Fixed.", observed_at=NOW)
    for broker in (10, 9, 8):
        yield replace(known, broker_id=broker)
    yield replace(
        known, name="KAFKA-2", exposed=None, value=None, means="Ask.", error="TIMEOUT: no answer", broker_id=3
    )
    yield replace(known, name="KAFKA-3", exposed=None, means="It depends.")
    for number in range(27):
        word = f"{'abcdefghijklmnopqrstuvwxyz'[number % 26]}{'pp' * (1 + number // 26)}"
        for task in range(1 + 5 * (number == 3)):
            yield replace(known, subject="transactional_id", name="timeout", exposed=True, value="900000",
                          transactional_id=f"{word}-sink-{number}-{task}",
                          means=f"It can hang; see __transaction_state-{number}.")  # fmt: skip


def test_sections() -> None:
    """Statistics, exposure, lags and what is known of an offset."""
    visible = OffsetVisibility(**PLACE, offset=12, status="not_stable", read_committed=False, read_uncommitted=True,
                               reason="It waits.", timestamp=NOW, producer_id=7, outcome="open",
                               last_offset=1_234_567)  # fmt: skip
    opened = [transaction(3, broker_id=2), transaction(4, broker_id=2, start=None), transaction(5)]
    reasons = [replace(lag, reason=f"Reason {number}.") for number, lag in enumerate(lags())]
    parts = [
        *statistic_sections(statistics(), opened=opened), *statistic_sections(statistics()[:2]),
        *exposure_parts([each.row() for each in exposures()]),
        visibility_section(visible.row()),
        visibility_section(replace(visible, status=None, read_committed=None, reason="").row()),
        *lag_parts([each.row() for each in reasons]), *lag_parts([reasons[0].row()]), *lag_parts([]),
    ]  # fmt: skip
    compare("tables/sections.txt", text_lines(parts))


def test_rows_as_text() -> None:
    """Every type of a value, and a table at several widths."""
    values = [None, [], True, False, NOW, 3 * HOUR, Count(12345), 12345, 1234.5, ["a", None], "a\x1b\n\u202eé",
              {"topic": "a\n", "partition": 3}, [{"topic": "a", "partition": 3}], {"topic": "a"}]  # fmt: skip
    lines = [f"{cell_text(value)} | {cell_text(value, is_precise=True)}" for value in values]
    lines += [size_text(size) for size in (0, 999, 1_000, 999_949, 1_000_000, 1_234_567, 2_000_000_000)]
    lines += [count(1, "record"), count(2115, "record"), count(2, "more hangs", "more hang"), count(0, "id")]
    lines += [shortened("abcdefgh", length) for length in (8, 7, 6)]
    lines += [plain('<a> & "b" $x$\x1b'), plain(LONG_NAME, longest=20), *map(repr, sorted(spellings("é\"\n'\\")))]
    rows = [row | {"last_timestamp": NOW + HOUR / 3000} for row in distinct_rows(PRODUCERS)[:2]]
    rows.append(dict.fromkeys(PRODUCERS.names) | {"topic": LONG_NAME, "producer_id": 1, "error": "E" * 70})
    for width in (None, 170, 60, 20):
        lines += [f"-- {width} columns", *grid_lines(table_grid(PRODUCERS, rows, without=("partition",)), width=width)]
    lines += ["-- cells of 20", *grid_lines(table_grid(PRODUCERS, rows[1:], columns=["topic", "error"]), widest=20)]
    lines += ["-- JSON", *"".join(json_pieces(PRODUCERS, rows)).split("\n")]
    every_type = distinct_rows(LOG_TRANSACTIONS)[0] | {"file": ["a", NOW], "truncated": None}
    lines += ["-- CSV", *"".join(csv_pieces(LOG_TRANSACTIONS, [every_type])).split("\n")]
    lines += wrap("a text", before=f"  {'a label of a width':<50}", width=40)
    compare("tables/rows.txt", lines)
