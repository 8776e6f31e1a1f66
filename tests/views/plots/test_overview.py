"""The overview, as data: the worst first, and what hangs always there."""

from typing import Any

from tests.views.plots.busy import NOW, finding
from tests.views.plots.drawn import hovers, traces, words
from toolkit.schema import PARTITIONS
from toolkit.schema.verdict import Verdict
from toolkit.views.plots import number_tiles, plot_overview

NOTHING: dict[str, Any] = dict.fromkeys(PARTITIONS.names)
PARTITION = NOTHING | {"topic": "orders", "partition": 0, "observed_at": NOW, "brokers_time": NOW}


def test_each_verdict_has_its_symbol_and_its_name_and_a_hover_with_every_id() -> None:
    rows = [finding(topic=verdict, verdict=verdict, producer_id=100 + n) for n, verdict in enumerate(Verdict)]
    figure = plot_overview(rows)
    drawn = traces(figure)["held for"]
    assert len(set(drawn["marker"]["symbol"])) == len(drawn["y"]) == len(Verdict) - 2
    for text, name in zip(drawn["text"], drawn["y"], strict=True):
        assert f"<b>{name.removesuffix('-0')}</b> · 3 h" in text
    text = "\n".join(hovers(figure))
    assert all(f"producer <b>{row['producer_id']}<" in text for row in rows if row["verdict"] not in {"ended", "clear"})


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


def test_long_names_that_are_equal_once_shortened_have_separate_lines() -> None:
    rows = [finding(topic=f"payments.settlement.eu-west-1.{name}.retries.of.everything") for name in ("one", "two")]
    figure = plot_overview(rows)
    assert len(set(traces(figure)["held for"]["y"])) == 2
    assert len(set(figure.layout.yaxis.ticktext)) == 1


def test_no_title_clears_what_was_not_read() -> None:
    """Of one unknown partition it was "Nothing hangs: 1 unknown"; of partitions that failed, "Nothing is held".

    And of rows that the caller had selected it was "Nothing hangs", too.
    """
    unknown = finding(verdict=Verdict.UNKNOWN, missing=["broker 2"])
    assert "None of these is known to hang: 1 unknown" in words(plot_overview([unknown]))
    assert "None of these hangs: 1 ongoing" in words(plot_overview([finding(verdict=Verdict.ONGOING)]))
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
