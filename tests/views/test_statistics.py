"""Figures of transactions, as a person reads them."""

import datetime as dt

from toolkit.schema import STATISTICS, Row
from toolkit.views.show_table import statistic_lines


def statistics_row(**fields: object) -> Row:
    row = {"topic": "orders", "partition": 0, "broker_id": 1, "committed": 3}
    counts = ("aborted", "empty", "open", "undecided", "batches_count", "batches_sum", "duration_ms_count")
    return dict.fromkeys(STATISTICS.names) | dict.fromkeys((*counts, "duration_ms_sum"), 0) | row | fields


def opened(start: int) -> Row:
    who = {"topic": "orders", "partition": 0, "broker_id": 1, "producer_id": 7, "producer_epoch": 2}
    return who | {"first_offset": start, "start": dt.datetime(2026, 11, 21, tzinfo=dt.UTC), "start_clock": "producer"}


def test_outcomes_are_counted_and_sizes_stand_under_their_headings() -> None:
    row = statistics_row(
        open=1, batches_count=3, batches_sum=1203, batches_min=1, batches_mean=401.0, batches_max=1200,
        duration_ms_count=2, duration_ms_sum=-1, duration_ms_min=-6, duration_ms_mean=-0.5, duration_ms_max=5,
    )  # fmt: skip
    assert statistic_lines([row], opened=[opened(9000)]) == [
        "orders-0 (broker 1)",
        "  committed                  3",
        "  aborted                    0",
        "  open                       1",
        "    producer 7 epoch 2 from offset 9,000",
        "    since 2026-11-21 00:00:00 UTC by the producer's clock",
        "                       batches            ms",
        "  count                      3             2",
        "  sum                    1,203            -1",
        "  min                        1            -6",
        "  mean                   401.0          -0.5",
        "  max                    1,200             5",
    ]


def test_partitions_are_blocks_and_the_total_is_last() -> None:
    rows = [statistics_row(), statistics_row(partition=1, empty=2)]
    lines = statistic_lines([*rows, statistics_row(topic=None, partition=None, broker_id=None, committed=6)])
    ended = ["  aborted                    0", "  open                       0"]
    assert lines == [
        "orders-0 (broker 1)", "  committed                  3", *ended, "",
        "orders-1 (broker 1)", "  committed                  3",
        ended[0], "  empty                      2", ended[1], "",
        "all", "  committed                  6", *ended,
    ]  # fmt: skip


def test_control_characters_of_a_topic_are_escaped() -> None:
    assert statistic_lines([statistics_row(topic="a\x1b[2J")])[0] == "a\\x1b[2J-0 (broker 1)"
