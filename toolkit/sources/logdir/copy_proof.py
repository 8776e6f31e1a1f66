"""What the order of a copy proves: up to when the coordinators' log is complete, and what was open all the while.

A replica alone proves nothing, since it may lag behind its leader. So the manifest counts for partitions of which the
copied broker has the only replica, or which it led from before the copy until after it, by its own metadata log, which
grew meanwhile: a broker that the controllers have lost no longer gets their records.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping

from toolkit.analysis.diagnosis.observation import AsOf
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.metadata_records import MetadataState
from toolkit.schema import utc
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.coordinator_state import StateTopic, TransactionLogPartition
from toolkit.sources.logdir.replica.log_dir_layout import LogDirRoot
from toolkit.sources.logdir.replica.metadata_log import NEWEST, metadata_logs, metadata_records
from toolkit.sources.logdir.replica.partition_folder import FolderLog
from toolkit.sources.logdir.replica.replica_state import ReplicaState

ASSERTED = ", in files that are asserted to be consistent (consistent_copy)"
END = 1 << 62  # an offset behind every log


class CopyProof:
    """What the manifests of the files prove."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._current: dict[LogDirRoot, Collection[TopicPartition]] = {}

    def as_of(
        self, state_topic: StateTopic, states: Mapping[TopicPartition, ReplicaState]
    ) -> Mapping[TopicPartition, AsOf]:
        """The time up to which partitions are proven to be complete, as `Observation.as_of`.

        `states`: the observed partitions.
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
        return found

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
        segment = self._contents.copies.files(log).get(log.listing.segments[number].path.name)
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
        log = next((each for each in metadata_logs(self._contents.logs) if each.root == root), None)
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
        times += [end_time(log) for log in metadata_logs(self._contents.logs) if log.where.broker_id in brokers]
        return max((time for time in times if time is not None), default=None)


def end_time(log: FolderLog) -> dt.datetime | None:
    """The time of the last batch of a metadata log; only its end is read."""
    last = None
    for number in range(len(log.base_offsets), 0, -1):
        start = END if number == len(log.base_offsets) else log.base_offsets[number] - 1
        for part in log.parts_near(start):
            last = int(part.scanned.headers["max_timestamp"][-1]) if len(part.scanned.headers) else last
        if last is not None:
            break
    return utc(last)
