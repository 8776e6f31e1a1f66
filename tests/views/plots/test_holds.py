"""Who held an LSO over a day, as data."""

import datetime as dt
from dataclasses import replace

from tests.views.plots.busy import NOW
from tests.views.plots.drawn import traces, words
from toolkit.schema.recorded import LsoHold
from toolkit.views.plots import plot_holds

HOUR = dt.timedelta(hours=1)


def hold(name: str | None, begun: int, ended: int | None) -> LsoHold:
    """A hold that began and ended some hours ago."""
    held_to = None if ended is None else NOW - ended * HOUR
    return LsoHold(topic="orders", partition=0, producer_id=7, transactional_id=name, first_offset=12,
                   held_from=NOW - begun * HOUR, held_to=held_to)  # fmt: skip


def test_a_day_of_holds_and_one_that_goes_on() -> None:
    """A hold that went on for hours in a table of its own was "under 1 s", and a day was a comparison of texts.

    A date was an AttributeError, and its text had "no zone".
    """
    goes_on = replace(hold("a", 9, None), as_of=NOW - 4 * HOUR)
    assert "a held an LSO longest: at least 5 h in 1 hold, and held it still at 2026-11-21 08:58:30 UTC" in words(
        plot_holds([goes_on])
    )
    of_day = plot_holds([hold("a", 9, 8), hold("b", 7, 4), hold("c", 3, 2)], since=(NOW - 5 * HOUR).isoformat())
    assert "b held an LSO longest: 1 h in 1 hold" in words(of_day), "or c, which held for as long"
    assert "2 holds of 1 partition by 2 ids" in words(of_day)
    for day in (NOW.date(), str(NOW.date())):
        assert "d held an LSO longest: at least 12 h 58 min in 1 hold" in words(
            plot_holds([replace(hold("d", 30, None), as_of=NOW)], since=day)
        )
    assert "No row has a hold since 2026-11-21 12:58:30 UTC" in words(plot_holds([hold("a", 9, 8)], since=NOW))
    assert "No row has a hold since 20" in words(plot_holds([hold("a", 9, 8)], since="today"))


def test_holds_at_one_time_count_once_and_one_of_unknown_time_is_named() -> None:
    """An id that held ten partitions for the same hour had "held an LSO longest: 10 h", before one of three hours."""
    many = [replace(hold("a", 2, 1), partition=number) for number in range(10)]
    unread = LsoHold(topic="orders", partition=1, error="CORRUPT_BATCH: bytes 0 to 61")
    text = words(plot_holds([*many, hold("b", 5, 2), replace(hold("c", 1, None), held_from=None), unread]))
    assert "b held an LSO longest: 3 h in 1 hold" in text
    assert "1 of unknown time not drawn; 1 log could not be read" in text
    assert "When an LSO was held is not known" in words(plot_holds([unread])), 'it was "No hold of an LSO"'


def test_a_hold_of_milliseconds_does_not_fill_the_picture() -> None:
    """That of the lab's log, which ends 15 ms after it began, was drawn as wide as one of a day."""
    brief = replace(hold("a", 1, None), as_of=NOW - HOUR + dt.timedelta(milliseconds=15))
    figure = plot_holds([brief])
    first, last = map(dt.datetime.fromisoformat, figure.layout.xaxis.range)
    assert last - first >= dt.timedelta(minutes=1)
    assert traces(figure)["holds it still"]["x"][0] <= 60_000 / 100
    assert plot_holds([hold("a", 9, 8)]).layout.xaxis.range is None
