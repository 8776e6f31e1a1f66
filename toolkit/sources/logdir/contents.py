"""Everything that was found, read once for one question."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from toolkit.errors import NotFound
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.files.log_dir_layout import LogDirLayout, LogDirRoot
from toolkit.sources.logdir.files.partition_checkpoints import PartitionCheckpoints, read_partition_checkpoints
from toolkit.sources.logdir.files.partition_folder import FolderLog
from toolkit.sources.logdir.files.replica_log import ReplicaLog
from toolkit.sources.logdir.state.log_window import ReadLimit
from toolkit.sources.logdir.state.replica_state import ReplicaState, read_state
from toolkit.sources.partition_selection import (
    requested_partitions,
)

__all__ = ["METADATA_TOPIC", "Contents", "FileScope", "Partitions", "ReplicaWithCheckpoints", "TopicPartition"]

LOGS_AT_ONCE = 2
MAX_NEIGHBOURS = 2_000_000  # batch headers that the windows of all logs keep; what is left out is read again if wanted

METADATA_TOPIC = "__cluster_metadata"  # the controllers' log: no topic of the brokers, and without transactions

Partitions = int | Sequence[int] | Sequence[TopicPartition]


class ReplicaWithCheckpoints(NamedTuple):
    """A replica's state, and the checkpoints of the log directory that it lies in."""

    state: ReplicaState
    marks: PartitionCheckpoints


class FileScope(NamedTuple):
    """What a look goes by beyond single partitions: whose files they are, and when the newest was written."""

    brokers: Collection[int]
    roots: Collection[LogDirRoot]
    written_at: dt.datetime | None


