"""An observation of files, with doubts about their consistency; evidence of the logs for its findings; LSO holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate

import numpy as np

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import (
    MAX_OFFSETS,
    MOST_OFFSETS,
    Excerpt,
    ExcerptStart,
    have_ended,
    named_topics,
    plan_marker_search,
    search_from,
)
from toolkit.analysis.diagnosis.markers import MarkerSearch, OtherMarker, markers_found
from toolkit.analysis.diagnosis.observation import UNKNOWN_TIME, BrokersTime, Coverage, Observation
from toolkit.analysis.hold_findings import by_producer, held_findings, held_offsets, hold_table, lso_holds
from toolkit.analysis.log.log_transactions import LogArray
from toolkit.analysis.log.offset_status import intact
from toolkit.analysis.transaction_history import CoordinatorLog, transaction_history
from toolkit.analysis.transaction_owners import OPEN_STATES, owner_clauses
from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import Headers, concatenate
from toolkit.schema import utc
from toolkit.schema.live import Finding, Producer
from toolkit.schema.log import ClusterEvent, PastTransaction, TransactionLogRecord
from toolkit.schema.recorded import FirstBatch, LsoHold
from toolkit.schema.table import EVERYTHING, Error, Selection, TopicPartition
from toolkit.sources.diagnose import EvidenceSource
from toolkit.sources.logdir.consistency import CopyProof, check_consistency, end_time, foreign_id_doubts
from toolkit.sources.logdir.contents import COMPACTED, Contents, FileScope, topic_ids
from toolkit.sources.logdir.coordinator_state import CLOCKS_APART, StateTopic, read_state_topic
from toolkit.sources.logdir.log_dir_layout import METADATA_TOPIC
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog
from toolkit.sources.logdir.replica_state import (
    BACK,
    FAR_BACK,
    FORWARD,
    ReadLimit,
    ReplicaState,
    partition_of,
    producers_of,
)
from toolkit.sources.offset_queries import milliseconds

NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)
TORN_TAIL = "TORN_TAIL"  # how far the log reaches is a question of `consistency`


class FileObservation(EvidenceSource):
    """An observation, the replicas of each partition (the one with most of the log first), and the coordinators."""

    searches_in_doubt = False

    def __init__(
        self,
        contents: Contents,
        observation: Observation,
        replicas: Mapping[TopicPartition, Sequence[ReplicaState]],
        state_topic: StateTopic,
        scope: FileScope,
        clear_logs: Sequence[ReplicaLog] = (),
    ) -> None:
        self.contents = contents
        self.observation = observation
        self.replicas = replicas
        self.clear_logs = clear_logs  # those of `clear_partitions`, which were not read
        self.state_topic = state_topic
        self.scope = scope

    @property
    def cluster_id(self) -> str | None:
        return self.scope.cluster_id

    def observations(self) -> Sequence[Observation]:
        return [self.observation]

    def excerpts(self, starts: Sequence[ExcerptStart]) -> Mapping[TopicPartition, Excerpt]:
        read = [each for each in starts if each.tp in self.replicas]
        return {each.tp: _excerpt(self.replicas[each.tp][0], each.offset, each.producer_ids) for each in read}

    def coordinator_logs(self, cases: Sequence[Case]) -> Iterator[CoordinatorLog]:
        yield _coordinators(self.state_topic, cases)

    def cluster_events(self, since: dt.datetime) -> Sequence[ClusterEvent]:
        return sorted(self.contents.cluster_events(since=since), key=lambda each: each.timestamp or NEVER)

    def search_markers(self, cases: Sequence[Case]) -> MarkerSearch:
        clear = dict(self.contents.by_partition(self.clear_logs))
        producers = [each for replicas in clear.values() for each in producers_of(replicas[0]) if not each.error]
        return search_replica_markers(
            self.contents, {**self.replicas, **clear}, [*self.observation.producers, *producers], cases
        )

    def owners(self, ids: Collection[str], observations: Sequence[Observation]) -> Mapping[str, str | None]:
        return owner_clauses(self.observation.transactions, all_ids=self.state_topic.all_ids)


def observe_files(
    contents: Contents,
    logs: Sequence[ReplicaLog],
    *,
    selection: Selection = EVERYTHING,
    limit: ReadLimit = ReadLimit.OPEN,
) -> FileObservation:
    """Observe partitions and ``__transaction_state``.

    `logs`: replicas of the partitions to observe.
    `selection`: the partitions that they are meant to be.
    `limit`: how far back the partitions are read.
    """
    scope, clear = contents.scope(logs), clear_partitions(contents, logs)
    clear_logs = [log for log in logs if log.where.tp in clear]
    logs = [log for log in logs if log.where.tp not in clear]
    requested = {(log.where.topic, log.where.partition) for log in logs}
    with_end = {(log.where.topic, log.where.partition) for log in logs if not log.is_remote}
    logs = [log for log in logs if not log.is_remote or (log.where.topic, log.where.partition) not in with_end]
    others = [log for log in contents.of_topic(STATE_TOPIC) if log not in logs]
    found = contents.by_partition([*logs, *others], limit=limit)
    replicas = {tp: states for tp, states in found if tp in requested}
    state_topic = read_state_topic(contents)
    states = {tp: found[0] for tp, found in replicas.items()}
    proof = CopyProof(contents)
    producers = [each for state in states.values() for each in producers_of(state) if not each.error]
    as_of = proof.as_of(state_topic, states, (each for each in producers if states[each.tp].error is None))
    of_coordinators = [each.time for tp, each in as_of.items() if tp.topic == STATE_TOPIC]
    observed_at = max(of_coordinators or [state.observed_at for state in states.values()], default=contents.taken_at)
    partitions = [  # the replica takes the leader's role: the rules check that the same broker answered twice
        replace(partition_of(state), leader=state.log.where.broker_id, error=state.error) for state in states.values()
    ]
    transactions = state_topic.transactions(as_of, observed_at=observed_at)
    observation = Observation(
        partitions=partitions,
        producers=_begun_before(producers, states, proof),
        transactions=transactions,
        partitions_after=partitions,
        producers_after=producers,
        coverage=_coverage(scope, state_topic, selection),
        selection=selection,
        observed_at=observed_at,
        brokers_time=BrokersTime(time=observed_at, source="the newest time in the files") if states else UNKNOWN_TIME,
        first_batches=list(_first_batches(states)),
        from_files=True,
        as_of=as_of,
        notes={tp: list(_notes(found)) for tp, found in replicas.items()},
    )
    named: dict[TopicPartition, list[dt.datetime | None]] = {tp: [] for tp in observation.unseen}
    for each in transactions:
        for tp in each.topic_partitions or () if each.state in OPEN_STATES else ():
            if tp in named:
                named[tp].append(each.last_update_time)
    observation = replace(observation, absent=_absent(contents, named))
    observation = _with_doubts(contents, observation, replicas, state_topic, proof)
    return FileObservation(contents, observation, replicas, state_topic, scope, clear_logs)


def clear_partitions(contents: Contents, logs: Sequence[ReplicaLog]) -> Collection[TopicPartition]:
    """The partitions of logs that have no finding, so that these need not be read: `Contents.is_settled`.

    None that a coordinator has open; and none if there are findings, and only all logs together show their time.
    """
    if not contents.settled:
        return ()
    state_topic, of_data = read_state_topic(contents), [log for log in logs if log.where.topic != STATE_TOPIC]
    unsettled = {log.where.tp for log in of_data if not contents.is_settled(log)}
    if not (as_of := CopyProof(contents).as_of(state_topic, {})):
        has_errors = any(each.errors for each in state_topic.partitions.values())
        if unsettled or has_errors or contents.scope(logs).unread:
            return ()
    opened = (each for each in state_topic.transactions(as_of, observed_at=NEVER) if each.state in OPEN_STATES)
    named = {tp for each in opened for tp in each.topic_partitions or ()}
    return {log.where.tp for log in of_data} - unsettled - named


def _absent(
    contents: Contents, named: Mapping[TopicPartition, Sequence[dt.datetime | None]]
) -> dict[TopicPartition, str | None]:
    """Why partitions that coordinators name are not among the files; null for one of a deleted topic.

    A topic is deleted if the metadata log without it is newer than what coordinators wrote.
    `named`: the times of the coordinators' records, by partition.
    """
    if not named:
        return {}
    end = contents.metadata
    until = None if end.log is None or end.error else end_time(end.log)
    found = dict[TopicPartition, str | None]()
    for tp, times in named.items():
        partition = None if until is None else end.state.partition(*tp)
        if partition is None and until and all(time is not None and time < until - CLOCKS_APART for time in times):
            found[tp] = None
            continue
        replicas = None if partition is None else partition.replicas
        where = f"; by the metadata log its replicas are on {_brokers(replicas)}" if replicas else ""
        found[tp] = f"UNKNOWN_TOPIC_OR_PARTITION: it is not among the files{where}"
    return found


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _begun_before(
    producers: Sequence[Producer], states: Mapping[TopicPartition, ReplicaState], proof: CopyProof
) -> list[Producer]:
    """The producers without transactions that began while the files were copied: the coordinators' log is older."""
    return [
        each
        for each in producers
        if each.current_txn_start_offset is None or proof.began_before(states[each.tp], each.current_txn_start_offset)
    ]


