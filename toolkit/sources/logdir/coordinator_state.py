"""``__transaction_state`` and ``__consumer_offsets`` in files: ids, groups, their partitions, committed offsets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from toolkit.analysis.diagnosis.observation import AsOf
from toolkit.analysis.transaction_history import newest, unread_histories
from toolkit.errors import DecodeError, NotFound
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC, USUAL_COUNT, coordinator_partition
from toolkit.schema import utc
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Coordinator, Transaction
from toolkit.schema.log import LogTransaction, OffsetsLogRecord, PastTransaction, TransactionLogRecord
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.replica_log import NO_OFFSETS
from toolkit.sources.logdir.replica_state import ReadLimit, ReplicaState, producers_of
from toolkit.sources.offset_queries import DELETED, NO_TRANSACTION, CommittedOffset

if TYPE_CHECKING:
    from toolkit.sources.logdir.log_dir import LogDir


CLOCKS_APART = dt.timedelta(seconds=60)  # assumed maximum difference between the clocks of two brokers


@dataclass(slots=True, kw_only=True)
class TransactionLogPartition:
    """One partition of ``__transaction_state``."""

    replica: ReplicaState  # the replica that was read
    newest: dict[str, TransactionLogRecord] = field(default_factory=dict)  # newest record of each transactional id
    # time of the newest record below the high watermark, by the coordinator's clock: the partition is complete at least
    # up to then. Null if there is no such record or no high watermark
    as_of: dt.datetime | None = None
    # offset of the last record before which the clock went back by more than `CLOCKS_APART`; -1 for none
    clock_set_back: int = -1
    errors: list[str] = field(default_factory=list)  # read errors


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopic:
    """The partitions of ``__transaction_state``."""

    partitions: Mapping[int, TransactionLogPartition]  # by number
    count: int  # expected number of partitions
    # whether the caller or the metadata log has `count`, or all partitions exist and every id is where its hash puts it
    is_counted: bool
    gaps: Sequence[str]  # what is missing, a phrase each; while there are any, an id without a record proves nothing

    @property
    def all_ids(self) -> Sequence[str]:
        """Every transactional id; none where a partition is missing or incomplete."""
        return [] if self.gaps else [name for partition in self.partitions.values() for name in partition.newest]

    def transactions(self, as_of: Mapping[TopicPartition, AsOf], *, observed_at: dt.datetime) -> list[Transaction]:
        """The newest state of each id; its `observed_at` is the time up to which its partition is complete.

        `as_of`: that time, by partition. `observed_at`: for ids without any such time.
        """
        found: list[Transaction] = []
        for number, partition in self.partitions.items():
            known = as_of.get(TopicPartition(STATE_TOPIC, number))
            for each in newest(partition.newest.values(), observed_at=observed_at):
                event = partition.newest[each.transactional_id or ""]
                time = event.timestamp if known is None else known.time
                found.append(replace(each, observed_at=time or observed_at))
        return found


_READ = WeakKeyDictionary[Contents, StateTopic]()


def read_state_topic(contents: Contents) -> StateTopic:
    """Every partition of ``__transaction_state`` among the files, read once.

    It has as many as the caller asserts; else 50, or as many as the metadata log says.
    """
    if contents in _READ:
        return _READ[contents]
    count = contents.assertions.txn_state_partitions
    found = dict(contents.by_partition(contents.of_topic(STATE_TOPIC), limit=ReadLimit.RECORDS))
    read = {tp.partition: _read(replicas[0]) for tp, replicas in sorted(found.items())}
    expected = count if count is not None else max([USUAL_COUNT, *(number + 1 for number in read)])
    gaps = [*_gaps(read, expected)]
    if count is None and gaps:
        count = contents.metadata.partition_count(STATE_TOPIC)
        if count is not None:
            expected, gaps = count, [*_gaps(read, count)]
    is_counted = count is not None or not gaps
    for number, partition in read.items():
        gaps += [f"a complete {STATE_TOPIC}-{number}: {error}" for error in partition.errors[:1]]
    topic_ids = {partition.replica.topic_id for partition in read.values()} - {None}
    if len(topic_ids) > 1:
        gaps.append(f"a single {STATE_TOPIC}: its partitions have {len(topic_ids)} topic ids")
    _READ[contents] = StateTopic(partitions=read, count=expected, is_counted=is_counted, gaps=gaps)
    return _READ[contents]


def _read(state: ReplicaState) -> TransactionLogPartition:
    found = TransactionLogPartition(replica=state, errors=[state.error] if state.error else [])
    for event in (*state.window.records.errors, *state.window.records.newest()):
        if not event.error:
            found.newest[event.transactional_id or ""] = event
        elif not event.error.startswith("TORN_TAIL"):  # the replica's state has it
            found.errors.append(event.error)
    offsets, times = state.window.batch_times.T
    if len(times):
        latest = np.maximum.accumulate(times)
        back = np.flatnonzero(times[1:] < latest[:-1] - CLOCKS_APART / dt.timedelta(milliseconds=1))
        found.clock_set_back = int(offsets[back[-1] + 1]) if back.size else -1
    replicated = times[offsets < (state.high_watermark or 0)]
    found.as_of = utc(int(replicated[-1])) if len(replicated) else None
    return found


def _gaps(partitions: Mapping[int, TransactionLogPartition], expected: int) -> Iterator[str]:
    """What contradicts the expected number of partitions: missing ones, more, or ids that do not hash to theirs."""
    if (absent := _absent(partitions, expected)) is not None:
        yield absent
    else:
        ids = ((number, name) for number, partition in partitions.items() for name in partition.newest)
        for number, name in ids:
            if (hashed := coordinator_partition(name, expected)) == number:
                continue
            yield (
                f'the number of partitions of {STATE_TOPIC}: id "{name}" is in partition {number}, but with '
                f"{expected} partitions it would be in {hashed}: it was expanded since, or {expected} is wrong"
            )
            return


def _absent(present: Collection[int], expected: int) -> str | None:
    """Which of the expected partitions are not present, or that there are more; null if neither."""
    if not present:
        return f"the coordinators' state: no partition of {STATE_TOPIC} is among the files"
    if (highest := max(present)) >= expected:
        return (
            f"the number of partitions of {STATE_TOPIC}: partition {highest} exists, so there are more than {expected} "
            "(set --txn-state-partitions)"
        )
    if not (missing := sorted(set(range(expected)).difference(present))):
        return None
    numbers = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return (
        f"a complete {STATE_TOPIC}: {len(present)} of its {expected} partitions are among the files, not "
        f"{numbers} (if transaction.state.log.num.partitions is not {expected}, set --txn-state-partitions)"
    )


def absent_partitions(contents: Contents) -> str | None:
    """Why other ids than those of the files may exist, as an error; null if all partitions are among them."""
    present = {number for log in contents.of_topic(STATE_TOPIC) if (number := log.where.partition) is not None}
    count, metadata = contents.assertions.txn_state_partitions, contents.metadata
    why = _absent(present, max([USUAL_COUNT, *(number + 1 for number in present)]) if count is None else count)
    if why is not None and count is None:
        if metadata.is_without(STATE_TOPIC):
            return None
        known = metadata.partition_count(STATE_TOPIC)
        why = why if known is None else _absent(present, known)
    return None if why is None else f"UNKNOWN_TOPIC_OR_PARTITION: {why}"


NOT_AMONG_FILES = f"UNKNOWN_TOPIC_OR_PARTITION: its partition {STATE_TOPIC}-{{}} is not among the files"
NO_COUNT = "UNKNOWN_PARTITIONS: the number of partitions of {} is unknown, so the partition cannot be computed"


def transactions_of(state_topic: StateTopic) -> list[Transaction]:
    """The newest state of each id, and one without id for every partition that could not be read completely."""
    found: list[Transaction] = []
    for number, partition in state_topic.partitions.items():
        state = partition.replica
        found += newest(partition.newest.values(), observed_at=state.observed_at)
        for error in partition.errors[:1]:
            found.append(
                Transaction(
                    txn_state_partition=number,
                    source=STATE_TOPIC,
                    broker_id=state.log.where.broker_id,
                    observed_at=state.observed_at,
                    error=error,
                )
            )
    return found


def named_transactions(
    state_topic: StateTopic, transactional_ids: Sequence[str], *, taken_at: dt.datetime
) -> Iterator[Transaction]:
    """The transactions of the requested ids; an id without record has one with `error`.

    What could not be read of their partitions has errors, too: newer records of these ids may be there.
    """
    transactions = transactions_of(state_topic)
    found = {each.transactional_id: each for each in transactions if each.transactional_id}
    errors = [each for each in transactions if each.error and not each.transactional_id]
    partitions = {found[name].txn_state_partition for name in transactional_ids if name in found}
    yield from (each for each in errors if each.txn_state_partition in partitions)
    for name in transactional_ids:
        if name in found:
            yield found[name]
            continue
        observed = max((each.observed_at for each in transactions), default=taken_at)
        why = "no record of it is in the readable files" if errors else "no record of it is in these files"
        error = f"TRANSACTIONAL_ID_NOT_FOUND: {why}"
        number = coordinator_partition(name, state_topic.count) if state_topic.is_counted else None
        if number not in state_topic.partitions:
            error = NOT_AMONG_FILES.format("N" if number is None else number)
        yield Transaction(transactional_id=name, source=STATE_TOPIC, observed_at=observed, error=error)


def read_coordinators(
    contents: Contents, transactional_ids: Sequence[str] | None, groups: Sequence[str] | None
) -> Iterator[Coordinator]:
    """The coordinators' partitions of ids and groups, by hash."""
    state_topic = read_state_topic(contents)
    known = [name for partition in state_topic.partitions.values() for name in partition.newest]
    names = known if transactional_ids is None else transactional_ids
    count = state_topic.count if state_topic.is_counted else None
    yield from _hashed(contents, "transaction", STATE_TOPIC, names, count)
    if groups is None or groups:
        records = _offset_records(contents)
        group_ids = {each.group_id: each.group_partition or 0 for each in records if each.group_id is not None}
        count = _count(contents, group_ids, contents.best(OFFSETS_TOPIC))
        yield from _hashed(contents, "group", OFFSETS_TOPIC, sorted(group_ids) if groups is None else groups, count)


