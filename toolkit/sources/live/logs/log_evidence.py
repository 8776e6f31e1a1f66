"""Log evidence of held partitions: a bounded excerpt of each, and records of ``__transaction_state``."""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from toolkit.analysis.coordinator.coordinator_log import CoordinatorLog, names_any
from toolkit.analysis.diagnosis.decision.owned_rules import is_disowned
from toolkit.analysis.diagnosis.evidence.diagnosis_context import DiagnosisContext, LogEvidence
from toolkit.analysis.diagnosis.evidence.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.evidence_kinds import OpenEvidence
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, UNKNOWN
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import Error, TopicPartition, TransactionKey
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, transaction_log_records
from toolkit.sources.live.logs.excerpt_reader import ExcerptPosition, read_excerpts
from toolkit.sources.live.logs.offset_lookup import offset_of
from toolkit.sources.live.logs.other_markers_reader import read_other_markers
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.compacted_topics import compacted_topics
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.leader_producers import producer_rows
from toolkit.sources.live.state.partition_offsets import partition_rows

MAX_PARTITIONS = 50  # with an excerpt of megabytes, for cause and impact
PARTITIONS_AT_ONCE = 10  # bounds memory
TIMEOUT_S = 10.0  # the rest gets a small excerpt
SMALL_EXCERPT = 1 << 16  # bytes; enough for the outcome
SMALL_AT_ONCE = 100
SMALL_TIMEOUT_S = 20.0

MARGIN = dt.timedelta(seconds=60)  # before the open records
MAX_RECORDS = 500_000  # of __transaction_state, for each partition of an owner
MAX_RECORDS_OF_EACH = 20_000  # of every partition, if no id has the producer id any more
TOO_LONG = f"{STATE_TOPIC}-{{}} has more than {MAX_RECORDS:,} records since then, which were not read"


def read_contexts(client: BrokerClient, to_read: Sequence[OpenEvidence]) -> dict[TransactionKey, DiagnosisContext]:
    """Read the log evidence of open transactions.

    Parameters
    ----------
    client
        The connection to the brokers.
    to_read
        From `Diagnosis.to_read`; the logs are read after the last observation.

    Returns
    -------
    dict of TransactionKey to DiagnosisContext
        The context of each.
    """
    excerpts = _excerpts(client, _positions(to_read))
    reader = _CoordinatorReader(client, to_read, excerpts)
    log = LogEvidence(excerpts=excerpts, coordinators=reader.read())
    contexts = _with_log(to_read, log)
    if _unproven(contexts, to_read) and (further := reader.read_further()) is not None:
        log = replace(log, coordinators=further)
        contexts = _with_log(to_read, log)
    if unproven := _unproven(contexts, to_read):
        log = replace(log, other_markers=read_other_markers(client, unproven))
        contexts = _with_log(to_read, log)
    decided = [each for each in contexts.values() if each.outcome.name in {COMMIT, ABORT}]
    # Read after the decision was seen: a marker that came before it is no missing one.
    return _with_log(to_read, replace(log, ended=_ended(client, decided))) if decided else contexts


def _ended(client: BrokerClient, contexts: Sequence[DiagnosisContext]) -> frozenset[tuple[TopicPartition, int, int]]:
    """Those of the transactions that their leaders do not show open any more."""
    keys = {(each.txn.tp, each.txn.producer_id, each.txn.start) for each in contexts if each.txn.start is not None}
    partitions = {tp for tp, _, _ in keys}
    metadata = read_metadata(client, {topic for topic, _ in partitions}).at(sorted(partitions))
    rows = producer_rows(client, metadata, idle_producers=False)
    unread = {TopicPartition(row["topic"], row["partition"]) for row in rows if row["error"]}
    still_open = {
        (TopicPartition(row["topic"], row["partition"]), row["producer_id"], row["current_txn_start_offset"])
        for row in rows
    }
    return frozenset(key for key in keys if key not in still_open and key[0] not in unread)