def _with_doubts(
    contents: Contents,
    observation: Observation,
    replicas: Mapping[TopicPartition, Sequence[ReplicaState]],
    state_topic: StateTopic,
    proof: CopyProof,
) -> Observation:
    """The observation with doubts about transactions that would otherwise be hanging, and with what was proven."""
    is_consistent = contents.assertions.consistent_copy
    doubts: dict[tuple[str, int, int], Sequence[str]] = {}
    notes = {tp: list(found) for tp, found in observation.notes.items()}

    @cache  # every transaction needs the changes of the coordinators' logs
    def changes(log: ReplicaLog) -> list[str]:
        return log.changes(appending=False)

    for tp, opened in Diagnosis.of([observation]).opened.items():
        disowned = [each for each in opened if each.start is not None and each.is_disowned]
        if not disowned:
            continue
        lowest = min(start for case in disowned if (start := case.start) is not None)
        for case in disowned:
            missing, note = check_consistency(
                case, replicas[tp][0], state_topic, proof, lowest=lowest, changes=changes if is_consistent else None
            )
            if len(ids := topic_ids(replicas[tp])) > 1:
                missing.append(
                    f"replicas of one topic: {tp[0]} was deleted and created again; the replicas have {len(ids)} topic "
                    "ids"
                )
            if not is_consistent:
                missing += contents.metadata.stale_replica_doubts(tp, replicas[tp][0].log.where.broker_id)
            count = contents.metadata.partition_count(STATE_TOPIC)
            if count not in {None, state_topic.count}:
                missing.append(f"a complete {STATE_TOPIC}: by the metadata log it has {count} partitions")
            foreign = foreign_id_doubts(contents.first_free_producer_id, case.producer_id)
            doubts[*tp, case.producer_id] = [*missing, *foreign]
            if note is not None and note not in notes.setdefault(tp, []):
                notes[tp].append(note)
    return replace(observation, doubts=doubts, notes=notes)


