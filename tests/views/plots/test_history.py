"""The history of an id, as data."""

import datetime as dt

from tests.views.plots.busy import NOW, history
from tests.views.plots.drawn import hovers, traces, words
from toolkit.schema import TRANSACTION_HISTORY
from toolkit.views.plots import plot_history

HOUR = dt.timedelta(hours=1)


def test_the_title_names_an_open_transaction_past_its_timeout() -> None:
    stuck = history(start_time=NOW - 3 * HOUR, decided_at=None, end_time=None, ended="open", state="Ongoing",
                    ongoing_ms=3 * 3_600_000, first_offset=200, reason="It is Ongoing.")  # fmt: skip
    figure = plot_history(TRANSACTION_HISTORY.frame([history(), stuck]))
    assert "payments-7: Ongoing for 3 h, past its own timeout" in words(figure)
    assert "its timeout of 15 min was over" in words(figure)
    assert "2 transactions: 1 committed, 1 open" in words(figure)
    assert figure.to_dict()["layout"]["shapes"][0]["x0"] == "2026-11-21 10:13:30.000"


def test_each_state_has_a_row_and_a_hatch_and_every_id_in_its_hover() -> None:
    figure = plot_history([history(topic_partitions=[{"topic": "orders", "partition": 0}])])
    drawn = traces(figure)
    states = ["Ongoing", "PrepareCommit", "CompleteCommit"]
    assert [list(drawn[state]["y"]) for state in states] == [[state] for state in states]
    assert len({drawn[state]["marker"]["pattern"]["shape"] for state in states}) == 3
    for text in hovers(figure):
        assert "transactional id <b>payments-7<" in text
        assert "producer <b>4711<" in text
        assert "epoch <b>3<" in text
        assert "partitions <b>orders-0<" in text


def test_the_requested_id_is_drawn() -> None:
    rows = [history(), history(transactional_id="refunds-1", producer_id=12)]
    assert "refunds-1: CompleteCommit since" in words(plot_history(rows, transactional_id="refunds-1"))
    assert "no history to draw" in words(plot_history(rows, transactional_id="carts"))


def test_thousands_of_transactions_stay_small() -> None:
    start, step = NOW - 9 * HOUR, dt.timedelta(seconds=1)
    rows = [
        history(start_time=start + n * step, decided_at=start + (n + 0.4) * step, end_time=start + (n + 0.6) * step,
                first_offset=3 * n)
        for n in range(20_000)
    ]  # fmt: skip
    figure = plot_history(rows)
    assert len(figure.to_json()) < 1_000_000
    assert "20,000 transactions: 20,000 committed" in words(figure)
    counted = [text.split("transactions <b>")[1] for text in hovers(figure) if "transactions <b>" in text]
    assert sum(int(text.split("<")[0].replace(",", "")) for text in counted) == 20_000


def test_an_empty_figure_states_the_reason() -> None:
    assert "pass transaction_history or transaction_log" in words(plot_history([]))