def unread_histories_of(
    contents: Contents, transactional_ids: Sequence[str], records: Iterable[TransactionLogRecord]
) -> Iterator[PastTransaction]:
    """An error for each id whose partition is not among the files, or could not be read whole.

    `records`: those that were read for these ids, and what could not be read.
    """
    logs = contents.of_topic(STATE_TOPIC)
    partitions = {each.key or "": each.partition for each in read_coordinators(contents, transactional_ids, [])}
    present = {log.where.partition for log in logs if not log.error}
    unread = [*records]
    for log in logs:
        if log.where.partition not in present:
            unread += log.transaction_log()  # its error
    for number in {*partitions.values()} - {log.where.partition for log in logs}:
        absent = NOT_AMONG_FILES.format("N" if number is None else number)
        unread.append(TransactionLogRecord(txn_state_partition=number, error=absent))
    yield from unread_histories(partitions, unread)


def _hashed(
    contents: Contents, key_type: str, topic: str, keys: Iterable[str], count: int | None
) -> Iterator[Coordinator]:
    states = contents.best(topic)
    observed_at = max((state.observed_at for state in states.values()), default=contents.taken_at)
    for key in keys:
        yield Coordinator(
            key_type=key_type,
            key=key,
            topic=topic,
            partition=None if count is None else coordinator_partition(key, count),
            observed_at=observed_at,
            error=NO_COUNT.format(topic) if count is None else None,
        )