def _unproven(
    contexts: Mapping[TransactionKey, DiagnosisContext], to_read: Sequence[OpenEvidence]
) -> list[DiagnosisContext]:
    """Transactions that no coordinator will end, whose outcome is not proven."""
    return [contexts[each.key] for each in to_read if is_disowned(each) and contexts[each.key].outcome.name == UNKNOWN]


def _with_log(to_read: Sequence[OpenEvidence], log: LogEvidence) -> dict[TransactionKey, DiagnosisContext]:
    return {each.key: DiagnosisContext(each.txn, log) for each in to_read}


def _excerpts(client: BrokerClient, positions: Sequence[ExcerptPosition]) -> dict[TopicPartition, Excerpt]:
    """Excerpts around the lowest open transactions: large ones of the first partitions, small ones of the others."""
    compacted = compacted_topics(client, {each.tp[0] for each in positions})
    excerpts: dict[TopicPartition, Excerpt] = {}
    deadline = time.monotonic() + TIMEOUT_S
    for start in range(0, min(len(positions), MAX_PARTITIONS), PARTITIONS_AT_ONCE):
        if time.monotonic() < deadline:
            batch = positions[start : min(start + PARTITIONS_AT_ONCE, MAX_PARTITIONS)]
            excerpts |= read_excerpts(client, batch, compacted=compacted, deadline=deadline)
    deadline = time.monotonic() + SMALL_TIMEOUT_S
    others = [each for each in positions if each.tp not in excerpts]
    for start in range(0, len(others), SMALL_AT_ONCE):
        if time.monotonic() < deadline:
            batch = others[start : start + SMALL_AT_ONCE]
            excerpts |= read_excerpts(client, batch, compacted=compacted, deadline=deadline, max_bytes=SMALL_EXCERPT)
    return excerpts


def _positions(to_read: Sequence[OpenEvidence]) -> list[ExcerptPosition]:
    """Where to read each partition: around the lowest of its transactions that need it."""
    by_partition: defaultdict[TopicPartition, list[OpenEvidence]] = defaultdict(list)
    for each in to_read:
        by_partition[each.txn.tp].append(each)
    positions = []
    for tp, found in by_partition.items():
        leader = found[0].txn.leader
        starts = [each.txn.start for each in found if each.txn.start is not None]
        if leader.leader is None or leader.high_watermark is None:
            continue
        log_start = leader.log_start_offset or 0
        positions.append(
            ExcerptPosition(
                tp=tp,
                offset=max(log_start, min(starts)),
                log_start=log_start,
                high_watermark=leader.high_watermark,
                producer_ids=frozenset(each.txn.producer_id for each in found),
                broker_id=leader.leader,
                leader_epoch=-1 if leader.leader_epoch is None else leader.leader_epoch,
            )
        )
    return positions


