"""The overview, as data: the worst first, and what hangs always there."""

from tests.views.plots.busy import finding
from tests.views.plots.drawn import traces, words
from toolkit.schema.verdict import Verdict
from toolkit.views.plots import plot_overview


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
