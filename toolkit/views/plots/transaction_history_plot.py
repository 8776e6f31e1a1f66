"""States of transactional ids over time: a lane for each id of a timeline, and the history of one id."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import NamedTuple, TypeVar

import plotly.graph_objects as go

from toolkit.analysis.coordinator.transaction_owners import EXPIRED, OPEN_STATES, state_of
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_theme import (
    STATES,
    Appearance,
    Theme,
    ThemeName,
    apply_theme,
    hover,
    id_text,
    lines,
    plain,
    row_axis,
    theme_named,
    when,
)
from toolkit.views.row_formats import count

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
    # the record of the coordinator, or the past transaction, of the state; the first one for `MANY`
    record: TransactionLogRecord | PastTransaction
    goes_on: bool = False  # whether it is the last known state
    transactions: int = 0  # number of transactions in it

    @property
    def length(self) -> dt.timedelta:
        return self.end - self.start


def intervals(
    *, events: Iterable[TransactionLogRecord], transaction_history: Iterable[PastTransaction], now: dt.datetime
) -> list[StateInterval]:
    """Every state that every id was in, in the order of ids and times.

    `events`: records of coordinators. For ids with records, their history is not used.
    `now`: end of the last state of an id.
    """
    steps = {
        **_steps_by_id(transaction_history, _of_past_transaction, position=lambda past: past.first_offset),
        **_steps_by_id(events, _of_record, position=lambda record: record.offset),
    }
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


Record = TypeVar("Record", TransactionLogRecord, PastTransaction)


class _Step(NamedTuple):
    since: dt.datetime
    state: str
    record: TransactionLogRecord | PastTransaction
    transactions: int  # that begin with it


def _steps_by_id(
    records: Iterable[Record],
    steps_of: Callable[[Record], Iterator[_Step]],
    *,
    position: Callable[[Record], int | None],
) -> dict[str, list[_Step]]:
    once = {(record.transactional_id, position(record)): record for record in records}
    steps: dict[str, list[_Step]] = {}
    for (name, _), record in sorted(once.items(), key=lambda item: (item[0][1] is None, item[0][1])):
        if name is not None:
            steps.setdefault(name, []).extend(steps_of(record))
    return steps


def _of_record(record: TransactionLogRecord) -> Iterator[_Step]:
    time, state = record.last_update_time or record.timestamp, state_of(record)
    if time is not None and state is not None and record.error is None:
        yield _Step(time, state, record, int(state == "Ongoing"))


def _of_past_transaction(past: PastTransaction) -> Iterator[_Step]:
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
            record=step.record,
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
        record=run[0].record,
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

    `states`: from `toolkit.views.plots.transaction_history_plot.intervals`.
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
    record = interval.record
    offset = record.first_offset if isinstance(record, PastTransaction) else record.offset
    facts: list[tuple[str, object]] = [
        ("state", interval.state),
        ("transactional id", interval.transactional_id),
        ("producer", id_text(record.producer_id)),
        ("epoch", id_text(record.producer_epoch)),
        ("from", interval.start),
        ("to", None if interval.goes_on else interval.end),
        ("for", interval.length),
        ("timeout", None if record.timeout_ms is None else record.timeout_ms * MILLISECOND),
        ("transactions", interval.transactions if interval.state == MANY else None),
        ("partitions", list(map(str, record.topic_partitions or ())) or None),
        ("__transaction_state", f"{record.txn_state_partition} @ {offset}"),
    ]
    if isinstance(record, PastTransaction):
        facts += [("ended", record.ended), ("because", record.reason)]
    return hover(facts)


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