def _notes(replicas: Sequence[ReplicaState]) -> Iterator[str]:
    state = replicas[0]
    if len(replicas) > 1:
        where = "" if state.log.where.broker_id is None else f" of broker {state.log.where.broker_id}"
        yield (
            f"{len(replicas)} replicas: the one{where} has most of the log and was read: leader epoch "
            f"{state.leader_epoch}, log end offset {state.log_end_offset} ({state.log.name})"
        )
    yield (
        "the broker shut down cleanly and has not started since (.kafka_cleanshutdown)"
        if replicas[0].checkpoints.clean_shutdown
        else "no .kafka_cleanshutdown: the broker is running, crashed, or the file was not copied"
    )
    yield from state.snapshot_errors


def _coverage(scope: FileScope, state_topic: StateTopic, selection: Selection) -> Coverage:
    gaps = [*state_topic.gaps, *scope.cluster_gaps]
    if any(partition.replica.log.is_text for partition in state_topic.partitions.values()):
        gaps.append(f"the segments of {STATE_TOPIC}: output of kafka-dump-log.sh shows neither damage nor truncation")
    ids = sum(len(partition.newest) for partition in state_topic.partitions.values())
    proofs = [] if gaps else [f"{STATE_TOPIC} was read completely: {state_topic.count} partitions, {ids} ids"]
    unread = scope.unread if selection.partitions is None else ()
    return Coverage(brokers=sorted(scope.brokers), proofs=proofs, gaps=gaps, topic_gaps=unread)


