"""The overview, as data: the worst first, and what hangs always there."""

import datetime as dt
from typing import Any

from tests.views.plots.busy import NOW, finding
from tests.views.plots.drawn import hovers, traces, words
from toolkit.schema import FINDINGS, PARTITIONS
from toolkit.schema.verdict import Verdict
from toolkit.views.plots import number_tiles, plot_overview

NOTHING: dict[str, Any] = dict.fromkeys(PARTITIONS.names)
PARTITION = NOTHING | {"topic": "orders", "partition": 0, "observed_at": NOW, "brokers_time": NOW}


def test_the_title_is_the_result_and_the_worst_are_first() -> None:
    rows = [
        finding(topic="clicks", verdict=Verdict.ONGOING, held_from=NOW - dt.timedelta(days=9)),
        finding(topic="orders"),
        finding(topic="refunds", verdict=Verdict.UNKNOWN, missing=["broker 2"]),
        finding(topic="carts", verdict=Verdict.ENDED),
    ]
    figure = plot_overview(FINDINGS.frame(rows))
    assert "1 partition hangs, longest orders-0 for 3 h" in words(figure)
    assert "partitions by verdict: 1 hanging, 1 unknown, 1 ongoing" in words(figure)
    assert list(traces(figure)["held for"]["y"]) == ["orders-0", "refunds-0", "clicks-0"]


def test_each_verdict_has_its_symbol_and_its_name_and_a_hover_with_every_id() -> None:
    rows = [finding(topic=verdict, verdict=verdict, producer_id=100 + n) for n, verdict in enumerate(Verdict)]
    figure = plot_overview(rows)
    drawn = traces(figure)["held for"]
    assert len(set(drawn["marker"]["symbol"])) == len(drawn["y"]) == len(Verdict) - 2
    for text, name in zip(drawn["text"], drawn["y"], strict=True):
        assert f"<b>{name.removesuffix('-0')}</b> · 3 h" in text
    text = "\n".join(hovers(figure))
    assert all(f"producer <b>{row['producer_id']}<" in text for row in rows if row["verdict"] not in {"ended", "clear"})


def test_a_partition_has_its_worst_verdict() -> None:
    figure = plot_overview([finding(verdict=Verdict.ONGOING), finding(queue_position=2, held_from=None)])
    assert traces(figure)["held for"]["text"][0].strip() == "<b>hanging</b> · 3 h +1 more"


def test_five_hundred_hanging_partitions_stay_readable_and_those_not_drawn_are_counted() -> None:
    """All 500 were drawn: 17,788 pixels, 1.2 MB."""
    rows = [finding(topic=f"t{n}") for n in range(500)] + [
        finding(topic=f"u{n}", verdict=Verdict.LONG) for n in range(5)
    ]
    figure = plot_overview(rows)
    assert len(traces(figure)["held for"]["y"]) == 25
    assert "500 partitions hang" in words(figure)
    assert "not drawn: 475 hanging, 5 long; show(findings) lists them" in words(figure)
    assert figure.layout.height < 1_200
    assert len(figure.to_json()) < 120_000


def test_uncounted_records_are_named() -> None:
    rows = [finding(records_held=None, offsets_held=9), finding(topic="x", records_held=None, offsets_held=None)]
    waiting = [text.strip() for text in traces(plot_overview(rows))["waiting"]["text"]]
    assert waiting == ["9 offsets", "not known"]


def test_nothing_held_is_distinguished_from_nothing_read() -> None:
    assert "whether all is well is unknown" in words(plot_overview([]))
    assert "1 partition read: no LSO is held" in words(plot_overview([], partitions=[PARTITION]))
    failed = PARTITION | {"error": "TIMEOUT: no answer"}
    assert "1 partition of 1 could not be read" in words(plot_overview([], partitions=[failed]))


def test_long_names_that_are_equal_once_shortened_have_separate_lines() -> None:
    rows = [finding(topic=f"payments.settlement.eu-west-1.{name}.retries.of.everything") for name in ("one", "two")]
    figure = plot_overview(rows)
    assert len(set(traces(figure)["held for"]["y"])) == 2
    assert len(set(figure.layout.yaxis.ticktext)) == 1


def test_no_title_clears_what_was_not_read() -> None:
    """Of one unknown partition it was "Nothing hangs: 1 unknown"; of partitions that failed, "Nothing is held"."""
    unknown = finding(verdict=Verdict.UNKNOWN, missing=["broker 2"])
    assert "No partition is known to hang: 1 unknown" in words(plot_overview([unknown]))
    for state in ({"error": "TIMEOUT: no answer"}, {"last_stable_offset": 3, "high_watermark": 90}):
        text = words(plot_overview([], partitions=[PARTITION | state]))
        assert "What is held is not known" in text
        assert "no LSO is held" not in text


def test_a_held_partition_is_counted_though_a_worse_transaction_waits_behind_its_holder() -> None:
    """The tiles were "0 partitions held, 1 hanging; 0 records waiting; longest hold -"."""
    behind = finding(producer_id=5, start_offset=913_095_400, queue_position=2, held_from=None, records_held=None)
    tiles = number_tiles([finding(verdict=Verdict.ONGOING, records_held=50), behind])
    assert "<b>1</b>partition held, 1 hanging" in tiles
    assert "<b>50</b>records waiting<" in tiles
    assert "<b>0</b>records or offsets waiting, at least<" in number_tiles(
        [finding(records_held=None, offsets_held=None)]
    )
    assert "<b>3 h</b>longest hold" in tiles
