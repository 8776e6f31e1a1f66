"""The history of one transactional id: its states over time, by its coordinator."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTION_LOG, Row
from toolkit.schema.coerce import Data, rows_of
from toolkit.schema.durations import duration
from toolkit.views.plots.plot_text import count, lines, plain, when
from toolkit.views.plots.plot_theme import STATES, Appearance, Theme, ThemeName, apply_theme, empty_figure, theme_named
from toolkit.views.plots.state_lanes import MANY, StateInterval, intervals, merged, state_hover

ORDER = [
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "CompleteCommit", "CompleteAbort", "Dead",
]  # fmt: skip
NARROWEST = 600  # a state is drawn by itself if it takes this part of the time
WORDED = 0.16  # and has its duration on it if it takes this part
MILLISECOND = dt.timedelta(milliseconds=1)
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
    rows, events = rows_of(transaction_history, TRANSACTION_HISTORY), rows_of(transaction_log, TRANSACTION_LOG)
    ids = [row["transactional_id"] for row in (*rows, *events) if row["transactional_id"] is not None]
    name = transactional_id if transactional_id is not None else next(iter(ids), None)
    mine = [row for row in rows if row["transactional_id"] == name]
    steps = [row for row in events if row["transactional_id"] == name]
    until = now or max(_times(mine, steps), default=dt.datetime.now(dt.UTC))
    found = intervals(events=steps, transaction_history=mine, now=until)
    if name is None or not found:
        return _nothing(colours, name, ids)
    shortest = (until - found[0].start) / NARROWEST
    visible = merged(found, shortest)
    figure = go.Figure()
    _add_steps(figure, visible, colours)
    _add_states(figure, visible, shortest, colours)
    _add_words(figure, visible, colours, begin=found[0].start, now=until)
    here = [state for state in ORDER if any(each.state == state for each in visible)]
    here += [MANY] if any(each.state == MANY for each in visible) else []
    title, subtitle = _title(name, found[-1]), _subtitle(mine, found)
    apply_theme(figure, colours, title=title, subtitle=subtitle, height=230 + 44 * len(here))
    figure.update_xaxes(
        type="date", tickangle=0, nticks=7, title={"text": "time (UTC), by the coordinator's clock", "standoff": 6}
    )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=here[::-1], range=[-0.7, len(here) - 0.3])
    return figure


def _times(rows: Sequence[Row], events: Sequence[Row]) -> list[dt.datetime]:
    of_rows = [row[name] for row in rows for name in ("start_time", "decided_at", "end_time")]
    of_events = [row[name] for row in events for name in ("timestamp", "last_update_time")]
    open_for = [row["start_time"] + row["ongoing_ms"] * MILLISECOND for row in rows if _is_open(row)]
    return [time for time in (*of_rows, *of_events, *open_for) if time is not None]


def _is_open(row: Row) -> bool:
    return row["ended"] == "open" and row["start_time"] is not None and row["ongoing_ms"] is not None


def _nothing(theme: Theme, name: str | None, ids: Sequence[str]) -> go.Figure:
    if name is None:
        missing = "No record of __transaction_state: pass transaction_history or transaction_log."
        return empty_figure(theme, title="No history to draw", missing=missing)
    others = count(len(set(ids)), "other id") if ids else "no other id"
    title = f"{plain(name, longest=50)}: no history to draw"
    return empty_figure(theme, title=title, missing=f"No record of this id; {others} is there.")


def _add_steps(figure: go.Figure, visible: Sequence[StateInterval], theme: Theme) -> None:
    """The way from state to state."""
    xs = [when(time) for each in visible for time in (each.start, each.end)]
    ys = [each.state for each in visible for _ in range(2)]
    figure.add_trace(
        go.Scatter(x=xs, y=ys, mode="lines", line={"color": theme.muted, "width": 1}, hoverinfo="skip",
                   showlegend=False, name="steps")
    )  # fmt: skip


def _add_states(figure: go.Figure, visible: Sequence[StateInterval], shortest: dt.timedelta, theme: Theme) -> None:
    for state, look in {**STATES, MANY: Appearance(role="muted", hatch="/")}.items():
        of_state = [each for each in visible if each.state == state]
        if not of_state:
            continue
        colour = theme[look.role]
        figure.add_trace(
            go.Bar(
                orientation="h",
                base=[when(each.start) for each in of_state],
                x=[max(each.length, shortest) / MILLISECOND for each in of_state],
                y=[state] * len(of_state),
                width=0.56,
                marker={
                    "color": colour if state == "Ongoing" else theme.background,
                    "line": {"color": colour, "width": 1.5},
                    "pattern": {"shape": look.hatch, "fgcolor": colour, "bgcolor": theme.background, "size": 7,
                                "solidity": 0.25},
                },
                hovertext=[state_hover(each) for each in of_state],
                hoverinfo="text",
                name=state,
                showlegend=False,
            )
        )  # fmt: skip


def _add_words(
    figure: go.Figure, visible: Sequence[StateInterval], theme: Theme, *, begin: dt.datetime, now: dt.datetime
) -> None:
    """How long the longest ones lasted; and the timeout that an open transaction has overrun."""
    wide = [each for each in visible if each.length > (now - begin) * WORDED]
    for each in wide:
        figure.add_annotation(
            x=when(each.start), y=each.state, xanchor="left", xshift=6, showarrow=False, text=duration(each.length),
            font={"size": 12, "color": theme.text}, bgcolor=theme.background, borderpad=1,
        )  # fmt: skip
    last = visible[-1]
    timeout = last.row["timeout_ms"]
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
        timeout = last.row["timeout_ms"]
        over = timeout and timeout != NO_TIMEOUT and last.length > timeout * MILLISECOND and last.state == "Ongoing"
        tail = ", past its own timeout" if over else ""
        return f"{visible}: {last.state} for {duration(last.length)}{tail}"
    if last.state == "Dead":
        return f"{visible}: forgotten by its coordinator since {at(last.start)}"
    return f"{visible}: {last.state} since {at(last.start)}, nothing is open"


def _subtitle(rows: Sequence[Row], found: Sequence[StateInterval]) -> str:
    transactions = [row for row in rows if row["kind"] == "transaction"]
    if not transactions:
        return count(sum(each.transactions for each in found), "transaction was read", "transactions were read")
    ended = Counter(row["ended"] for row in transactions if row["ended"] is not None)
    named = ", ".join(f"{number:,} {ENDED.get(how, how)}" for how, number in ended.most_common())
    text = f"{count(len(transactions), 'transaction')}: {named}"
    odd = [row for row in transactions if row["ended"] not in {"commit", None}]
    return f"<b>{plain(text)}</b><br>{lines(odd[-1]['reason'])}" if odd else f"<b>{plain(text)}</b>"