def _first_batches(states: Mapping[TopicPartition, ReplicaState]) -> Iterator[FirstBatch]:
    """The first batch of each open transaction, if it still exists."""
    for tp, state in states.items():
        for start, (header,) in state.window.first_batches.items():
            appended = bool(header["attributes"] & LOG_APPEND_TIME)
            # Log append time is in max_timestamp; the cleaner overwrites base_timestamp with the delete horizon.
            base = None if header["attributes"] & DELETE_HORIZON else int(header["base_timestamp"])
            yield FirstBatch(
                topic=tp.topic,
                partition=tp.partition,
                start_offset=start,
                base_offset=int(header["base_offset"]),
                last_offset=int(header["last_offset"]),
                producer_id=int(header["producer_id"]),
                producer_epoch=int(header["producer_epoch"]),
                base_timestamp=utc(int(header["max_timestamp"]) if appended else base),
                log_append_time=appended,
            )


def _excerpt(state: ReplicaState, offset: int, producer_ids: Collection[int]) -> Excerpt:
    """From a marker of the producers before an offset up to the high watermark, within the size limits."""
    log_start, end = state.log_start_offset or 0, state.high_watermark
    stop = (state.log_end_offset or 0) if end is None else end
    after, errors = _headers(state, offset, stop, most=FORWARD)
    if len(after) and after["last_offset"][-1] + 1 < stop:
        stop = int(after["last_offset"][-1]) + 1
    before, start = after[:0], offset
    for distance in (BACK, FAR_BACK):
        if start > log_start and not have_ended(before, producer_ids):
            start = max(log_start, offset - distance)
            before, earlier_errors = _headers(state, start, offset)
            errors = errors or earlier_errors
    before = before[before["last_offset"] < (after["base_offset"][0] if len(after) else offset)]
    where = state.log.where
    open_range = None  # records and bytes from the LSO, or the log start if that is higher, to the high watermark
    if state.last_stable_offset is not None and end is not None:
        open_range = state.window.counted(max(state.last_stable_offset, log_start), end)
    return Excerpt(
        headers=concatenate((before, after)) if len(before) else after,
        start=start,
        stop=stop,
        log_start_offset=state.log_start_offset,
        observed_at=state.observed_at,
        held=open_range,
        is_compacted=where.topic in COMPACTED or where.tp in state.checkpoints.cleaned or None,  # null: unknown
        groups=_groups(state, after, producer_ids) if where.topic == OFFSETS_TOPIC else {},
        source="log",
        broker_id=where.broker_id,
        error=errors[0] if errors else None,
        brokers_write=where.topic == OFFSETS_TOPIC,
    )


def _headers(state: ReplicaState, start: int, stop: int, *, most: int | None = None) -> tuple[Headers, list[str]]:
    """Batches with an offset in ``start <= offset < stop``, and read errors; from the window if it has them."""
    window = state.window
    if (batches := window.neighbourhood.between(start, stop, most=most)) is not None:
        unread = [each for each in (*window.damage, *window.wrong_checksums) if each.reaches(start)]
        return batches[batches["crc_ok"] != 0], [each.reason for each in unread if not each.is_torn]
    parts, errors, count = [], [], 0
    for part in map(intact, state.log.parts(start=start, stop=stop, crc=True)):
        parts.append(part.headers)
        errors += [damage.reason for damage in part.damage if not damage.is_torn]
        count += len(part.headers)
        if most is not None and count >= most:
            break
    return concatenate(parts)[:most], errors


