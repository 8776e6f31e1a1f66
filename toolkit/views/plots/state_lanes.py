"""Lanes of transactional ids: their states as bars over time, with a hatch and a word for each state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import plotly.graph_objects as go

from toolkit.schema import Row
from toolkit.views.plots.plot_text import hover, id_text, plain, row_axis, when
from toolkit.views.plots.plot_theme import STATES, Appearance, Theme
from toolkit.views.plots.state_intervals import MANY, StateInterval, merged

WIDE = 0.18  # minimum share of the visible time for a state with its name
MAX_WORDS = 16
NAME_WIDTH = 24
NARROWEST = 400  # minimum share of the visible time for a single state
MILLISECOND = dt.timedelta(milliseconds=1)
MANY_APPEARANCE = Appearance(role="muted", hatch="/")


def add_lanes(
    figure: go.Figure,
    states: Sequence[StateInterval],
    *,
    ids: Sequence[str],
    theme: Theme,
    row: int,
    shown_from: dt.datetime,
    now: dt.datetime,
    nothing: str,
) -> None:
    """Draw a lane for each id, one below the other; an id without records has an empty one with a note.

    Parameters
    ----------
    figure, row
        The figure and its row.
    states
        From `toolkit.views.plots.state_intervals.intervals`.
    ids
        Transactional ids from top to bottom.
    theme
        Colours.
    shown_from, now
        The initially visible time, which decides which states are merged, and which have a word.
    nothing
        Text if no id has a record.
    """
    shortest = (now - shown_from) / NARROWEST
    visible = [
        each for name in ids for each in merged([one for one in states if one.transactional_id == name], shortest)
    ]
    names = {name: plain(name) for name in ids}
    for state, style in {**STATES, MANY: MANY_APPEARANCE}.items():
        of_state = [each for each in visible if each.state == state]
        if of_state:
            figure.add_trace(_bars(of_state, state, style, theme, names, shortest), row=row, col=1)
    for each in _wide(visible, shown_from=shown_from, now=now):
        figure.add_annotation(
            x=when(max(each.start, shown_from)), y=names[each.transactional_id], xanchor="left", xshift=6,
            text=each.state, showarrow=False, font={"size": 12, "color": theme.text}, bgcolor=theme.background,
            borderpad=1, row=row, col=1,
        )  # fmt: skip
    silent = [name for name in ids if all(each.transactional_id != name for each in visible)]
    for name in silent if visible else []:
        figure.add_annotation(
            x=when(now), y=names[name], text="no record was read", xanchor="right", showarrow=False, row=row, col=1
        )
    figure.update_yaxes(row_axis(ids, longest=NAME_WIDTH, margin=0.6), row=row, col=1)
    if not visible:
        figure.add_trace(
            go.Scatter(x=[when(now)], y=[""], mode="none", showlegend=False, hoverinfo="skip"), row=row, col=1
        )
        figure.add_annotation(
            text=nothing, x=0.5, y=0.5, xref="x2 domain" if row > 1 else "x domain",
            yref="y2 domain" if row > 1 else "y domain", showarrow=False, font={"color": theme.muted},
        )  # fmt: skip


def _wide(visible: Sequence[StateInterval], *, shown_from: dt.datetime, now: dt.datetime) -> list[StateInterval]:
    """Intervals with room for their name, the widest first, up to a maximum."""
    widths = [(each.end - max(each.start, shown_from), each) for each in visible]
    wide = [pair for pair in widths if pair[0] > (now - shown_from) * WIDE]
    return [each for _, each in sorted(wide, key=lambda pair: pair[0], reverse=True)[:MAX_WORDS]]


def _bars(
    of_state: Sequence[StateInterval],
    state: str,
    style: Appearance,
    theme: Theme,
    names: dict[str, str],
    shortest: dt.timedelta,
) -> go.Bar:
    colour = theme[style.role]
    return go.Bar(
        orientation="h",
        base=[when(each.start) for each in of_state],
        x=[max(each.length, shortest / 2) / MILLISECOND for each in of_state],
        y=[names[each.transactional_id] for each in of_state],
        width=0.56,
        marker={
            "color": colour if state == "Ongoing" else theme.background,
            "line": {"color": colour, "width": 1.5},
            "pattern": {
                "shape": style.hatch,
                "fgcolor": colour,
                "bgcolor": theme.background,
                "size": 7,
                "solidity": 0.25,
            },
        },
        hovertext=[state_hover(each) for each in of_state],
        hoverinfo="text",
        name=state,
        legendrank=100 + list(STATES).index(state) if state in STATES else 120,
    )


def state_hover(each: StateInterval) -> str:
    """Every id and time of a state."""
    row: Row = each.row
    facts: list[tuple[str, object]] = [
        ("state", each.state),
        ("transactional id", each.transactional_id),
        ("producer", id_text(row["producer_id"])),
        ("epoch", id_text(row["producer_epoch"])),
        ("from", each.start),
        ("to", None if each.goes_on else each.end),
        ("for", each.length),
        ("timeout", None if row["timeout_ms"] is None else row["timeout_ms"] * MILLISECOND),
        ("transactions", each.transactions if each.state == MANY else None),
        ("partitions", [f"{tp['topic']}-{tp['partition']}" for tp in row["topic_partitions"] or ()] or None),
        ("__transaction_state", f"{row['txn_state_partition']} @ {row.get('offset', row.get('first_offset'))}"),
        ("ended", row.get("ended")),
        ("because", row.get("reason")),
    ]
    return hover(facts)
