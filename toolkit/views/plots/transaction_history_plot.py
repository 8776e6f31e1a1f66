"""The history of one transactional id: its states over time, by its coordinator."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from toolkit.analysis.coordinator.transaction_owners import OPEN_STATES
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_text import lines, plain, when
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, theme_named
from toolkit.views.plots.state_lanes import (
    MANY,
    MILLISECOND,
    STATE_APPEARANCE,
    StateInterval,
    intervals,
    merged,
    state_bars,
)
from toolkit.views.row_formats import count

ORDER = [
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "CompleteCommit", "CompleteAbort", "Dead",
]  # fmt: skip
NARROWEST = 600  # a state is drawn by itself if it takes this part of the time
WORDED = 0.16  # and has its duration on it if it takes this part
ENDED = {"commit": "committed", "abort": "aborted", "timeout": "timed out", "fence": "fenced"}
NO_TIMEOUT = 2_147_483_647  # two-phase commit


def plot_history(
    transaction_history: Data,
    *,
    transaction_log: Data = None,
    transactional_id: str | None = None,
    now: dt.datetime | None = None,
    theme: ThemeName = "light",
) -> go.Figure:
    """Draw one transactional id: a row for each state, a bar for each time that it was in it, steps in between.

    Parameters
    ----------
    transaction_history
        ``schema.TRANSACTION_HISTORY``.
    transaction_log
        ``schema.TRANSACTION_LOG``: every state change, where they are there.
    transactional_id
        Which id; the first one that is found if null.
    now
        How far the last state goes; the last time in the rows if null.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        States that follow each other too fast to be drawn are put together, and counted in their hover.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    past, records = records_of(transaction_history, PastTransaction), records_of(transaction_log, TransactionLogRecord)
    known = [*(each.transactional_id for each in past), *(record.transactional_id for record in records)]
    ids = [name for name in known if name is not None]
    name = transactional_id if transactional_id is not None else next(iter(ids), None)
    mine = [each for each in past if each.transactional_id == name]
    steps = [record for record in records if record.transactional_id == name]
    until = now or max(_times(mine, steps), default=dt.datetime.now(dt.UTC))
    states = intervals(events=steps, transaction_history=mine, now=until)
    if name is None or not states:
        return _nothing(colours, name, ids)
    shortest = (until - states[0].start) / NARROWEST
    visible = merged(states, shortest)
    figure = NotebookFigure()
    _add_steps(figure, visible, colours)
    _add_states(figure, visible, shortest, colours)
    _add_words(figure, visible, colours, begin=states[0].start, now=until)
    here = [state for state in ORDER if any(interval.state == state for interval in visible)]
    here += [MANY] if any(interval.state == MANY for interval in visible) else []
    title, subtitle = _title(name, states[-1]), _subtitle(mine, states)
    apply_theme(figure, colours, title=title, subtitle=subtitle, height=230 + 44 * len(here))
    figure.update_xaxes(
        type="date", tickangle=0, nticks=7, title={"text": "time (UTC), by the coordinator's clock", "standoff": 6}
    )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=here[::-1], range=[-0.7, len(here) - 0.3])
    return figure


def _times(past: Iterable[PastTransaction], records: Iterable[TransactionLogRecord]) -> list[dt.datetime]:
    """All known times; of an open transaction that up to which it was seen open."""
    times = [time for record in records for time in (record.timestamp, record.last_update_time)]
    for each in past:
        times += [each.start_time, each.decided_at, each.end_time]
        if each.ended == "open" and each.start_time is not None and each.ongoing_ms is not None:
            times.append(each.start_time + each.ongoing_ms * MILLISECOND)
    return [time for time in times if time is not None]