def _groups(state: ReplicaState, headers: Headers, producer_ids: Collection[int]) -> Mapping[int, Sequence[str]]:
    """Groups with pending offset commits, by producer id."""
    found: dict[int, set[str]] = {}
    data = np.isin(headers["producer_id"], list(producer_ids)) & (headers["attributes"] & CONTROL == 0)
    for record in state.log.offsets_log_in(headers[data]):
        if record.producer_id is not None and record.group_id is not None:
            found.setdefault(record.producer_id, set()).add(record.group_id)
    return {producer_id: sorted(groups) for producer_id, groups in found.items()}


def _coordinators(state_topic: StateTopic, cases: Sequence[Case]) -> CoordinatorLog:
    """Records of the transactions' owners; of former owners, if no id owns a transaction."""
    owners = {each.transactional_id for each in cases if each.transactional_id}
    records: list[TransactionLogRecord] = []
    # Another id may have had the producer id of an owner: then it was given out twice.
    producer_ids = {each.producer_id for each in cases}
    for partition in state_topic.partitions.values():
        ids = (owners & partition.newest.keys()) | partition.replica.window.records.ids_of(producer_ids)
        if ids:
            records += partition.replica.window.records.records(ids)
    errors = sorted({Error.of(each.error).code for each in records if each.error} - {TORN_TAIL})
    unread = [f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else []
    return CoordinatorLog(records=[each for each in records if not each.error], unread=[*state_topic.gaps, *unread])


MAX_SEARCHED = 1 << 30  # bytes that are read to find the producers on further partitions

Replicas = Mapping[TopicPartition, Sequence[ReplicaState]]


def search_replica_markers(
    contents: Contents, replicas: Replicas, producers: Sequence[Producer], cases: Sequence[Case]
) -> MarkerSearch:
    """Markers of the producers on the partitions that the files show them on.

    `contents`: the files; of other partitions, the replica with most of the log is read.
    `replicas`, `producers`: of the partitions that were read already.
    `cases`: open transactions that no coordinator will end.
    """
    complete = contents.complete()
    if gaps := complete.scope(complete.logs).cluster_gaps:
        return MarkerSearch(unread={each.producer_id: gaps[0] for each in cases})
    read, too_large = _further_logs(complete, replicas, named_topics(cases))
    further = dict(complete.by_partition(read))
    states = {tp: found[0] for tp, found in (*further.items(), *replicas.items())}
    elsewhere = [each for tp in further for each in producers_of(states[tp]) if not each.error]
    named: dict[TopicPartition, list[dt.datetime | None]] = {}
    for event in (event for each in cases for event in each.records):
        for tp in {*(event.topic_partitions or ())} - states.keys() - too_large.keys():
            named.setdefault(tp, []).append(event.timestamp)
    absent = {tp: Error.of(why).text for tp, why in _absent(complete, named).items() if why is not None}
    plan = plan_marker_search(cases, [*producers, *elsewhere], partitions=states, unread=absent | too_large)
    markers: list[OtherMarker] = []
    unread = dict.fromkeys((each.producer_id for each in cases), _left_out(too_large)) if too_large else {}
    unread |= plan.unread
    for tp, found in plan.partitions.items():
        search = _replica_markers(tp, states[tp], found, plan.states)
        markers += search.markers
        unread |= search.unread
    return MarkerSearch(markers=markers, unread=unread, ahead=plan.ahead)


def _further_logs(
    contents: Contents, replicas: Replicas, named: Collection[str]
) -> tuple[list[FolderLog], dict[TopicPartition, str]]:
    """Logs of partitions that were not read, those of named topics first, and why others are not."""
    logs = [
        log
        for log in contents.logs
        if isinstance(log, FolderLog)
        and log.where.topic not in {None, STATE_TOPIC, METADATA_TOPIC}
        and log.where.tp not in replicas
    ]
    logs.sort(key=lambda log: log.where.topic not in named)
    sizes = accumulate(log.tail_size for log in logs)
    read = [log for log, size in zip(logs, sizes, strict=True) if size <= MAX_SEARCHED]
    too_large = {each.where.tp for each in logs} - {each.where.tp for each in read}
    return read, dict.fromkeys(too_large, f"more than {MAX_SEARCHED >> 30} GiB of segments would have to be read")


def _left_out(too_large: Mapping[TopicPartition, str]) -> str:
    (first, why), *others = sorted(too_large.items())
    more = f" and {len(others):,} more" if others else ""
    return f"{first.topic}-{first.partition}{more} could not be read ({why})"


def _replica_markers(
    tp: TopicPartition,
    state: ReplicaState,
    cases: Sequence[Case],
    states: Mapping[tuple[TopicPartition, int], Producer],
) -> MarkerSearch:
    log, begin, end = state.log, state.log_start_offset or 0, state.high_watermark
    if end is None or not isinstance(log, FolderLog):  # a marker may be a deposed leader's, a text may be incomplete
        why = "text of kafka-dump-log.sh" if end is not None else "without a high watermark"
        return MarkerSearch(unread={case.producer_id: f"{tp.topic}-{tp.partition} is {why}" for case in cases})
    since = search_from(cases)
    start = max(begin, end - MAX_OFFSETS if since is None else log.offset_before(milliseconds(since)))
    for most in (MAX_OFFSETS, MOST_OFFSETS):
        stop = min(end, start + most)
        parts = list(map(intact, log.parts(start=start, stop=stop, crc=True)))
        errors = [damage.reason for part in parts for damage in part.damage if not damage.is_torn]
        errors += [state.error] if state.error else []
        excerpt = Excerpt(
            headers=concatenate([part.headers for part in parts]),
            start=start,
            stop=stop,
            log_start_offset=state.log_start_offset,
            observed_at=state.observed_at,
            source="log",
            broker_id=log.where.broker_id,
        )
        found = markers_found(tp, excerpt, cases, states, errors=errors, end=end)
        if stop == end or errors or not found.unread:
            break
    return found


def with_holds(observed: FileObservation, current_findings: Sequence[Finding], *, min_held_ms: int) -> list[Finding]:
    """Findings: current ones, and ended transactions that held the LSO long enough.

    `observed`: the observation of the current findings; the first replica of each partition was read completely.
    `current_findings`: the findings at the end of the files.
    `min_held_ms`: as for `toolkit.analysis.hold_findings.held_findings`.
    """
    offsets = {
        each.tp: (each.last_stable_offset, each.high_watermark)
        for each in reversed(current_findings)
        if each.last_stable_offset is not None
    }
    holds: list[LsoHold] = []
    for tp, replicas in observed.replicas.items():
        lso, high_watermark = offsets.get(tp, (None, None))
        holds += replica_holds(replicas[0], lso=lso, high_watermark=high_watermark, min_held_ms=min_held_ms)
    return held_findings(
        holds,
        transaction_history=history_of(holds, observed.state_topic),
        current_findings=current_findings,
        min_held_ms=min_held_ms,
    )


def replica_holds(
    state: ReplicaState, *, lso: int | None, high_watermark: int | None, min_held_ms: int = 0
) -> list[LsoHold]:
    """The holds in the log of a replica that was read completely, with the records and bytes that each held.

    `lso`, `high_watermark`: of its partition; null if unknown.
    `min_held_ms`: as for `toolkit.analysis.hold_findings.lso_holds`.
    """
    window = state.window
    fold = window.fold
    found = lso_holds(*(each.log_transactions for each in window.ranges), min_held_ms=min_held_ms)
    table = hold_table(LogArray(found, state.log.where, fold.file_names), log_end_offset=fold.log_end_offset)
    holds = []
    for hold in LsoHold.of_table(table):
        held_range = held_offsets(hold, lso=lso, high_watermark=high_watermark)
        counted = None if held_range is None else window.counted(*held_range)
        records, size = (None, None) if counted is None else counted
        holds.append(replace(hold, records_held=records, bytes_held=size))
    return holds


def history_of(holds: Iterable[LsoHold], state_topic: StateTopic) -> Mapping[int, Sequence[PastTransaction]]:
    """History of every transactional id of the producers of holds, by producer id."""
    producer_ids = {hold.producer_id for hold in holds if hold.producer_id is not None}
    indexes = [partition.replica.window.records for partition in state_topic.partitions.values()]
    records = (each for index in indexes for each in index.records(index.ids_of(producer_ids)))
    return by_producer(transaction_history(records))
