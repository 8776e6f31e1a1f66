"""One look at a cluster, in the order that makes its answers bracket each other (`analysis.evidence.Look`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.cases import is_held
from toolkit.analysis.evidence import Coverage, Look
from toolkit.analysis.states import OPEN_STATES
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.coordinators import Places
from toolkit.sources.loaded import not_loaded
from toolkit.sources.offsets import lso_rows, partition_rows
from toolkit.sources.openings import read_openings
from toolkit.sources.producers import open_transactions, producer_rows
from toolkit.sources.rights import topics_are_visible, transactional_ids_are_visible
from toolkit.sources.state_log import StateLog, read_state_log
from toolkit.sources.topology import Place, read_topology
from toolkit.sources.transactions import TOO_OLD, Filters, describe, list_ids
from toolkit.sources.wire import Wire

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

__all__ = ["take_look"]

OLD = dt.timedelta(seconds=60)  # a decided transaction older than this may be stuck
SECONDS_FOR_TIMES = 10.0  # to learn from the log when a state last changed


def take_look(
    wire: Wire, config: ClientConfig, bases: Mapping[Place, Row], *, whole_cluster: bool, openings: int = 3
) -> Look:
    """Look once.

    Parameters
    ----------
    bases
        The partitions to look at, by the metadata (`topology.Topology`).
    whole_cluster
        Whether they are meant to be all there are, so that hidden topics are a gap.
    openings
        How many open transactions of a partition, the lowest ones, have their first batch read.
    """
    partitions = lso_rows(wire, bases)
    leaders = {_place(row): row for row in partitions}
    producers = producer_rows(wire, leaders)
    opened = open_transactions(producers)

    told = _ask_coordinators(wire, config, opened, leaders)
    topic_gaps: Sequence[str] = topics_are_visible(wire, told.brokers).gaps if whole_cluster else ()

    again = _to_ask_again(partitions, producers, told.rows, leaders)
    fresh = read_topology(wire, {topic for topic, _ in again}).at(again) if again else {}
    producers_after = producer_rows(wire, fresh) if again else []
    partitions_after = partition_rows(wire, fresh) if again else []
    return Look(
        partitions=partitions,
        producers=producers,
        transactions=told.rows,
        partitions_after=partitions_after,
        producers_after=producers_after,
        coverage=Coverage(brokers=told.brokers, proofs=told.proofs, gaps=told.gaps, topic_gaps=topic_gaps),
        observed_at=dt.datetime.now(dt.UTC),
        openings=read_openings(wire, open_transactions(producers_after), per_partition=openings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the coordinators told, and whether that is all there is to tell."""

    rows: Sequence[Row]
    brokers: Sequence[int]
    proofs: Sequence[str]
    gaps: Sequence[str]


def _ask_coordinators(wire: Wire, config: ClientConfig, opened: Sequence[Row], leaders: Mapping[Place, Row]) -> _Told:
    before = Places(STATE_TOPIC, read_topology(wire, [STATE_TOPIC]))
    brokers = sorted(wire.brokers)
    unloaded = not_loaded(wire, before) if opened else []
    listing = list_ids(wire, brokers, before, Filters())
    open_ids = {row["producer_id"] for row in opened}
    rows = describe(wire, listing.rows(lambda producer_id, state: producer_id in open_ids or state in OPEN_STATES))

    unlisted = [row for row in listing.failures if row["error"].startswith(TOO_OLD)]
    silent = [row for row in listing.failures if row not in unlisted]
    # What the log of the coordinators can make good, and what it cannot.
    curable = [_silence(row) for row in unlisted]
    gaps = [_silence(row) for row in silent]
    proofs = [] if listing.failures else [f"{_all(brokers)} listed what they coordinate: {listing.count} ids"]
    if opened and listing.versions:
        rights = transactional_ids_are_visible(wire, brokers)
        curable += rights.gaps
        proofs += rights.proofs
    log: StateLog | None = None
    if curable and not _all_explained(opened, rows):
        log = read_state_log(wire, config, before, timeout=wire.timeout)
        rows += _supplement(rows, listing.ids, log, open_ids, leaders)
        if not log.whole:
            curable += _unread(log)
        else:
            curable = []
            proofs.append(f"{STATE_TOPIC} was read whole: {log.partitions} partitions, {len(log.rows)} ids")
    rows = _with_times(wire, config, before, rows, opened, log)
    if opened:
        unloaded += not_loaded(wire, before)  # loaded on both sides of the listing is loaded at the listing
    gaps += curable + _answered_twice(listing.ids) + list(dict.fromkeys(unloaded))
    gaps += _led(before, Places(STATE_TOPIC, read_topology(wire, [STATE_TOPIC])))
    return _Told(rows=[*rows, *listing.failures], brokers=brokers, proofs=proofs, gaps=gaps)


def _silence(failure: Row) -> str:
    return f"broker {failure['broker_id']} did not answer ListTransactions: {failure['error'].partition(':')[0]}"


