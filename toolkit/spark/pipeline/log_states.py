"""The state of each log between runs, by its name, and from which offset a log is read that has changed since.

A log only grows at its end, so earlier reads stay valid, even after retention and the cleaner have deleted data. A
truncation invalidates them, when a replica follows a new leader. The leader epochs in the log's folder show the first
changed offset, as they do for the replicas themselves. Without leader epochs, a changed log is read again completely;
one that has become shorter may be an older copy, so that its rows stay, and an error row says so.

A copy does not grow like a log: a segment may arrive late, or be incomplete or damaged at first. So the state has the
size of each segment and whether it was damaged. A log is read again if a segment appears below the end that was read,
an older one grew by more than the cleaner can have merged into it, a damaged one changed, or a snapshot or the
cleaner's checkpoint now explains what was unknown. A segment that shrank or is gone is the work of the cleaner or of
retention. A copy whose end is older than what was read takes nothing back.

The records of ``__transaction_state`` are of a partition, whichever replica has them, and its log is compacted: what
was read of it is not there to be read again. So only what is proven false, or was not read, is replaced.

The name of a log may change. A path becomes cluster and broker once ``meta.properties`` is copied, too. A topic gets an
id when its cluster is upgraded. And the log of a topic that was deleted and created again without a topic id makes way
for the new one: its rows stay, under a number in place of the topic id.

A run writes the states of the logs, and last its row in the table ``runs``. Until that is there, the states of the run
before are, too: a run continues from the newest run of which both are complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from toolkit.schema.table import EPOCH
from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.log_reader import LogIdentity, LogListing
from toolkit.spark.pipeline.stored_tables import IDS, RUN_ID, RUNS, STATE, StoredRun, StoredState, TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


NEVER = (1 << 63) - 1
LOST_SENTENCE = "OFFSETS_LOST: Offsets {:,} to {:,} were deleted from the log before they were read."
MAY_BE_OLDER = (
    "OFFSETS_LOST: The files end before offset {:,}, up to which the log was read: without leader-epoch-checkpoint, "
    "they may be an older copy, or the log was truncated."
)
CONTINUED = "continued"  # the log continues at the end of the last read
LOST = "lost"  # the log continues after offsets deleted before they were read
TRUNCATED = "truncated"  # the log changed from an offset on, and is read again


class LogPlan(NamedTuple):
    """How to read the new data of a log."""

    start: int | None = None  # first offset to read; null for the beginning of the log
    stop: int | None = None  # end offset, exclusive; null for the end of the log
    mode: str | None = None  # how to use the stored state: `CONTINUED`, `LOST` or `TRUNCATED`; null without one
    offset: int | None = None  # the first one whose stored rows are obsolete, if it is not `start`
    error: str | None = None  # for `LOST`: the lost offsets; for `CONTINUED`: why nothing more is read
    # of a compacted log: where it begins, though stored rows stay up to `offset`, as their records may be gone
    begin: int | None = None
    # whether a table was older than the state or the state older than a table: what follows the stored rows is added
    repairs: bool = False

    @property
    def obsolete_from(self) -> int:
        """The first offset that is read now, so that what a run has stored of it that was killed is obsolete."""
        return (self.start or 0) if self.offset is None else self.offset

    @property
    def read_from(self) -> tuple[int, int]:
        """`obsolete_from`, and the first offset that is read."""
        return self.obsolete_from, self.obsolete_from if self.begin is None else self.begin


def plan_logs(listed: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
    """How to read the new data of each changed log. `listed`, `states`: by name of the log."""
    found = {}
    for name, row in listed.items():
        state = states.get(name)
        if row.is_live:
            if (plan := _plan_live(row, state, has_ids=name.endswith(IDS))) is not None:
                found[name] = plan
        elif state is None:
            found[name] = LogPlan(offset=row.begin)
        elif row.listing != state.listing or state.is_unread:
            found[name] = _plan_records(row, state) if name.endswith(IDS) else _plan_changed(row, state)
    return found


def read_again(row: LogListing, state: StoredState, plan: LogPlan | None) -> LogPlan:
    """Read all that a log still has, as a table was older than its `state`; rows of what it has not are kept.

    `plan`: how the log would be read otherwise.
    """
    begin, offset = row.begin or 0, state.log_end_offset or 0
    if plan is not None and plan.mode == TRUNCATED:
        offset = min(offset, plan.obsolete_from)
    start = begin if row.is_live else None
    if state.log.endswith(IDS):  # records, of which compaction leaves the last
        return LogPlan(start=start, stop=row.high_watermark, mode=TRUNCATED, offset=begin)
    return LogPlan(start=start, stop=row.high_watermark, mode=TRUNCATED, offset=offset, begin=begin, repairs=True)


def _plan_live(row: LogListing, state: StoredState | None, *, has_ids: bool) -> LogPlan | None:
    begin, end = row.begin, row.high_watermark
    if begin is None or end is None:  # its error is read
        return LogPlan() if state is None else LogPlan(start=state.log_end_offset, mode=CONTINUED)
    last_end = None if state is None else state.log_end_offset
    if last_end is None:
        mode = None if state is None else CONTINUED  # state from before the lost offsets
        return LogPlan(start=begin, stop=end, mode=mode) if begin < end else None
    if last_end > end:  # committed records are gone, by an unclean election; what retention has deleted stays
        return LogPlan(start=begin, stop=end, mode=TRUNCATED, offset=end if has_ids else begin)
    if last_end < begin:
        return LogPlan(start=begin, stop=end, mode=LOST, error=LOST_SENTENCE.format(last_end, begin - 1))
    was_unread = state is not None and (state.is_unread or (has_ids and state.is_damaged))
    has_news = last_end < end or was_unread
    return LogPlan(start=last_end, stop=end, mode=CONTINUED) if has_news else None


def _plan_changed(row: LogListing, state: StoredState) -> LogPlan:
    begin, end = row.begin or 0, state.log_end_offset
    if end is None:
        return LogPlan(mode=TRUNCATED, offset=begin)
    if row.begin is None:  # its folder cannot be read
        return LogPlan(start=end, mode=CONTINUED)
    newer = _first_newer(row, state)
    if is_older(row, state) and not state.is_unread:
        return LogPlan(start=end, mode=CONTINUED, error=MAY_BE_OLDER.format(end) if newer is None else None)
    has_epoch = state.leader_epoch is not None and state.leader_epoch >= 0
    is_unchanged = newer is not None and newer >= end and (has_epoch or end <= begin)
    incomplete = _first_incomplete(row, state)
    if state.is_unread or not is_unchanged or incomplete is not None:
        first = begin if newer is None else min(begin, newer)
        has_reason = has_epoch and newer is not None and not state.is_unread and ~begin not in state.damaged_bases
        changed = min(each for each in (end, newer, incomplete) if each is not None)
        if has_reason and begin < min(changed, row.cleaned):
            return LogPlan(mode=TRUNCATED, offset=changed, begin=begin)
        return LogPlan(mode=TRUNCATED, offset=0 if ~begin in state.damaged_bases else min(first, end))
    if begin > end:
        return LogPlan(mode=LOST, offset=begin, error=LOST_SENTENCE.format(end, begin - 1))
    return LogPlan(start=end, mode=CONTINUED)


def _plan_records(row: LogListing, state: StoredState) -> LogPlan:
    """How to read the records of a partition of ``__transaction_state``."""
    end = state.log_end_offset
    if end is None:
        return LogPlan(mode=TRUNCATED, offset=0)
    if row.begin is None:
        return LogPlan(start=end, mode=CONTINUED)
    if is_older(row, state) and not state.is_unread:
        return LogPlan(start=end, mode=CONTINUED)
    changed = [_first_newer(row, state)]
    if row.log == state.replica:
        changed.append(_first_incomplete(row, state))
    if state.is_unread or (state.damaged_bases and row.log != state.replica):
        changed.append(min((each if each >= 0 else ~each for each in state.damaged_bases), default=0))
    first = min((each for each in changed if each is not None), default=NEVER)
    if first < end:
        return LogPlan(mode=TRUNCATED, offset=first)
    return LogPlan(start=end, mode=CONTINUED)


def _first_newer(row: LogListing, state: StoredState) -> int | None:
    """Where the first leader epoch after those of the last read begins, or else its end; null without leader epochs."""
    epochs = {int(epoch): offset for epoch, offset in json.loads(row.leader_epochs or "{}").items()}
    last_epoch = -1 if state.leader_epoch is None else state.leader_epoch
    newer = (offset for epoch, offset in epochs.items() if 0 <= last_epoch < epoch)
    return min(newer, default=state.log_end_offset) if epochs else None


def is_older(row: LogListing, state: StoredState | None) -> bool:
    """Whether this copy of a log is older than what was read: its newest segment is an earlier one, or shorter.

    Without leader epochs it may be truncated, too, and takes nothing back either.
    """
    if state is None or row.log != state.replica or state.leader_epoch in {None, -1}:
        return False
    newer = _first_newer(row, state)
    if newer is not None and newer < (state.log_end_offset or 0):  # it is truncated
        return False
    listed, known = (json.loads(text or "[]") for text in (row.segment_sizes, state.segment_sizes))
    is_behind = bool(listed and known) and max(listed)[:2] < max(known)[:2]
    return is_behind and max(known)[0] not in state.damaged_bases  # a damaged segment may have been too long


def read_to(row: LogListing, state: StoredState | None) -> int | None:
    """The end of a log if it was read up to it as it is now, without damage, and nothing is open; else null."""
    if state is None or row.replica is None or not state.is_settled:
        return None
    if state.is_damaged or state.is_unread or state.is_torn:
        return None
    is_current = (state.listing, state.segment_sizes) == (row.listing, row.segment_sizes)
    return state.log_end_offset if is_current and state.open_transactions is None else None


def _first_incomplete(row: LogListing, state: StoredState) -> int | None:
    """The first segment that was missing, incomplete or damaged when it was read, and now is not what it was."""
    if state.segment_sizes is None:
        return 0 if state.is_damaged else None
    known = {base: (size, modified) for base, size, modified in json.loads(state.segment_sizes)}
    damaged, begin = state.damaged_bases, row.begin or 0
    lost_before = (~each for each in damaged if each < 0)
    found = [base for base in lost_before if (row.has_snapshot if base == begin else begin < base <= row.cleaned)]
    newest, log_end = max(known, default=0), state.log_end_offset or 0
    listed = json.loads(row.segment_sizes or "[]")
    ends = [*(base for base, _, _ in listed[1:]), NEVER]
    for (base, size, modified), end in zip(listed, ends, strict=True):
        is_late = base not in known and (base < newest or end <= log_end)
        merged = sum(before for each, (before, _) in known.items() if base <= each < end)
        has_grown = base < newest and size > merged
        if is_late or has_grown or (base in damaged and known.get(base) != (size, modified)):
            found.append(base)
    return min(found, default=None)


EARLIER = "~"
"""Before a number in place of a topic id: an earlier topic of that name, deleted and created again."""


def renames(listings: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> dict[str, str]:
    """New names of stored logs, by their old names."""
    by_place: dict[LogIdentity, str] = {}
    for name, _ in sorted(states.items(), key=lambda each: each[1].latest or EPOCH):  # the newest topic is the last
        identity = LogIdentity.of(name)
        if not (identity.topic_id or "").startswith(EARLIER):
            by_place[identity._replace(topic_id=None)] = name
    old_names = _names_by_path(listings, states)
    found: dict[str, str] = {}
    for name, row in listings.items():
        identity = LogIdentity.of(name)
        stored = name if name in states else old_names.get(name) or by_place.get(identity._replace(topic_id=None))
        if stored is None:
            continue
        state = states[stored]
        if stored == name or (row.topic_id or state.topic_id) is None:
            if row.topic_id is None and _is_other_topic(row, state):
                taken, numbers = {*states, *found.values()}, range(1, len(states) + len(found) + 2)
                earlier = (str(identity._replace(topic_id=f"{EARLIER}{number}")) for number in numbers)
                found[stored] = next(each for each in earlier if each not in taken)
            elif stored != name:
                found[stored] = name
        elif row.topic_id is None or state.topic_id is None or stored in old_names.values():
            found[stored] = name
    return found


def _is_other_topic(row: LogListing, state: StoredState) -> bool:
    """Whether a log without a topic id is of a topic that was created again since."""
    first_batch = row.first_batch
    if first_batch is not None and state.first_batch is not None:
        (base, crc), (known_base, known_crc) = (each.split(":") for each in (first_batch, state.first_batch))
        if base == known_base:
            return bool(crc != known_crc)
    if row.leader_epochs is None:  # of a live cluster, which never loses committed records
        end, known_end = row.high_watermark, state.log_end_offset
        return end is not None and known_end is not None and end < known_end
    epochs = [int(epoch) for epoch in json.loads(row.leader_epochs)]
    return bool(epochs) and state.leader_epoch is not None and max(epochs) < state.leader_epoch


def _names_by_path(listings: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> dict[str, str]:
    """The names that stored logs had while their files lacked cluster or broker, by the present ones."""
    found: dict[str, str] = {}
    for name, row in listings.items():
        identity = LogIdentity.of(name)
        if name in states or identity.is_by_path or row.folder is None:
            continue
        place = identity.place if name.endswith(IDS) else row.folder
        for broker in (None, identity.broker):
            if (by_path := str(LogIdentity(None, broker, identity.topic_id, place))) in states:
                found[name] = by_path
    return found


def assumptions(names: Iterable[str]) -> list[str]:
    """What is assumed of logs whose files lack ids, as sentences."""
    identities = [LogIdentity.of(name) for name in names]
    by_path = sum(each.is_by_path for each in identities)
    without_topic_id = sum(each.topic_id is None and not each.is_by_path for each in identities)
    found = []
    if by_path:
        found.append(
            f"{by_path:,} of {len(identities):,} logs have no meta.properties with cluster and broker: each is assumed "
            "to be the log of its path; a copy elsewhere counts as another log."
        )
    if without_topic_id:
        found.append(
            f"{without_topic_id:,} of {len(identities):,} logs have no topic id: a topic is assumed to be the same "
            "unless its first batch differs, or its newest leader epoch is older than before."
        )
    return found


KEPT_RUNS = 5  # of a state that was restored, its run must be there


@dataclass(slots=True, kw_only=True)
class FoldStates:
    """States by log."""

    store: TableStore  # the store of the states
    runs: list[StoredRun]  # the last complete runs, the newest last
    run_id: int  # number of this run
    before: dict[str, StoredState]  # states of earlier runs
    new: dict[str, StoredState] = field(default_factory=dict)  # states of this run

    @staticmethod
    def load(store: TableStore) -> FoldStates:
        """Load the states of earlier runs."""
        runs = sorted(StoredRun.of_table(store.internal.arrow(RUNS.name, RUNS)), key=lambda each: each.run_id)
        while runs:
            states = store.internal.arrow(STATE.name, STATE, where=f"{RUN_ID} = {runs[-1].state_run}")
            if len(states) == runs[-1].logs:
                before = {each.log: each for each in StoredState.of_table(states)}
                return FoldStates(store=store, runs=runs, run_id=runs[-1].run_id + 1, before=before)
            runs.pop()  # it, or the states, are from before a restore
        return FoldStates(store=store, runs=[], run_id=1, before={})

    @property
    def last(self) -> StoredRun:
        """The last complete run."""
        return self.runs[-1] if self.runs else StoredRun()

    def rename(self, names: Mapping[str, str]) -> None:
        """Give logs other names, in the stored tables, too."""
        if not names:
            return
        self.store.rename_logs({old: LogIdentity.of(new) for old, new in names.items()})
        for old, new in names.items():
            state, broker_id = self.before.pop(old), LogIdentity.of(new).broker_id
            self.before[new] = replace(state, log=new, broker_id=state.broker_id if broker_id is None else broker_id)
        self.store.internal.overwrite(STATE.name, STATE, self._rows(self.before.values()), run_id=self.last.state_run)

    @property
    def all(self) -> dict[str, StoredState]:
        """The newest state of each log."""
        return {**self.before, **self.new}

    def add(
        self, states: Iterable[StoredState], listed: Mapping[str, LogListing], plans: Mapping[str, LogPlan]
    ) -> None:
        """Add the states of the logs that this run has read."""
        for state in states:
            listing, plan = listed[state.log], plans[state.log]
            damaged = state.damaged_bases
            if plan.mode in (CONTINUED, LOST):  # what was damaged before, and was not read again, still is
                damaged += self.before[state.log].damaged_bases
            is_kept = plan.mode == CONTINUED and is_older(listing, self.before[state.log])
            newest = self.before[state.log] if is_kept else listing
            self.new[state.log] = replace(
                state,
                listing=listing.listing,
                topic_id=listing.topic_id,
                replica=listing.log,
                segment_sizes=newest.segment_sizes,
                first_batch=listing.first_batch,
                damaged_segments=json.dumps(sorted(set(damaged))),
            )

    def store_new(self) -> None:
        """Store the states of this run beside those that the last run continues from, until this one is complete."""
        store, rows = self.store.internal, self._rows(self.all.values())
        if self.before:
            replaced = f"{RUN_ID} <> {self.last.state_run}"
            store.replace_rows(STATE.name, STATE, rows, run_id=self.run_id, replaced=replaced)
        else:
            store.overwrite(STATE.name, STATE, rows, run_id=self.run_id)

    def complete(self, run: StoredRun) -> None:
        """Store the run, which completes it."""
        store, state_run = self.store.internal, self.run_id if self.new else self.last.state_run
        run = replace(run, run_id=self.run_id, state_run=state_run, logs=len(self.all))
        kept = [*self.runs[1 - KEPT_RUNS :], run]
        rows = from_arrow(store.spark, spark_table(RUNS.arrow(each.row() for each in kept)))
        store.overwrite(RUNS.name, RUNS, rows, run_id=self.run_id)

    def _rows(self, states: Iterable[StoredState]) -> DataFrame:
        return from_arrow(self.store.spark, spark_table(STATE.arrow(states)))
