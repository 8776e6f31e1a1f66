"""Intervals of a transactional id in each state, from its coordinator's records or its history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from toolkit.analysis.coordinator.transaction_states import EXPIRED, state_of
from toolkit.schema import Row

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
    time, state = row["last_update_time"] or row["timestamp"], state_of(row)
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