def _all(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"all {len(brokers)} brokers"


def _all_explained(opened: Iterable[Row], transactions: Iterable[Row]) -> bool:
    """Whether coordinators plainly own every open transaction, so that nothing hidden could change the answer."""
    owned = {
        (listed["topic"], listed["partition"], row["producer_id"], row["producer_epoch"])
        for row in transactions
        if row["state"] in OPEN_STATES and not row["error"]
        for listed in row["topic_partitions"] or ()
    }
    return all((*_place(row), row["producer_id"], row["producer_epoch"]) in owned for row in opened)


def _supplement(
    rows: Sequence[Row],
    listed: Iterable[tuple[str, int]],
    log: StateLog,
    open_ids: set[int | None],
    leaders: Mapping[Place, Row],
) -> list[Row]:
    """Rows of the log for ids that no coordinator told us about and that matter here; and what it could not read."""
    answered = {row["transactional_id"] for row in rows} | {name for name, _ in listed}
    hidden = [row for row in log.rows if row["transactional_id"] not in answered]
    return [row for row in hidden if row["producer_id"] in open_ids or _expects(row, leaders)] + log.failures


def _unread(log: StateLog) -> list[str]:
    """What kept the log from being read whole, unless it was the right to read it, which is named already."""
    if not log.partitions and not log.failures:
        return [f"{STATE_TOPIC}: the metadata does not show it"]
    errors = {row["error"].partition(":")[0] for row in log.failures} - {"TOPIC_AUTHORIZATION_FAILED"}
    return [
        f"{STATE_TOPIC} as a whole: {len(log.failures)} partitions could not be read ({error})"
        for error in sorted(errors)
    ]


def _expects(row: Row, leaders: Mapping[Place, Row]) -> bool:
    return row["state"] in OPEN_STATES and any(_place(listed) in leaders for listed in row["topic_partitions"])


def _with_times(
    wire: Wire,
    config: ClientConfig,
    places: Places,
    rows: Sequence[Row],
    opened: Sequence[Row],
    log: StateLog | None,
) -> list[Row]:
    """Rows with the time of their last state change, where a verdict needs it and the log has that very state.

    It tells how long a decided transaction has been ending; and that an epoch above the partition's is a new
    instance's, not a fence in progress: a coordinator raises the epoch first and logs it later, with PrepareAbort.
    """
    now = dt.datetime.now(dt.UTC)
    wanted = {
        row["txn_state_partition"]
        for row in rows
        if row["last_update_time"] is None and (_is_decided(row, now) or _is_above(row, opened))
    } - {None}
    if not wanted:
        return list(rows)
    log = log or read_state_log(wire, config, places, only=wanted, timeout=min(wire.timeout, SECONDS_FOR_TIMES))
    logged = {_state_key(row): row["last_update_time"] for row in log.rows}
    return [{**row, "last_update_time": row["last_update_time"] or logged.get(_state_key(row))} for row in rows]


def _is_decided(row: Row, now: dt.datetime) -> bool:
    """Whether a transaction that its coordinator is ending is old enough to be stuck."""
    ending = row["state"] in OPEN_STATES - {"Ongoing"}
    return ending and row["start_time"] is not None and now - row["start_time"] > OLD


def _is_above(row: Row, opened: Iterable[Row]) -> bool:
    """Whether an ongoing transaction has a higher epoch than what its producer has open on a partition."""
    return row["state"] == "Ongoing" and any(
        open_row["producer_id"] == row["producer_id"]
        and (open_row["producer_epoch"] or 0) < (row["producer_epoch"] or 0)
        for open_row in opened
    )


def _state_key(row: Row) -> tuple[object, ...]:
    return row["transactional_id"], row["producer_id"], row["producer_epoch"], row["state"]


def _answered_twice(listed: Iterable[tuple[str, int]]) -> list[str]:
    first: dict[str, int] = {}
    several: dict[str, set[int]] = {}
    for name, broker_id in listed:
        if first.setdefault(name, broker_id) != broker_id:
            several.setdefault(name, {first[name]}).add(broker_id)
    return [
        f"one coordinator for '{name}': brokers {', '.join(map(str, sorted(brokers)))} answer for it"
        for name, brokers in several.items()
    ]


def _led(before: Places, after: Places) -> list[str]:
    """Gaps by the metadata of the coordinators' topic: partitions that nobody answers for, or that moved meanwhile."""
    if before.hidden or after.hidden:
        return [f"DESCRIBE on Topic '{STATE_TOPIC}', to see that each of its partitions has a leader"]
    leaderless, moved = [], []
    for place, row in sorted(after.topology.partitions.items()):
        earlier = before.topology.partitions.get(place, row)
        if row["leader"] is None or earlier["leader"] is None:
            leaderless.append(place[1])
        elif (row["leader"], row["leader_epoch"]) != (earlier["leader"], earlier["leader_epoch"]):
            moved.append(place[1])
    gaps = []
    if leaderless:
        gaps.append(f"a leader of {STATE_TOPIC} {_numbers(leaderless)}: nobody answers for the ids in there")
    if moved:
        gaps.append(f"a steady coordinator: leadership of {STATE_TOPIC} {_numbers(moved)} moved during the look")
    return gaps


def _numbers(partitions: Sequence[int]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"


def _to_ask_again(
    partitions: Iterable[Row], producers: Iterable[Row], transactions: Iterable[Row], leaders: Mapping[Place, Row]
) -> list[Place]:
    """Partitions with anything open, held back, announced by a coordinator, or failed."""
    places = {_place(row) for row in partitions if row["error"] or is_held(row)}
    places |= {_place(row) for row in producers if row["error"] or row["current_txn_start_offset"] is not None}
    for row in transactions:
        if row["state"] in OPEN_STATES:
            places |= {_place(listed) for listed in row["topic_partitions"] or ()}
    return sorted(place for place in places if place in leaders)


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]