class Contents:
    """The logs in files as they are listed now, and their states, each read when it is first asked for.

    Parameters
    ----------
    layout
        What was found.
    texts
        The logs in its texts.
    """

    def __init__(self, layout: LogDirLayout, texts: Sequence[ReplicaLog] = ()) -> None:
        self.layout = layout
        self.logs: Sequence[ReplicaLog] = [*(FolderLog(replica) for replica in layout.replicas), *texts]
        self.taken_at = dt.datetime.now(dt.UTC)
        self._marks: dict[LogDirRoot, PartitionCheckpoints] = {}
        self._states: dict[int, tuple[ReadLimit, ReplicaWithCheckpoints]] = {}
        self._room = MAX_NEIGHBOURS

    def replica_logs(
        self, topics: Sequence[str] | None = None, partitions: Partitions | None = None
    ) -> list[ReplicaLog]:
        """The logs that are meant.

        Parameters
        ----------
        topics
            Topic names, or one; all, the controllers' own log apart, if null.
        partitions
            Numbers, or one, of each of `topics`; or pairs of topic and number, without `topics`.

        Raises
        ------
        NotFound
            If the files hold nothing of one of them.
        UsageError
            If `partitions` are numbers without topics, or pairs with topics.
        """
        names = [topics] if isinstance(topics, str) else topics
        numbers = [partitions] if isinstance(partitions, int) else partitions
        if names is None and numbers is None:
            return [log for log in self.logs if log.where.topic != METADATA_TOPIC]
        places = {(log.where.topic, log.where.partition) for log in self.logs}
        selected = _selected(names, numbers, places)
        return [log for log in self.logs if (log.where.topic, log.where.partition) in selected]

    def of_topic(self, topic: str, partitions: Sequence[int] | None = None) -> list[ReplicaLog]:
        """The logs of a topic, none if it is not there; or of partitions of it, which have to be.

        Raises
        ------
        NotFound
            If the files hold nothing of one of them.
        """
        if partitions is not None:
            return self.replica_logs([topic], partitions)
        return [log for log in self.logs if log.where.topic == topic]

    def read(self, log: ReplicaLog, *, reach: ReadLimit = ReadLimit.TAIL) -> ReplicaWithCheckpoints:
        """The state of a log, read at least as far back as `reach` says; once, unless it says more than before."""
        if (
            log.where.topic == STATE_TOPIC and reach is not ReadLimit.TAIL
        ):  # one read for the partition and its coordinator
            reach = ReadLimit.RECORDS
        known, found = self._states.get(id(log), (None, None))
        if found is None or (known is ReadLimit.TAIL and reach is not ReadLimit.TAIL):
            marks = self.marks(log.root) if log.root else PartitionCheckpoints()
            found = ReplicaWithCheckpoints(read_state(log, marks, reach=reach), marks)
            self._states[id(log)] = reach, found
            self._room -= len(found.state.window.neighbourhood)
            if self._room < 0:
                found.state.window.neighbourhood.clear()
        return found

    def marks(self, root: LogDirRoot) -> PartitionCheckpoints:
        """The checkpoints of a log directory."""
        if root not in self._marks:
            self._marks[root] = read_partition_checkpoints(root)
        return self._marks[root]

    def scope(self, logs: Iterable[ReplicaLog]) -> FileScope:
        """Of these logs and those of the coordinators together."""
        logs = [*logs, *self.of_topic(STATE_TOPIC)]
        roots = {log.root for log in logs if log.root is not None}
        times = [*(log.modified for log in logs), *(self.marks(root).modified for root in roots)]
        return FileScope(
            brokers={log.where.broker_id for log in logs if log.where.broker_id is not None},
            roots=roots,
            written_at=max((time for time in times if time is not None), default=None),
        )

    def by_place(
        self, logs: Iterable[ReplicaLog], *, reach: ReadLimit = ReadLimit.TAIL
    ) -> Iterator[tuple[TopicPartition, list[ReplicaWithCheckpoints]]]:
        """The replicas of each partition, the one that has most of its log first; that one is read by `reach`."""
        found: dict[TopicPartition, list[ReplicaLog]] = {}
        for log in logs:
            if log.where.topic is not None and log.where.partition is not None:
                found.setdefault((log.where.topic, log.where.partition), []).append(log)
        for replicas in found.values():
            if len(replicas) > 1:
                replicas.sort(key=lambda log: _how_far(self.read(log)), reverse=True)
        firsts = sorted((replicas[0] for replicas in found.values()), key=lambda log: log.size, reverse=True)
        with ThreadPoolExecutor(max_workers=LOGS_AT_ONCE) as pool:  # small logs are read beside the last large one
            list(pool.map(lambda log: self.read(log, reach=reach), firsts))
        for place in sorted(found):
            yield place, list(map(self.read, found[place]))

    def best(self, topic: str, *, reach: ReadLimit = ReadLimit.TAIL) -> Mapping[int, ReplicaWithCheckpoints]:
        """The replica of each partition of a topic that has most of its log."""
        return {place[1]: replicas[0] for place, replicas in self.by_place(self.of_topic(topic), reach=reach)}


def _how_far(read: ReplicaWithCheckpoints) -> tuple[bool, int, int]:
    """A newer leader epoch wins over a longer log: what an old leader wrote alone is cut off again."""
    state = read.state
    epoch, end = state.leader_epoch, state.log_end_offset
    return state.error is None, -1 if epoch is None else epoch, -1 if end is None else end


def _selected(
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[TopicPartition] | None,
    places: set[tuple[str | None, int | None]],
) -> set[tuple[str | None, int | None]]:
    meant = [] if partitions is None else requested_partitions(topics, partitions)
    for topic in topics or [topic for topic, _ in meant]:
        if all(topic != name for name, _ in places):
            raise NotFound(f"These files hold nothing of topic {topic!r}.")
    if partitions is None:
        return {place for place in places if place[0] in set(topics or ())}
    for topic, number in sorted(set(meant) - places):
        there = sorted(found for name, found in places if name == topic and found is not None)
        raise NotFound(
            f"These files hold nothing of partition {number} of topic {topic!r}; of it there are {_short(there)}."
        )
    return {*meant}


def _short(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:10]))
    return f"{text} and {len(numbers) - 10} more" if len(numbers) > 10 else text
