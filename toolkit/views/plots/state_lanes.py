"""Lanes of transactional ids: the intervals in which each was in each state, as bars over time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import plotly.graph_objects as go

from toolkit.analysis.coordinator.transaction_states import EXPIRED, state_of
from toolkit.schema import Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.views.plots.plot_text import hover, id_text, plain, row_axis, when
from toolkit.views.plots.plot_theme import STATES, Appearance, Theme

MANY = "short states"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInterval:
    """A transactional id in one state.

    Parameters
    ----------
    transactional_id, state
        The id and the state; `MANY` for several that are too short to draw.
    start, end
        From when to when, by the coordinator's clock.
    row
        The row of ``schema.TRANSACTION_LOG`` or ``TRANSACTION_HISTORY`` of the state; the first one for `MANY`.
    goes_on
        Whether it is the last known state.
    transactions
        Number of transactions in it.
    """

    transactional_id: str
    state: str
    start: dt.datetime
    end: dt.datetime
    row: Row
    goes_on: bool = False
    transactions: int = 0

    @property
    def length(self) -> dt.timedelta:
        return self.end - self.start


def intervals(*, events: Iterable[Row], transaction_history: Iterable[Row], now: dt.datetime) -> list[StateInterval]:
    """Every state that every id was in, in the order of ids and times.

    Parameters
    ----------
    events
        Rows of ``schema.TRANSACTION_LOG``. For ids with records, their history is not used.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY``.
    now
        End of the last state of an id.
    """
    logged = _steps_of(events, _of_event, key="offset")
    from_history = _steps_of(transaction_history, _of_history, key="first_offset")
    return [each for name, steps in sorted({**from_history, **logged}.items()) for each in _between(name, steps, now)]


def merged(found: Sequence[StateInterval], shortest: dt.timedelta) -> list[StateInterval]:
    """Merge consecutive short intervals of an id into one of `MANY`."""
    result: list[StateInterval] = []
    for is_short, group in groupby(found, key=lambda each: each.length < shortest and not each.goes_on):
        run: list[StateInterval] = []
        for each in group:
            if run and (not is_short or each.end - run[0].start > 4 * shortest):
                result.append(_one_of(run))
                run = []
            run.append(each)
        result.append(_one_of(run))
    return result


Step = tuple[dt.datetime, str, Row, int]  # since when, in which state, by which row, how many transactions it begins


def _steps_of(rows: Iterable[Row], of: object, *, key: str) -> dict[str, list[Step]]:
    assert callable(of)
    once = {(row["transactional_id"], row[key]): row for row in rows if row["transactional_id"] is not None}
    found: dict[str, list[Step]] = {}
    for (name, _), row in sorted(once.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1])):
        found.setdefault(name, []).extend(of(row))
    return found


def _of_event(row: Row) -> Iterator[Step]:
    time, state = row["last_update_time"] or row["timestamp"], state_of(TransactionLogRecord.of(row))
    if time is not None and state is not None and row["error"] is None:
        yield time, state, row, int(state == "Ongoing")


def _of_history(row: Row) -> Iterator[Step]:
    """The states of a transaction: Ongoing, Prepare*, Complete*; its end is the last known state."""
    if row["kind"] != "transaction":
        if row["end_time"] is not None:
            yield row["end_time"], EXPIRED if row["kind"] == "expired" else "Empty", row, 0
        return
    commits = row["ended"] == "commit" or (row["state"] or "").endswith("Commit")
    outcome = "Commit" if commits else "Abort"
    times = {"Ongoing": "start_time", f"Prepare{outcome}": "decided_at", f"Complete{outcome}": "end_time"}
    for state, column in times.items():
        if row[column] is not None:
            yield row[column], state, row, int(state == "Ongoing")


def _between(name: str, steps: Sequence[Step], now: dt.datetime) -> Iterator[StateInterval]:
    changes = [next(same) for _, same in groupby(steps, key=lambda step: (step[1], step[1] == "Ongoing" or step[0]))]
    for (start, state, row, begun), (end, *_) in pairwise(changes):
        yield StateInterval(
            transactional_id=name, state=state, start=start, end=max(start, end), row=row, transactions=begun
        )
    if changes:
        start, state, row, begun = changes[-1]
        yield StateInterval(
            transactional_id=name,
            state=state,
            start=start,
            end=max(start, now),
            row=row,
            goes_on=True,
            transactions=begun,
        )


def _one_of(run: Sequence[StateInterval]) -> StateInterval:
    if len(run) == 1:
        return run[0]
    return StateInterval(
        transactional_id=run[0].transactional_id,
        state=MANY,
        start=run[0].start,
        end=run[-1].end,
        row=run[0].row,
        transactions=sum(each.transactions for each in run),
    )


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
        From `toolkit.views.plots.state_lanes.intervals`.
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
