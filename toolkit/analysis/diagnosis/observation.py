"""One observation of a cluster or of its files, the input of the verdicts, and the brokers' time in it.

The start of a transaction is a time of its coordinator's clock. It is compared with times of brokers' clocks, which
differ by at most `CLOCKS_DIFFER`, and never with this machine's clock, which may be hours off. Without a broker's time,
two observations of one process prove an age: as much time has passed as its monotonic clock says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from toolkit.analysis.transaction_owners import OPEN_STATES, TWO_PHASE_COMMIT
from toolkit.schema.durations import CLOCKS_DIFFER, duration
from toolkit.schema.live import Partition, Producer, Transaction
from toolkit.schema.recorded import FirstBatch
from toolkit.schema.table import EVERYTHING, Selection, TopicPartition
from toolkit.schema.verdict import Verdict

BEFORE_OPENING = dt.timedelta(minutes=1)  # before open records: what happened to the cluster then may be why it hangs
TIMEOUT_GRACE = dt.timedelta(seconds=15)  # transaction.abort.timed.out.transaction.cleanup.interval.ms is 10 s
NOT_READ = "no broker's time was read"
CLOCK_OF = "the clock of "  # begins the source of a time that was a clock's when it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersTime:
    """The time by the brokers' clocks, read before the coordinators answered; or why it is not known."""

    time: dt.datetime | None = None  # null if unknown
    source: str = ""  # what it is from: whose clock, or which record
    # whether it is the time of a clock; else that of the newest record that a broker wrote, and the time now may be
    # any later one
    is_current: bool = False
    error: str | None = None  # why it is unknown
    # how far this machine's clock is ahead of it (negative: behind), by at least so much; for the warning only
    machine_ahead: dt.timedelta = dt.timedelta(0)
    is_contradicted: bool = False  # whether it is unknown because the brokers' clocks are too far apart

    @property
    def text(self) -> str:
        """The time and what it is from, or why it is unknown."""
        if self.time is None:
            return f"unknown: {self.error or NOT_READ}"
        at_least = "" if self.is_current else "at least "
        return f"{at_least}{self.time.isoformat(timespec='milliseconds')}, by {self.source}"

    @property
    def warning(self) -> str | None:
        """That this machine's clock is far from the brokers'; null if it is not, or that is not known."""
        if self.time is None or abs(self.machine_ahead) <= CLOCKS_DIFFER:
            return None
        where = "ahead of" if self.machine_ahead > dt.timedelta(0) else "behind"
        ahead = duration(abs(self.machine_ahead))
        return f"This machine's clock is {ahead} {where} the brokers': times are the brokers'."

    def or_of_log(self, newest: dt.datetime | None, *, elapsed: dt.timedelta) -> BrokersTime:
        """Itself; if it is unknown for no contradiction, what the coordinators' log shows of it.

        `newest`: the newest time in that log. `elapsed`: at most the time that reading it took: a state that was read
        first may be so much older than the newest record.
        """
        if self.time is not None or self.is_contradicted or newest is None:
            return self
        return BrokersTime(time=newest - elapsed, source="the newest record of __transaction_state")

    def unless_behind(self, starts: dict[str, dt.datetime], *, elapsed: dt.timedelta) -> BrokersTime:
        """Itself, or unknown if a coordinator has begun a transaction at a time that it cannot have reached.

        `starts`: start times of open transactions, by what to call them.
        `elapsed`: at most the time since it was read.
        """
        if self.time is None or not self.is_current or not starts:
            return self
        name, newest = max(starts.items(), key=lambda each: each[1])
        return self if newest <= self.time + elapsed + CLOCKS_DIFFER else clocks_apart(name, newest, self)

    @property
    def clock(self) -> str:
        """Which clock or record it is of, or why it is unknown: the text that a recording keeps."""
        return self.source or self.error or NOT_READ

    @classmethod
    def recorded(cls, time: dt.datetime | None, clock: str | None) -> BrokersTime:
        """That of a recording, from its time and `clock`."""
        if time is None or clock is None:
            return cls(error=clock)
        return cls(time=time, source=clock, is_current=clock.startswith(CLOCK_OF))


UNKNOWN_TIME = BrokersTime()