def _nothing(theme: Theme, name: str | None, ids: Sequence[str]) -> go.Figure:
    if name is None:
        missing = "No record of __transaction_state: pass transaction_history or transaction_log."
        return empty_figure(theme, title="No history to draw", missing=missing)
    others = count(len(set(ids)), "other id") if ids else "no other id"
    title = f"{plain(name, longest=50)}: no history to draw"
    return empty_figure(theme, title=title, missing=f"No record of this id; {others} is there.")


def _add_steps(figure: go.Figure, visible: Sequence[StateInterval], theme: Theme) -> None:
    """The way from state to state."""
    xs = [when(time) for interval in visible for time in (interval.start, interval.end)]
    ys = [interval.state for interval in visible for _ in range(2)]
    figure.add_trace(
        go.Scatter(x=xs, y=ys, mode="lines", line={"color": theme.muted, "width": 1}, hoverinfo="skip",
                   showlegend=False, name="steps")
    )  # fmt: skip


def _add_states(figure: go.Figure, visible: Sequence[StateInterval], shortest: dt.timedelta, theme: Theme) -> None:
    for state, style in STATE_APPEARANCE.items():
        of_state = [interval for interval in visible if interval.state == state]
        if of_state:
            bars = state_bars(of_state, state, style, theme, y=[state] * len(of_state), shortest=shortest)
            figure.add_trace(bars.update(showlegend=False))


def _add_words(
    figure: go.Figure, visible: Sequence[StateInterval], theme: Theme, *, begin: dt.datetime, now: dt.datetime
) -> None:
    """How long the longest ones lasted; and the timeout that an open transaction has overrun."""
    wide = [interval for interval in visible if interval.length > (now - begin) * WORDED]
    for interval in wide:
        figure.add_annotation(
            x=when(interval.start), y=interval.state, xanchor="left", xshift=6, showarrow=False,
            text=duration(interval.length), font={"size": 12, "color": theme.text}, bgcolor=theme.background,
            borderpad=1,
        )  # fmt: skip
    last = visible[-1]
    timeout = last.record.timeout_ms
    if last.state != "Ongoing" or not timeout or timeout == NO_TIMEOUT:
        return
    expires = last.start + timeout * MILLISECOND
    if expires <= now:
        figure.add_shape(type="line", x0=when(expires), x1=when(expires), y0=0, y1=1, yref="paper",
                         line={"color": theme.alarm, "dash": "dash", "width": 2})  # fmt: skip
        figure.add_annotation(x=when(expires), y=1, yref="paper", xanchor="left", yanchor="top", showarrow=False,
                              text=f" its timeout of {duration(timeout * MILLISECOND)} was over",
                              font={"size": 12, "color": theme.alarm}, bgcolor=theme.background)  # fmt: skip


def _title(name: str, last: StateInterval) -> str:
    visible = plain(name, longest=40)
    if last.state in OPEN_STATES:
        timeout = last.record.timeout_ms
        over = timeout and timeout != NO_TIMEOUT and last.length > timeout * MILLISECOND and last.state == "Ongoing"
        tail = ", past its own timeout" if over else ""
        return f"{visible}: {last.state} for {duration(last.length)}{tail}"
    if last.state == "Dead":
        return f"{visible}: forgotten by its coordinator since {at(last.start)}"
    return f"{visible}: {last.state} since {at(last.start)}, nothing is open"


def _subtitle(past: Iterable[PastTransaction], states: Iterable[StateInterval]) -> str:
    transactions = [each for each in past if each.kind == "transaction"]
    if not transactions:
        begun = sum(interval.transactions for interval in states)
        return count(begun, "transaction was read", "transactions were read")
    ended = Counter(each.ended for each in transactions if each.ended is not None)
    named = ", ".join(f"{number:,} {ENDED.get(how, how)}" for how, number in ended.most_common())
    text = f"{count(len(transactions), 'transaction')}: {named}"
    odd = [each for each in transactions if each.ended not in {"commit", None}]
    return f"<b>{plain(text)}</b><br>{lines(odd[-1].reason)}" if odd else f"<b>{plain(text)}</b>"
