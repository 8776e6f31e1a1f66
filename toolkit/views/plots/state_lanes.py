"""States of transactional ids over time: a lane for each id of a timeline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import NamedTuple

import plotly.graph_objects as go

from toolkit.analysis.coordinator.transaction_owners import EXPIRED
from toolkit.schema.log import PastTransaction
from toolkit.views.plots.plot_theme import STATES, Appearance, Theme, hover, id_text, row_axis, when
from toolkit.views.row_formats import plain

MANY = "short states"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInterval:
    """A transactional id in one state."""

    # transactional_id, state: the id and the state; `MANY` for several that are too short to draw
    transactional_id: str
    state: str
    # start, end: from when to when, by the coordinator's clock
    start: dt.datetime
    end: dt.datetime
    past: PastTransaction  # the transaction of the state; the first one for `MANY`
    goes_on: bool = False  # whether it is the last known state
    transactions: int = 0  # number of transactions in it

    @property
    def length(self) -> dt.timedelta:
        return self.end - self.start


def intervals(transaction_history: Iterable[PastTransaction], *, now: dt.datetime) -> list[StateInterval]:
    """Every state that every id was in, in the order of ids and times. `now`: end of the last state of an id."""
    once = {(past.transactional_id, past.first_offset): past for past in transaction_history}
    steps: dict[str, list[_Step]] = {}
    for (name, _), past in sorted(once.items(), key=lambda item: (item[0][1] is None, item[0][1])):
        if name is not None:
            steps.setdefault(name, []).extend(_steps(past))
    return [interval for name in sorted(steps) for interval in _between(name, steps[name], now)]


def merged(states: Sequence[StateInterval], shortest: dt.timedelta) -> list[StateInterval]:
    """Merge consecutive short intervals of an id into one of `MANY`."""
    result: list[StateInterval] = []
    for is_short, group in groupby(states, key=lambda state: state.length < shortest and not state.goes_on):
        run: list[StateInterval] = []
        for state in group:
            if run and (not is_short or state.end - run[0].start > 4 * shortest):
                result.append(_one_of(run))
                run = []
            run.append(state)
        result.append(_one_of(run))
    return result


class _Step(NamedTuple):
    since: dt.datetime
    state: str
    past: PastTransaction
    transactions: int  # that begin with it


def _steps(past: PastTransaction) -> Iterator[_Step]:
    """The states of a transaction: Ongoing, Prepare*, Complete*; its end is the last known state."""
    if past.kind != "transaction":
        if past.end_time is not None:
            yield _Step(past.end_time, EXPIRED if past.kind == "expired" else "Empty", past, 0)
        return
    commits = past.ended == "commit" or (past.state or "").endswith("Commit")
    outcome = "Commit" if commits else "Abort"
    times = {"Ongoing": past.start_time, f"Prepare{outcome}": past.decided_at, f"Complete{outcome}": past.end_time}
    for state, time in times.items():
        if time is not None:
            yield _Step(time, state, past, int(state == "Ongoing"))


def _between(name: str, steps: Sequence[_Step], now: dt.datetime) -> Iterator[StateInterval]:
    changes = [
        next(same) for _, same in groupby(steps, key=lambda step: (step.state, step.state == "Ongoing" or step.since))
    ]
    for step, following in zip_longest(changes, changes[1:]):
        yield StateInterval(
            transactional_id=name,
            state=step.state,
            start=step.since,
            end=max(step.since, following.since if following else now),
            past=step.past,
            goes_on=following is None,
            transactions=step.transactions,
        )


def _one_of(run: Sequence[StateInterval]) -> StateInterval:
    if len(run) == 1:
        return run[0]
    return StateInterval(
        transactional_id=run[0].transactional_id,
        state=MANY,
        start=run[0].start,
        end=run[-1].end,
        past=run[0].past,
        transactions=sum(interval.transactions for interval in run),
    )


WIDE = 0.18  # minimum share of the visible time for a state with its name
MAX_WORDS = 16
NAME_WIDTH = 24
NARROWEST_LANE = 400  # minimum share of the visible time for a single state
MILLISECOND = dt.timedelta(milliseconds=1)
STATE_APPEARANCE = {**STATES, MANY: Appearance(role="muted", hatch="/")}


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

    `states`: from `intervals`.
    `ids`: transactional ids from top to bottom.
    `shown_from`, `now`: the initially visible time, which decides which states are merged, and which have a word.
    `nothing`: text if no id has a record.
    """
    shortest = (now - shown_from) / NARROWEST_LANE
    visible = [
        interval
        for name in ids
        for interval in merged([state for state in states if state.transactional_id == name], shortest)
    ]
    names = {name: plain(name) for name in ids}
    for state, style in STATE_APPEARANCE.items():
        of_state = [interval for interval in visible if interval.state == state]
        if of_state:
            y = [names[interval.transactional_id] for interval in of_state]
            rank = 100 + list(STATES).index(state) if state in STATES else 120
            bars = state_bars(of_state, state, style, theme, y=y, shortest=shortest / 2)
            figure.add_trace(bars.update(legendrank=rank), row=row, col=1)
    for interval in _wide(visible, shown_from=shown_from, now=now):
        figure.add_annotation(
            x=when(max(interval.start, shown_from)), y=names[interval.transactional_id], xanchor="left", xshift=6,
            text=interval.state, showarrow=False, font={"size": 12, "color": theme.text}, bgcolor=theme.background,
            borderpad=1, row=row, col=1,
        )  # fmt: skip
    silent = [name for name in ids if all(interval.transactional_id != name for interval in visible)]
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
    widths = [(interval.end - max(interval.start, shown_from), interval) for interval in visible]
    wide = [pair for pair in widths if pair[0] > (now - shown_from) * WIDE]
    return [interval for _, interval in sorted(wide, key=lambda pair: pair[0], reverse=True)[:MAX_WORDS]]