class _CoordinatorReader:
    """Reads the records of the owners of open transactions, or of former owners if they have none.

    The records of each partition are read once for all transactions: from the time of the open records on, as
    ListOffsets finds it; then, if that does not reach back far enough, from the beginning of the log.
    """

    def __init__(
        self, client: BrokerClient, to_read: Sequence[OpenEvidence], excerpts: Mapping[TopicPartition, Excerpt]
    ) -> None:
        self._client = client
        self._producer_ids = {each.txn.producer_id for each in to_read if each.txn.owner is None}
        self._ids: defaultdict[int, set[str]] = defaultdict(set)
        self._since: dict[int, dt.datetime | None] = {}
        for each in to_read:
            owner = each.txn.owner
            if owner is not None and owner.transactional_id is not None and owner.txn_state_partition is not None:
                number = owner.txn_state_partition
                self._ids[number].add(owner.transactional_id)
                since = _opened_after(each, excerpts.get(each.txn.tp))
                known = self._since.get(number, since)
                self._since[number] = None if since is None or known is None else min(since, known)
        self._start: dict[int, int] = {}

    def read(self) -> CoordinatorLog:
        """Read from the time of the open records on."""
        try:
            topic = read_coordinator_topic(self._client, STATE_TOPIC)
            partitions = self._partition_rows(topic, self._ids)
            self._start = {number: self._first_offset(row) for number, row in partitions.items()}
            return self._log(topic)
        except ToolkitError as error:
            return CoordinatorLog(unread=[f"{STATE_TOPIC} could not be read ({error.what.rstrip('.')})"])

    def read_further(self) -> CoordinatorLog | None:
        """Read from the beginning of the log on; null if that was done."""
        if not any(self._start.values()):
            return None
        self._start, self._since = {}, dict.fromkeys(self._since)
        return self.read()

    def _log(self, topic: CoordinatorTopic) -> CoordinatorLog:
        records: list[TransactionLogRecord] = []
        since: dict[int, dt.datetime] = {}
        too_long = []
        for number, ids in sorted(self._ids.items()):
            start = self._start.get(number, -1)
            if start < 0:
                too_long.append(TOO_LONG.format(number))
                continue
            of_partition = self._of_ids(topic, ids, {number}, start={number: start})
            records += of_partition
            if start and (first := next((each.timestamp for each in of_partition if each.timestamp), None)):
                since[number] = first
        if self._producer_ids:
            records += self._of_producers(topic)
        errors = sorted({Error.of(each.error).code for each in records if each.error})
        unread = [f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else []
        readable = [each for each in records if not each.error]
        return CoordinatorLog(records=readable, unread=[*too_long, *unread], since=since, leaders=_leaders(topic))

    def _first_offset(self, row: Row) -> int:
        """The first offset to read of a partition; -1 if that is too far back."""
        since, end, begin = self._since[row["partition"]], row["high_watermark"] or 0, row["log_start_offset"] or 0
        if row["error"]:
            return 0  # the read has the error
        if since is None:
            return max(begin, end - MAX_RECORDS) if begin < end - MAX_RECORDS else 0
        start = offset_of(self._client, since - MARGIN, row)
        return start if end - start <= MAX_RECORDS else -1

    def _partition_rows(self, topic: CoordinatorTopic, numbers: Iterable[int]) -> dict[int, Row]:
        metadata = {number: row for (_, number), row in topic.topology.partitions.items()}
        selected = {TopicPartition(topic.topic, number): metadata[number] for number in numbers if number in metadata}
        return {row["partition"]: row for row in partition_rows(self._client, selected)}

    def _of_ids(
        self,
        topic: CoordinatorTopic,
        ids: Collection[str],
        partitions: Collection[int],
        *,
        start: Mapping[int, int] | None = None,
        newest: int | None = None,
    ) -> list[TransactionLogRecord]:
        needles = [each.encode() for each in ids]
        records = transaction_log_records(self._client, topic, partitions, start=start, newest=newest, having=needles)
        return [each for each in records if each.error or each.transactional_id in ids]

    def _of_producers(self, topic: CoordinatorTopic) -> list[TransactionLogRecord]:
        """Records of every id that ever had one of these producer ids, its tombstone included."""
        needles = [each.to_bytes(8, "big") for each in self._producer_ids]
        records = list(transaction_log_records(self._client, topic, newest=MAX_RECORDS_OF_EACH, having=needles))
        owners = {
            each.transactional_id: each.txn_state_partition
            for each in records
            if not each.error and each.transactional_id is not None and names_any(each, self._producer_ids)
        }
        errors = [each for each in records if each.error]
        if not owners:
            return errors
        numbers = {number for number in owners.values() if number is not None}
        return errors + self._of_ids(topic, set(owners), numbers, newest=MAX_RECORDS_OF_EACH)


def _leaders(topic: CoordinatorTopic) -> dict[int, tuple[int, int]]:
    """Leader and leader epoch of each partition, before its records were read."""
    return {
        number: (row["leader"], row["leader_epoch"])
        for (_, number), row in topic.topology.partitions.items()
        if row["leader"] is not None and row["leader_epoch"] is not None
    }


def _opened_after(evidence: OpenEvidence, excerpt: Excerpt | None) -> dt.datetime | None:
    """A broker's time before the open records; null if the excerpt has none."""
    if excerpt is None or evidence.txn.start is None:
        return None
    return DiagnosisContext(evidence.txn, LogEvidence(excerpts={evidence.txn.tp: excerpt})).opened_after