def _count(contents: Contents, group_ids: Mapping[str, int], present: Collection[int]) -> int | None:
    """Number of partitions of the topic: by the metadata log; else that of those present, or 50, if one fits every id.

    Where both fit, as for an id in the tenth of 50 partitions, the others may not have been copied.
    """
    if (known := contents.metadata.partition_count(OFFSETS_TOPIC)) is not None:
        return known
    counts = {max(present, default=-1) + 1, USUAL_COUNT} - {0}
    fits = [each for each in counts if all(coordinator_partition(key, each) == at for key, at in group_ids.items())]
    return fits[0] if group_ids and len(fits) == 1 else None


OPEN = "UNSTABLE_OFFSET_COMMIT: an open transaction has committed another offset"


def committed_in_files(files: LogDir, group: str) -> tuple[Mapping[TopicPartition, CommittedOffset], str | None]:
    """Every committed offset of a group; null with an error where an open transaction has a pending commit.

    And why some may be missing or older ones, as an error: what could not be read of its partition, or, of a group
    without any, of the topic.

    A transactional commit counts from its COMMIT marker on, unless it was deleted before. A pending one that was
    deleted, or whose transaction is not open by the producer state, has an error of its own.

    `files`: log directories with ``__consumer_offsets``.
    """
    read = [*_offset_records(files.contents())]
    commits = [each for each in read if each.group_id == group and each.kind == "offset_commit" and each.topic]
    own = {each.group_partition for each in commits}
    unread = next((each.error for each in read if each.error and (not own or each.group_partition in own)), None)
    transactional = {each.group_partition for each in commits if each.is_transactional} - {None}
    partitions = sorted(number for number in transactional if number is not None)
    states = files.contents().best(OFFSETS_TOPIC) if transactional else {}
    log_transactions: list[LogTransaction] = []
    if transactional:  # of the same replicas: one that lags has open what has ended
        rows = records_of(files.log_transactions(topics=OFFSETS_TOPIC, partitions=partitions), LogTransaction)
        brokers = {number: state.log.where.broker_id for number, state in states.items()}
        log_transactions = [each for each in rows if each.broker_id == brokers.get(each.partition or 0)]
    deleted = {_tp(record): record.offset or 0 for record in commits if record.tombstone}
    kept = [each for each in commits if not each.is_transactional or deleted.get(_tp(each), -1) < (each.offset or 0)]
    ordered = []  # with the offset from which on a record counts: its own or its COMMIT marker's
    for record in kept:
        txn = _log_transaction(record, log_transactions)
        committed_at = txn.marker_offset if txn is not None and txn.marker == "COMMIT" else None
        ordered.append((committed_at if record.is_transactional else record.offset, record))
    found: dict[TopicPartition, CommittedOffset] = {}
    for counts_from, record in sorted(ordered, key=lambda pair: pair[0] or 0):
        tp = _tp(record)
        if record.tombstone:
            found.pop(tp, None)
        elif counts_from is not None:
            found[tp] = CommittedOffset(record.committed_offset, None)
    owned = ((record, _log_transaction(record, log_transactions)) for record in commits)
    pending = {_tp(record): record for record, txn in owned if txn is not None and txn.outcome == "open"}
    opened = {
        (each.partition, each.producer_id)
        for number in partitions
        for each in producers_of(states[number])
        if each.current_txn_start_offset is not None or each.error
    }
    for tp, record in pending.items():
        if (record.group_partition, record.producer_id) not in opened:
            found[tp] = CommittedOffset(None, NO_TRANSACTION.format(record.group_partition))
        elif deleted.get(tp, -1) < (record.offset or 0):
            found[tp] = CommittedOffset(None, OPEN)
        elif tp not in found:
            found[tp] = CommittedOffset(None, DELETED.format(record.committed_offset))
    return found, unread


