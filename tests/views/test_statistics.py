"""Figures of transactions, as a person reads them."""

import datetime as dt

from toolkit.schema import STATISTICS, Row
from toolkit.views.table_text import statistic_lines

FIGURES = {"count": 3, "sum": 1203, "min": 1, "mean": 401.0, "p50": 2, "p95": 1200, "p99": 1200, "max": 1200}


def figure(**fields: object) -> Row:
    row = {"topic": "orders", "partition": 0, "broker_id": 1, "outcome": "commit", "transactions": 3}
    return dict.fromkeys(STATISTICS.names) | row | fields


def opened(start: int) -> Row:
    who = {"topic": "orders", "partition": 0, "broker_id": 1, "producer_id": 7, "producer_epoch": 2}
    return who | {"first_offset": start, "start": dt.datetime(2026, 11, 21, tzinfo=dt.UTC), "start_clock": "producer"}


def test_each_outcome_has_its_figures_and_others_are_left_out() -> None:
    rows = [
        figure(measure="records", **FIGURES),
        figure(measure="duration_ms", **FIGURES),
        figure(outcome="abort", transactions=0),
        figure(outcome="empty", transactions=0),
        figure(outcome="open", transactions=1),
    ]
    lines = statistic_lines(rows, opened=[opened(9000)])
    assert lines[0] == "orders-0 (broker 1)"
    assert lines[1].split() == ["min", "mean", "p50", "p95", "p99", "max"]
    assert [line.split() for line in lines[2:-1]] == [
        ["committed", "3"],
        ["records", "1", "401.0", "2", "1,200", "1,200", "1,200"],
        ["ms", "1", "401.0", "2", "1,200", "1,200", "1,200"],
        ["aborted", "0"],
        ["open", "1"],
    ]
    since = "since 2026-11-21 00:00:00 UTC by the producer's clock"
    assert lines[-1] == f"    producer 7 epoch 2 from offset 9,000, {since}"
    assert len({len(line) for line in lines[1:5]} - {len(lines[2])}) == 1, "figures stand under their headings"


def test_partitions_are_blocks_and_the_total_is_last() -> None:
    rows = [figure(), figure(partition=1), figure(topic=None, partition=None, broker_id=None, transactions=6)]
    assert statistic_lines(rows) == [
        "orders-0 (broker 1)", "  committed                  3", "",
        "orders-1 (broker 1)", "  committed                  3", "",
        "all", "  committed                  6",
    ]  # fmt: skip


def test_control_characters_of_a_topic_are_escaped() -> None:
    assert statistic_lines([figure(topic="a\x1b[2J")])[0] == "a\\x1b[2J-0 (broker 1)"