def clocks_apart(name: str, time: dt.datetime, clock: BrokersTime) -> BrokersTime:
    """No broker's time: `name`, a broker's, is so far ahead of another broker's clock that none can be trusted."""
    assert clock.time is not None
    return BrokersTime(
        is_contradicted=True,
        error=f"{name}, {time.isoformat(timespec='milliseconds')}, is {duration(time - clock.time)} ahead of "
        f"{clock.source}: the brokers' clocks are further apart than {duration(CLOCKS_DIFFER)}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAge:
    """For how long a transaction is open, as far as it is known."""

    since_start: dt.timedelta | None = None  # by brokers' times; null if that is unknown, or before the start
    observed_for: dt.timedelta = dt.timedelta(0)  # for how long it has been observed, by a monotonic clock

    @classmethod
    def of(
        cls, start: dt.datetime | None, now: BrokersTime, *, observed_for: dt.timedelta = dt.timedelta(0)
    ) -> TransactionAge:
        """The age of a transaction that began at `start` and is open at `now`, or later."""
        slack = CLOCKS_DIFFER if now.is_current else dt.timedelta(0)
        if start is None or now.time is None or start > now.time + slack:
            return cls(observed_for=observed_for)
        # One that began after the clock was read, or by a clock that is a little ahead, has just begun.
        return cls(since_start=max(now.time - start, dt.timedelta(0)), observed_for=observed_for)

    @property
    def proven(self) -> dt.timedelta:
        """For at least how long it is open, whatever the clocks show."""
        by_clocks = dt.timedelta(0) if self.since_start is None else self.since_start - CLOCKS_DIFFER
        return max(by_clocks, self.observed_for)

    @property
    def is_observed(self) -> bool:
        """Whether observations prove more of it than clocks."""
        return self.proven == self.observed_for


def is_overdue(owner: Transaction | None, age: TransactionAge) -> bool:
    """Whether it is proven that a transaction is open past its own timeout, so that its coordinator has to end it."""
    timeout_ms = None if owner is None else owner.timeout_ms
    if not timeout_ms or timeout_ms == TWO_PHASE_COMMIT:
        return False
    return age.proven > dt.timedelta(milliseconds=timeout_ms) + TIMEOUT_GRACE


def age_verdict(owner: Transaction, age: TransactionAge, *, long_after: dt.timedelta) -> Verdict:
    """``overdue``, ``long`` or ``ongoing``: the verdict on a live transaction.

    Only `overdue` has to be proven: both others are live, and differ in the word.
    """
    if is_overdue(owner, age):
        return Verdict.OVERDUE
    return Verdict.LONG if max(age.since_start or age.observed_for, age.observed_for) > long_after else Verdict.ONGOING


OfPartition = TypeVar("OfPartition", Partition, Producer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Whether the coordinators' responses are complete."""

    brokers: Sequence[int] = ()  # every broker of the cluster that was queried
    # what proves completeness, one sentence each: all brokers answered, rights, ``__transaction_state`` read
    proofs: Sequence[str] = ()
    # what is missing, one sentence each, naming the broker, partition or right. Empty means complete: only then does
    # the absence of a transactional id count as evidence.
    gaps: Sequence[str] = ()
    # releases of Apache Kafka that the brokers may be of, by their APIs; none if that is not known
    releases: Sequence[str] = ()
    # what is missing to diagnose the whole cluster: rights without which topics stay hidden
    topic_gaps: Sequence[str] = ()
    has_coordinators: bool = True  # false if ``__transaction_state`` does not exist: no transaction ever began


@dataclass(frozen=True, slots=True)
class AsOf:
    """Time up to which files are proven to have what a coordinator did: an age counts up to it, and no further."""

    time: dt.datetime  # the time, by a clock of the brokers, of the machine that copied, or as the caller asserts
    proof: str  # what proves it
    contradiction: str | None = None  # what shows that a copy of ``__transaction_state`` is older; null if nothing does


@dataclass(frozen=True, slots=True)
class MonotonicSpan:
    """When an observation began and ended, by the monotonic clock of this process, in seconds."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One observation, read in this order: partitions, producers, transactions, then producers and partitions again.

    The coordinators answer between two responses of the partition leader. A transaction with the same producer id and
    start offset in both was open when its coordinator answered, so no race can make a finished transaction look
    disowned.
    """

    # partitions, producers, transactions: as their leaders and coordinators answered; error rows included
    partitions: Sequence[Partition]
    producers: Sequence[Producer]
    transactions: Sequence[Transaction]
    # partitions_after, producers_after: the same, read again after the coordinators answered, for every partition that
    # had an open transaction or an LSO below its high watermark
    partitions_after: Sequence[Partition]
    producers_after: Sequence[Producer]
    coverage: Coverage  # whether the coordinators' responses are complete
    selection: Selection = EVERYTHING  # a partition outside of it is not missing
    # why partitions that coordinators have open are not among `partitions`, as an error; null for one that the metadata
    # shows not to exist, so that nothing can be open there
    absent: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    observed_at: dt.datetime  # when the observation ended, by this machine's clock; from files, the newest time in them
    # the brokers' time, read before the coordinators answered; from files, the newest time that a broker wrote
    brokers_time: BrokersTime = UNKNOWN_TIME
    monotonic: MonotonicSpan | None = None  # null if it was not made by this process: from files, or a recording
    # of open transactions, as far as they were read
    first_batches: Sequence[FirstBatch] = ()
    topic_ids: Mapping[str, str | None] = field(default_factory=dict)  # of topics that were read again, as far as known
    # whether it was read from log directories. Then the rows after are those before, but for what began while the files
    # were copied; `doubts` states what that leaves unproven, and the state of an id is proven up to `as_of` only.
    from_files: bool = False
    # for files: the time up to which partitions are proven to be complete, those of ``__transaction_state`` above all.
    # That of another one counts for what is open there: the caller asserts that its files are of one moment.
    as_of: Mapping[TopicPartition, AsOf] = field(default_factory=dict)
    # what is missing to prove that an open transaction has no owner, one sentence each, by (topic, partition, producer
    # id)
    doubts: Mapping[tuple[str, int, int], Sequence[str]] = field(default_factory=dict)
    # remarks on a partition for its evidence, one sentence each
    notes: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)

    @property
    def unseen(self) -> Mapping[TopicPartition, str]:
        """Partitions of the selection that coordinators have open and that are not among `partitions`, and why."""
        opened = {tp for each in self.transactions if each.state in OPEN_STATES for tp in each.topic_partitions or ()}
        seen = {each.tp for each in self.partitions} if opened else set()
        why = ((tp, self.absent.get(tp, NOT_OBSERVED)) for tp in sorted(opened - seen) if tp in self.selection)
        return {tp: error for tp, error in why if error is not None}

    def on(self, topic_partitions: Container[TopicPartition]) -> Observation:
        """The observation of some partitions only, with all answers of coordinators."""

        def selected(answers: Iterable[OfPartition]) -> list[OfPartition]:
            return [each for each in answers if (each.topic, each.partition) in topic_partitions]

        return replace(
            self,
            selection=replace(self.selection, partitions=topic_partitions),
            partitions=selected(self.partitions),
            producers=selected(self.producers),
            partitions_after=selected(self.partitions_after),
            producers_after=selected(self.producers_after),
        )


def brokers_time_of(observations: Sequence[Observation]) -> BrokersTime:
    """The brokers' time of the last observation; unknown if a transaction began between two of them, by its coordinator
    before the first one: its clock is so far behind that the age of none of its transactions is known.
    """
    for earlier, later in pairwise(observations):
        clock = earlier.brokers_time
        if clock.time is None or not clock.is_current or earlier.coverage.gaps:
            continue
        known = {(each.transactional_id, each.start_time) for each in earlier.transactions}
        for each in later.transactions:
            start = each.start_time
            is_new = each.state in OPEN_STATES and (each.transactional_id, start) not in known
            if start is not None and is_new and start < clock.time - CLOCKS_DIFFER:
                return BrokersTime(
                    is_contradicted=True,
                    error=f"{each.transactional_id!r} was not open at {clock.text}, and is since "
                    f"{start.isoformat(timespec='milliseconds')} by its coordinator: the brokers' clocks are further "
                    f"apart than {duration(CLOCKS_DIFFER)}",
                )
    return observations[-1].brokers_time


NOT_OBSERVED = "NOT_OBSERVED: it was not among the partitions that were read"
MAX_TRANSACTION_TIMEOUT_MS = 900_000  # the brokers' default of transaction.max.timeout.ms


def between(first: Observation, last: Observation) -> dt.timedelta:
    """The time from one observation to another, each at its end: by a monotonic clock, or the recorder's."""
    if first.monotonic is None or last.monotonic is None:
        return last.observed_at - first.observed_at
    return dt.timedelta(seconds=last.monotonic.ended - first.monotonic.ended)


def observed_between(first: Observation, last: Observation) -> dt.timedelta:
    """At least the time between any answers of two observations of one process; 0 of others."""
    if first.monotonic is None or last.monotonic is None:
        return dt.timedelta(0)
    return max(dt.timedelta(seconds=last.monotonic.began - first.monotonic.ended), dt.timedelta(0))


def is_held(partition: Partition) -> bool:
    """Whether a partition's LSO is known to be below its high watermark."""
    lso, high_watermark = partition.last_stable_offset, partition.high_watermark
    return lso is not None and high_watermark is not None and lso < high_watermark