def groups_in_files(files: LogDir) -> tuple[list[str], list[str]]:
    """Groups with a committed or a pending offset in the files, sorted; and sentences about what could not be read.

    Raises NotFound if ``__consumer_offsets`` is not among them.
    """
    read = _all_offset_records(files)
    found = (each.group_id for each in read if each.kind == "offset_commit" and not each.tombstone)
    unread = dict.fromkeys(each.error for each in read if each.error)
    return sorted({group for group in found if group is not None}), [
        f"Groups and offsets may be missing: {error}" for error in unread
    ]


def committing_in_files(files: LogDir, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
    """Groups with a record about some partitions, sorted; a tombstone or an abort does not take a group out.

    Raises NotFound if ``__consumer_offsets`` is not among the files. Raises DecodeError if it could not be read whole.
    """
    found: dict[TopicPartition, set[str]] = {tp: set() for tp in partitions}
    for record in _all_offset_records(files):
        if record.error:
            raise DecodeError(f"{OFFSETS_TOPIC} could not be read: {record.error}", position=record.position or 0)
        if record.kind == "offset_commit" and record.topic is not None and _tp(record) in found:
            found[_tp(record)].add(record.group_id or "")
    return {tp: sorted(groups) for tp, groups in found.items()}


def _all_offset_records(files: LogDir) -> list[OffsetsLogRecord]:
    """As `_offset_records`. Raises NotFound if ``__consumer_offsets`` is not among the files, or only as text."""
    files.contents().named_logs([OFFSETS_TOPIC])  # it raises if there are none
    found = [*_offset_records(files.contents())]
    if any(record.error == NO_OFFSETS for record in found):
        raise NotFound(f"{OFFSETS_TOPIC} is among the files as text, which is not read for groups.",
                       do="Copy its segments.")  # fmt: skip
    return found


def _offset_records(contents: Contents) -> Iterator[OffsetsLogRecord]:
    """The records of ``__consumer_offsets``, of the best replica of each partition, and what could not be read.

    Also a partition that is not among the files, or that nothing shows how many there are.
    """
    best, group_ids = contents.best(OFFSETS_TOPIC), dict[str, int]()
    for number, state in best.items():
        for record in state.log.offsets_log():
            if record.group_id is not None:
                group_ids[record.group_id] = number
            if not (record.error or "").startswith("TORN_TAIL"):  # a broker may be writing it
                yield record
        if error := state.error or state.lost:
            yield OffsetsLogRecord(group_partition=number, broker_id=state.log.where.broker_id, error=error)
    count = _count(contents, group_ids, best)
    if count is None and best.keys() != {*range(USUAL_COUNT)}:
        yield OffsetsLogRecord(error=f"UNKNOWN_PARTITIONS: how many {OFFSETS_TOPIC} has is not known")
    for number in sorted({*range(count or 0)} - best.keys()):
        error = f"UNKNOWN_TOPIC_OR_PARTITION: {OFFSETS_TOPIC}-{number} is not among the files"
        yield OffsetsLogRecord(group_partition=number, error=error)


def _tp(commit: OffsetsLogRecord) -> TopicPartition:
    return TopicPartition(commit.topic or "", commit.partition or 0)


def _log_transaction(commit: OffsetsLogRecord, log_transactions: Sequence[LogTransaction]) -> LogTransaction | None:
    """The transaction that a record is part of; null for one outside transactions."""
    own = (commit.group_partition, commit.producer_id)
    for each in log_transactions if commit.is_transactional else ():
        first, last = each.first_offset, each.last_offset
        if (each.partition, each.producer_id) != own or first is None or last is None or commit.offset is None:
            continue
        if first <= commit.offset <= last:
            return each
    return None
