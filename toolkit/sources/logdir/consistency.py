"""What files prove: doubts about a transaction that they show open and no coordinator owns, and the line of an answer.

A coordinator's log without the transaction proves nothing: it may be older than the transaction, or the partition's
log may be older than the transaction's end. Copies are rarely taken at one moment: files are copied one after the other
while brokers write, a follower may lag, and the cleaner swaps segments during the copy. `hanging` therefore requires
undamaged logs and one of two proofs:

The caller asserts (``consistent_copy``) that the brokers were stopped and that these replicas were in sync.

Or the content proves it, if an id owns the producer id. Kafka writes the record of AddPartitionsToTxn before the first
batch of a transaction on a partition, and the record of its completion after all its markers. The timestamp of the
latter is its append time; the state's own last update time is that of the decision, long before a late marker.
So no coordinator owns the transaction if
(1) the coordinator's log has a record newer than the transaction's first batch: had the partition been added, the log
would contain it; and
(2) the partition's log has a marker newer than the coordinator's last record of the id: had that record, or one before
it, ended the transaction on this partition, its marker would lie in between.
Times are the brokers' own (markers, records of the coordinator). They count below the high watermark only, where no
deposed leader's leftovers are. Neither log may lack offsets from there on: the cleaner removes records that newer ones
supersede, and an older copy of another segment may lack the newer ones.

A clean shutdown of a broker (``.kafka_cleanshutdown``) proves nothing. A log directory does not show how many brokers
there are, other brokers may have kept running, and a copy may mix files from before and after.

A producer id that the cluster never gave out, by its metadata log (KRaft), belongs to another cluster. Controllers give
producer ids to brokers in blocks, in ascending order, and log the first id that is still free. A partition with an id
from there on is a copy, and only the other cluster knows its owner. An id below proves nothing, since every cluster
begins with 0.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.observation import AsOf
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.metadata_records import MetadataState
from toolkit.formats.object_store import ObjectPath
from toolkit.schema import utc
from toolkit.schema.durations import CLOCKS_DIFFER, duration
from toolkit.schema.live import Producer, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.coordinator_state import CLOCKS_APART, StateTopic, TransactionLogPartition, read_state_topic
from toolkit.sources.logdir.log_dir_layout import METADATA_TOPIC, LogDirRoot, is_locked
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog
from toolkit.sources.logdir.replica_state import NEWEST, ReplicaState, metadata_records

CONSISTENT_COPY = (
    "a copy by kafka-txn copy, or your assertion that the brokers were stopped during the copy (--consistent-copy)"
)


def check_consistency(
    case: Case,
    state: ReplicaState,
    state_topic: StateTopic,
    proof: CopyProof,
    *,
    lowest: int,
    changes: Callable[[ReplicaLog], list[str]] | None,
) -> tuple[list[str], str | None]:
    """Doubts about a transaction that is open on its partition and that no coordinator owns; and what was proven.

    Returns: what is missing, a sentence each; and a note, a sentence or null.
    `case`: the transaction, which no coordinator owns as far as the files show.
    `state`: the replica of its partition, read with checksums from `lowest` on.
    `proof`: what the manifests of the files prove.
    `lowest`: start offset of the partition's lowest such transaction.
    `changes`: returns what has changed in a log since it was listed, if the caller asserts a consistent copy; else
        null.
    """
    start, producer_id, name = case.start or 0, case.producer_id, state.log.where
    doubts, note = [*_segment_doubts(case, state, start, lowest)], None
    doubts += [  # although no row shows an id as the owner, it may have this producer id for its next transaction
        f'the state of id "{event.transactional_id}", whose next producer id this is'
        for partition in state_topic.partitions.values()
        for event in partition.newest.values()
        if event.next_producer_id == producer_id and not event.tombstone
    ]
    if changes is not None:
        doubts += _assertion_doubts(state, state_topic, changes)
        note = "the caller asserts that the brokers were stopped when these files were copied (--consistent-copy)"
    elif (by_manifest := proof.doubt(state, _coordinators(case, state_topic), start)) is None:
        note = (
            f"the transaction was open before {STATE_TOPIC} was copied and after it, on a broker that led the "
            "partitions all the while, by the manifest of the copy"
        )
    elif not case.owner:
        doubts.append(
            f"{CONSISTENT_COPY}: no id has producer {producer_id}, which proves nothing if the files "
            f"were copied at different times{_by_manifest(proof, state, by_manifest)}"
        )
    elif doubt := _failed_step(case.owner, state, state_topic, start):
        doubts.append(
            f"proof that {name} and {STATE_TOPIC} were copied at one moment: {doubt}"
            f"{_by_manifest(proof, state, by_manifest)}; or {CONSISTENT_COPY}"
        )
    else:
        note = (
            f"{name} has markers newer than the coordinator's last record of the id, and the coordinator's log has "
            "records newer than the start of the transaction: for this transaction the copies are consistent"
        )
    return doubts, note


def _by_manifest(proof: CopyProof, state: ReplicaState, doubt: str) -> str:
    return f"; the manifest of the copy proves nothing, as {doubt}" if proof.has_manifest(state) else ""


def _coordinators(case: Case, state_topic: StateTopic) -> list[ReplicaState]:
    """The partitions of ``__transaction_state`` that may own a transaction: that of its id, or all."""
    number = None if case.owner is None else case.owner.txn_state_partition
    return [each.replica for key, each in state_topic.partitions.items() if number is None or key == number]


def _segment_doubts(case: Case, state: ReplicaState, start: int, lowest: int) -> Iterable[str]:
    """Doubts that the segments show the transaction open from its first batch to the end of the log."""
    window, name = state.window, state.log.where
    producer_id = case.producer_id
    if state.log.is_text:
        yield f"the segments of {name}: output of kafka-dump-log.sh shows neither damage nor truncation"
    damage = [each for each in window.damage if not each.is_torn] + window.wrong_checksums
    if reason := next((each.reason for each in damage if each.reaches(lowest)), None):
        yield f"an undamaged log from offset {start} on: {reason}"
    if window.missing:
        expected, found, *_ = window.missing[-1]
        yield f"offsets {expected} to {found - 1} of {name}, among which the transaction may begin or end"
    elif gap := window.contiguity.after(start):
        yield f"a log without missing offsets from offset {start} on: {gap[0] - 1} is followed by {gap[1]}"
    offsets, producers, _ = window.control_batches(start)
    for ended in offsets[producers == producer_id][:1]:
        yield f"files that agree: the producer state has the transaction open, but its marker is at offset {ended}"
    first = window.first_batches.get(start)
    if first is None:
        if not state.log.base_offsets or start >= (state.log_start_offset or 0):
            yield f"the batch at offset {start}, where the transaction begins"
    elif int(first["producer_id"][0]) != producer_id:
        yield f"files that agree: the batch at offset {start} is of producer {int(first['producer_id'][0])}"
    if window.snapshot is None and (len(state.log.base_offsets) > 1 or any(state.log.base_offsets)):
        yield f"an intact producer snapshot of {name}: a broker writes one with every segment"


def _assertion_doubts(
    state: ReplicaState, state_topic: StateTopic, changes: Callable[[ReplicaLog], list[str]]
) -> Iterable[str]:
    """What contradicts the caller's assertion: stopped brokers write nothing. What they lack is their `error`.

    A marker is older than the coordinator's record that all are written.
    """
    recorded = max(filter(None, (each.replica.written_at for each in state_topic.partitions.values())), default=None)
    marked = utc(int(state.window.control_batches(-1)[2].max(initial=-1)))
    if recorded is not None and marked is not None and marked > recorded + CLOCKS_DIFFER:
        yield (
            f"a copy of {STATE_TOPIC} as new as that of {state.log.where}, which has a marker of {at(marked)}: "
            f"the coordinators' newest record is of {at(recorded)}"
        )
    replicas = [state, *(partition.replica for partition in state_topic.partitions.values())]
    for root in {each.log.root for each in replicas} - {None}:
        if root is not None and (doubt := _lock_doubt(root)):
            yield f"stopped brokers: {doubt}"
    for each in replicas:
        name = each.log.where
        for change in changes(each.log):
            yield f"files that do not change: {name}: {change}"
    for each in replicas[1:]:
        cleaned = each.checkpoints.cleaned.get(each.log.where.tp, -1)
        if gap := each.window.contiguity.after(cleaned):
            yield f"{each.log.where} without missing offsets: {gap[0] - 1} is followed by {gap[1]}"


def _failed_step(owner: Transaction, state: ReplicaState, state_topic: StateTopic, start: int) -> str | None:
    """The first step of the proof that fails; null if the proof holds (see the module docstring)."""
    assert owner.txn_state_partition is not None
    assert owner.transactional_id is not None
    coordinator = state_topic.partitions[owner.txn_state_partition]
    event = coordinator.newest[owner.transactional_id]
    recorded, offset = event.timestamp, event.offset
    name = coordinator.replica.log.where
    if recorded is None or offset is None:
        return f"the last record of the id in {name} has no time"
    if state.high_watermark is None:
        return f"the high watermark of {state.log.where} is not known"
    if coordinator.replica.high_watermark is None or offset >= coordinator.replica.high_watermark:
        return f"the coordinator's last record of the id, at offset {offset} of {name}, may not be replicated"
    offsets, _, times = state.window.control_batches(start)
    times = times[offsets < state.high_watermark]
    first, last = (utc(int(times[i])) if len(times) else None for i in (0, -1))
    if first is None or last is None or last <= recorded + CLOCKS_APART:
        return (
            f"no marker after offset {start} is more than {duration(CLOCKS_APART)} newer than the coordinator's last "
            f"record of the id ({at(recorded)}), so this copy of the partition may be older"
        )
    if coordinator.as_of is None or coordinator.as_of <= first + CLOCKS_APART:
        return (
            f"no record of {name} is more than {duration(CLOCKS_APART)} newer than the marker of {at(first)}, before "
            f"which the transaction began, so this copy of {name} may be older"
        )
    if (gap := coordinator.replica.window.contiguity.after(offset)) is not None:
        return f"{name} lacks offsets after {gap[0] - 1}, among which may be a newer record of the id"
    if coordinator.clock_set_back > offset:
        return f"the clock of the coordinator went back at offset {coordinator.clock_set_back} of {name}"
    if np.any(np.diff(times) < -CLOCKS_APART / dt.timedelta(milliseconds=1)):
        return f"the clock of the leader of {state.log.where} went back among its markers"
    changed = [*state.log.changes(appending=True), *coordinator.replica.log.changes(appending=True)]
    return changed[0] if changed else None


def _lock_doubt(root: LogDirRoot) -> str | None:
    """Why a broker of this machine may run on a log directory; null if none does, or on systems other than Linux."""
    if isinstance(root.path, ObjectPath):
        return None
    path = root.path / ".lock"
    try:
        return f"one runs on {root.path} and holds its lock" if is_locked(path) else None
    except OSError as error:
        return f"whether one runs on {root.path} is unknown, as {path.name} cannot be read: {error.strerror}"


def foreign_id_doubts(first_free: int | None, producer_id: int) -> list[str]:
    """What is missing to prove that a transaction without an owner hangs, as `Observation.doubts`."""
    if first_free is None or producer_id < first_free:
        return []
    return [
        f"the cluster that gave out producer id {producer_id}: this one has not, by its metadata log (the next one is "
        f"{first_free}), so the partition is a copy, or the metadata log is older. Diagnose the cluster it came from"
    ]


ASSERTED = ", in files that are asserted to be consistent (--consistent-copy)"
END = 1 << 62  # an offset behind every log


def _contradictions(
    state_topic: StateTopic, producers: Iterable[Producer], as_of: Mapping[TopicPartition, AsOf]
) -> Iterator[tuple[TopicPartition, str]]:
    """Copies of ``__transaction_state`` that are older than `as_of` says: what is open in them has a marker before.

    The marker of a producer's earlier transaction is older than the record that its next one is open; a clock that is
    ahead makes an answer unknown at most.
    """
    opened = {
        event.producer_id: (TopicPartition(STATE_TOPIC, number), event)
        for number, partition in state_topic.partitions.items()
        for event in partition.newest.values()
        if event.state == "Ongoing"
    }
    for each in producers:
        if each.producer_id not in opened or each.current_txn_start_offset is not None:
            continue
        tp, event = opened[each.producer_id]
        known, ended, since = as_of.get(tp), each.last_timestamp, event.timestamp  # its last batch is a marker
        if known is None or ended is None or since is None or ended > known.time - CLOCKS_DIFFER:
            continue
        is_raised = (each.producer_epoch or 0) > (event.producer_epoch or 0)
        if is_raised or (ended > since and each.tp in (event.topic_partitions or ())):
            yield (
                tp,
                f'a copy of {tp} that is complete up to {at(known.time)}, {known.proof}: "{event.transactional_id}" is '
                f"Ongoing in this one since {at(since)}, and {each.tp} has the marker of {at(ended)} that ended it",
            )


class CopyProof:
    """What the order of a copy proves: up to when the coordinators' log is complete, and what was open all the while.

    A replica alone proves nothing, since it may lag behind its leader. So the manifest counts for partitions of which
    the copied broker has the only replica, or which it led from before the copy until after it, by its own metadata
    log, which grew meanwhile: a broker that the controllers have lost no longer gets their records.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._current: dict[LogDirRoot, Collection[TopicPartition]] = {}

    def as_of(
        self, state_topic: StateTopic, states: Mapping[TopicPartition, ReplicaState], producers: Iterable[Producer] = ()
    ) -> Mapping[TopicPartition, AsOf]:
        """The time up to which partitions are proven to be complete, as `Observation.as_of`.

        `states`, `producers`: the observed partitions, and the producers of those that could be read.
        """
        is_consistent = self._contents.assertions.consistent_copy
        newest = self._newest_time(state_topic) if is_consistent else None
        found = {}
        for tp, state in states.items():
            if is_consistent and state.written_at is not None:
                found[tp] = AsOf(state.written_at, f"the newest marker in {state.log.where}{ASSERTED}")
        for number, partition in state_topic.partitions.items():
            times = self._times(partition, newest)
            if latest := max(times, key=lambda each: each.time, default=None):
                found[TopicPartition(STATE_TOPIC, number)] = latest
        # One partition refutes what is asserted of them all.
        refuted = {found[tp]: text for tp, text in _contradictions(state_topic, producers, found)}
        return {tp: replace(each, contradiction=refuted.get(each)) for tp, each in found.items()}

    def _times(self, partition: TransactionLogPartition, newest: dt.datetime | None) -> Iterator[AsOf]:
        log, copies, asserted = partition.replica.log, self._contents.copies, self._contents.assertions
        if partition.as_of is not None:
            yield AsOf(partition.as_of, f"the newest record of {log.where}")
        if newest is not None:
            yield AsOf(newest, f"the newest record of the coordinators and controllers{ASSERTED}")
        if copies.doubt(log) is not None:
            if asserted.as_of is not None:
                yield AsOf(asserted.as_of, "the asserted time of the copy (as_of)")
        elif (moment := copies.moment(log)) and (asserted.consistent_copy or self._is_current(partition.replica)):
            yield AsOf(moment, "the manifest of the copy")

    def has_manifest(self, state: ReplicaState) -> bool:
        """Whether a manifest is beside the files of a replica."""
        return self._contents.copies.manifest(state.log.root) is not None

    def doubt(self, state: ReplicaState, coordinators: Collection[ReplicaState], start: int) -> str | None:
        """Why the manifest does not prove that a transaction was open when the coordinators' log was read.

        `coordinators`: those partitions of ``__transaction_state`` that may own it.
        """
        copies, log = self._contents.copies, state.log
        for each in (state, *coordinators):
            if doubt := copies.doubt(each.log):
                return doubt
            if each.log.root != log.root:
                return f"{each.log.where} was copied from another log directory"
            if not self._is_current(each):
                return f"the metadata log does not show that the broker led {each.log.where} during the copy"
        if start not in state.window.first_batches:
            return f"the batch at offset {start} was not copied"
        if not self.began_before(state, start):
            return f"the transaction at offset {start} began while the coordinators' log was copied"
        return None

    def began_before(self, state: ReplicaState, start: int) -> bool:
        """Whether a transaction began before the coordinators' log was copied; true also if nothing shows it."""
        log, first = state.log, state.window.first_batches.get(start)
        if first is None or not isinstance(log, FolderLog) or self._contents.copies.doubt(log):
            return True
        number = bisect_right(log.base_offsets, int(first["base_offset"][0])) - 1
        segment = self._contents.copies.files(log).get(log.segments[number].path.name)
        # What is in remote storage only was there before the broker's files were copied.
        return segment is None or int(first["position"][0] + first["size"][0]) <= segment.first_size

    def _is_current(self, state: ReplicaState) -> bool:
        """Whether a replica had all that its partition had, while it was copied."""
        where, root = state.log.where, state.log.root
        if root is None or where.topic is None or where.partition is None:
            return False
        if root not in self._current:
            self._current[root] = frozenset(self._current_partitions(root))
        return where.tp in self._current[root]

    def _current_partitions(self, root: LogDirRoot) -> Iterator[TopicPartition]:
        log = next((each for each in self._contents.metadata_logs if each.root == root), None)
        if log is None or self._contents.copies.doubt(log) is not None:
            return
        first_sizes = {name: file.first_size for name, file in self._contents.copies.files(log).items()}
        state, changed, has_grown = MetadataState(), set(), False
        for record in metadata_records(log, state, since=NEWEST):
            if record.error and not record.error.startswith("TORN_TAIL"):
                return
            name = (record.file or "").rpartition("/")[2]
            if name not in first_sizes or (record.position or 0) >= first_sizes[name]:
                has_grown = True
                changed.add((record.topic_id, record.partition))
        for key, partition in state.partitions.items():
            topic, is_led = state.topics.get(key[0]), has_grown and partition.leader == root.broker_id
            is_only = partition.replicas == (root.broker_id,)
            if topic is not None and key not in changed and (is_led or is_only):
                yield TopicPartition(topic, key[1])

    def _newest_time(self, state_topic: StateTopic) -> dt.datetime | None:
        """The newest time that a broker set in the coordinators' logs and in their brokers' metadata logs."""
        brokers = {partition.replica.log.where.broker_id for partition in state_topic.partitions.values()}
        times = [partition.replica.written_at for partition in state_topic.partitions.values()]
        times += [end_time(log) for log in self._contents.metadata_logs if log.where.broker_id in brokers]
        return max((time for time in times if time is not None), default=None)