def state_bars(
    of_state: Sequence[StateInterval],
    state: str,
    style: Appearance,
    theme: Theme,
    *,
    y: Sequence[str],
    shortest: dt.timedelta,
) -> go.Bar:
    """Bars of the intervals in one state, at least `shortest` long, in the rows `y`."""
    colour = theme[style.role]
    pattern = {"shape": style.hatch, "fgcolor": colour, "bgcolor": theme.background, "size": 7, "solidity": 0.25}
    return go.Bar(
        orientation="h",
        base=[when(interval.start) for interval in of_state],
        x=[max(interval.length, shortest) / MILLISECOND for interval in of_state],
        y=y,
        width=0.56,
        marker={
            "color": colour if state == "Ongoing" else theme.background,
            "line": {"color": colour, "width": 1.5},
            "pattern": pattern,
        },
        hovertext=list(map(_hover, of_state)),
        hoverinfo="text",
        name=state,
    )


def _hover(interval: StateInterval) -> str:
    """Every id and time of a state."""
    past = interval.past
    lasted: list[tuple[str, object]] = [
        ("from", interval.start),
        ("to", None if interval.goes_on else interval.end),
        ("for", interval.length),
    ]
    named: list[tuple[str, object]] = [("state", interval.state), ("transactional id", interval.transactional_id)]
    if interval.state == MANY:  # of the first one, the rest would be said of all
        return hover([*named, *lasted, ("transactions", interval.transactions)])
    facts: list[tuple[str, object]] = [
        *named,
        ("producer", id_text(past.producer_id)),
        ("epoch", id_text(past.producer_epoch)),
        *lasted,
        ("timeout", None if past.timeout_ms is None else past.timeout_ms * MILLISECOND),
        ("partitions", list(map(str, past.topic_partitions or ())) or None),
        ("__transaction_state", f"{past.txn_state_partition} @ {past.first_offset}"),
        ("ended", past.ended),
        ("because", past.reason),
    ]
    return hover(facts)