def end_time(log: FolderLog) -> dt.datetime | None:
    """The time of the last batch of a metadata log; only its end is read."""
    last = None
    for number in range(len(log.base_offsets), 0, -1):
        start = END if number == len(log.base_offsets) else log.base_offsets[number] - 1
        for part in log.parts_near(start, crc=True):
            intact = part.headers[part.headers["crc_ok"] != 0]  # a damaged time may be any
            last = int(intact["max_timestamp"][-1]) if len(intact) else last
        if last is not None:
            break
    return utc(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesProof:
    """What log directories prove as they are, what they do not, and what to do about that."""

    proven: Sequence[str]  # what is proven, a clause each
    missing: Sequence[str]  # what is not, and what to do about it, a clause each

    @property
    def line(self) -> str:
        """Both in one line."""
        parts = (("Proven", self.proven), ("Not proven", self.missing))
        return " ".join(f"{name}: {'; '.join(clauses)}." for name, clauses in parts if clauses)


def files_proof(contents: Contents) -> FilesProof:
    """What files prove; it reads ``__transaction_state`` and manifests."""
    asserted = contents.assertions
    state_topic = read_state_topic(contents)
    newest = max((each.as_of for each in state_topic.partitions.values() if each.as_of is not None), default=None)
    moments, doubts = _copies(contents)
    proven, missing = [], []
    if not state_topic.partitions and contents.metadata.is_without(STATE_TOPIC):
        proven.append(f"by its metadata log the cluster has no {STATE_TOPIC}, so no coordinator has a transaction")
    elif state_topic.gaps:
        more = f" and {len(state_topic.gaps) - 1} more" if len(state_topic.gaps) > 1 else ""
        missing.append(f"{state_topic.gaps[0]}{more}: copy what is missing")
    else:
        proven.append(f"{STATE_TOPIC} is complete{_span(state_topic, newest)}")
    if moments and not doubts:
        proven.append(_copied(contents, moments))
    elif asserted.as_of is not None:
        proven.append(f"copied at {at(asserted.as_of)}, as asserted")
    elif newest is not None and not asserted.consistent_copy:
        missing.append(f"anything after {at(newest)}, so no age counts beyond it: say --as-of TIME of the copy")
    if asserted.consistent_copy:
        proven.append("the files are of one moment, as asserted")
    elif doubts:
        has_manifest = any(contents.copies.manifest(log.root) is not None for log in contents.logs)
        what = f" ({doubts[0]})" if has_manifest else ": copy with kafka-txn copy"
        missing.append(f"that the files are of one moment{what}")
    return FilesProof(proven=proven, missing=missing)


def _copies(contents: Contents) -> tuple[list[dt.datetime], list[str]]:
    """When the logs were copied, and why a manifest does not say it."""
    moments, doubts = set(), []
    for log in contents.logs:
        manifest, doubt = contents.copies.manifest(log.root), contents.copies.doubt(log)
        if doubt is not None and log.where.topic != METADATA_TOPIC:
            doubts.append(doubt)
        if manifest is not None and manifest.moment is not None:
            moments.add(manifest.moment)
    return sorted(moments), doubts


def _copied(contents: Contents, moments: Sequence[dt.datetime]) -> str:
    manifests = [contents.copies.manifest(root) for root in contents.layout.roots]
    changed = {folder for manifest in manifests if manifest is not None for folder in manifest.changed}
    if len(moments) > 1:
        return f"copied from {at(moments[0])} to {at(moments[-1])}, each log directory by itself"
    if not changed:
        return f"a copy of one moment, {at(moments[0])}"
    count = f"{len(changed)} partition{'s' if len(changed) > 1 else ''}"
    return f"what was open at {at(moments[0])}, although {count} changed during the copy"


def _span(state_topic: StateTopic, newest: dt.datetime | None) -> str:
    batch_times = [each.replica.window.batch_times for each in state_topic.partitions.values()]
    times = [utc(int(of_batches[0, 1])) for of_batches in batch_times if len(of_batches)]
    first = min((time for time in times if time is not None), default=None)
    if first is None:
        return ", without a record"
    partitions = f"({len(state_topic.partitions)} partitions)"
    if newest is None:
        return f" from {at(first)} {partitions}, to a time that is unknown without its high watermark"
    return f" from {at(first)} to {at(newest)} {partitions}"
