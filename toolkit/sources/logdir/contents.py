"""All logs at paths and their states, each read once."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

from toolkit.analysis.cluster_events import metadata_events
from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.log_dir_files import (
    MANIFEST,
    CopiedFile,
    CopyManifest,
    LogPath,
    is_remote_file,
    log_path,
    parse_folder_name,
    read_manifest,
)
from toolkit.formats.metadata_records import MetadataState
from toolkit.formats.object_store import ObjectPath
from toolkit.schema.coerce import in_utc
from toolkit.schema.log import ClusterEvent
from toolkit.schema.table import Error, Selection, TopicPartition
from toolkit.sources.logdir.log_dir_layout import (
    METADATA_TOPIC,
    LogDirLayout,
    LogDirRoot,
    PartitionCheckpoints,
    SkippedFile,
    discover,
    read_partition_checkpoints,
)
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog
from toolkit.sources.logdir.replica_state import (
    NO_METADATA_LOG,
    MarkerNeighbourhood,
    MetadataEnd,
    ReadLimit,
    ReplicaState,
    is_whole,
    metadata_end,
    metadata_records,
    read_state,
)
from toolkit.sources.source import requested_partitions

LOGS_AT_ONCE = 2
OBJECTS_AT_ONCE = 8  # an object store answers slowly, and much at once
MAX_NEIGHBOURS = 2_000_000  # batch headers that the windows of all logs keep; others are read again if needed

UNNAMED = "UNNAMED: its folder is not named as brokers name it (topic-partition), so its partition is unknown."
MAY_HAVE_PARTITIONS = ("UNREADABLE:", "UNNAMED:")  # folders that are left out
FUTURE = "FUTURE:"
COMPACTED = {STATE_TOPIC, OFFSETS_TOPIC}

Partitions = int | Sequence[int] | Sequence[tuple[str, int]]


class FileArguments(TypedDict, total=False):
    """The fields of `FileAssertions` as arguments, a time also as its text."""

    consistent_copy: bool
    as_of: dt.datetime | str | None
    txn_state_partitions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAssertions:
    """Assertions of a caller about files.

    Raises UsageError if the time has no zone or lies in the future, or the number is not positive.
    """

    consistent_copy: bool = False  # whether brokers were stopped when they were copied, and their replicas in sync
    as_of: dt.datetime | None = None  # when files without a manifest were copied; null if unknown
    # of ``__transaction_state``; null for 50, or as many as the files show
    txn_state_partitions: int | None = None

    @classmethod
    def of(cls, *, as_of: dt.datetime | str | None = None, **others: Any) -> FileAssertions:
        """The assertions that arguments make. Raises UsageError also for a text that is no time."""
        return cls(as_of=None if as_of is None else in_utc(as_of), **others)

    def __post_init__(self) -> None:
        if self.txn_state_partitions is not None and self.txn_state_partitions < 1:
            raise UsageError(
                f"__transaction_state cannot have {self.txn_state_partitions} partitions.",
                do="Pass transaction.state.log.num.partitions of the brokers, 50 by default.",
            )
        if self.as_of is not None and (self.as_of.tzinfo is None or self.as_of > dt.datetime.now(dt.UTC)):
            raise UsageError(
                f"The files cannot be of {self.as_of}.",
                means="It has no time zone." if self.as_of.tzinfo is None else "It lies in the future.",
                do="Pass the time at which they were copied, with its zone.",
            )


NO_ASSERTIONS = FileAssertions()


class FileScope(NamedTuple):
    """Brokers and log directories of the observed files."""

    brokers: Collection[int]
    roots: Collection[LogDirRoot]
    unread: Sequence[str] = ()  # folders that may have partitions, and why these were not read

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, by their ``meta.properties``; null if they name none, or several."""
        ids = {root.cluster_id for root in self.roots}
        return ids.pop() if len(ids) == 1 else None

    @property
    def cluster_gaps(self) -> list[str]:
        """What is missing to prove that the files are of one cluster: producer ids start at 0 in every cluster."""
        by_cluster: dict[str | None, list[str]] = {}
        for root in sorted(self.roots, key=lambda root: str(root.path)):
            by_cluster.setdefault(root.cluster_id, []).append(str(root.path))
        if len(by_cluster) > 1:
            paths_by_id = "; ".join(f"{paths[0]}: {name or 'unknown cluster'}" for name, paths in by_cluster.items())
            return [f"files of one cluster, by their meta.properties: {paths_by_id}"]
        if len(paths := by_cluster.get(None, [])) > 1:
            return [f"the meta.properties of {', '.join(paths[:3])}, to show that they belong to one cluster"]
        return []


SEVERAL_CLUSTERS = (
    "SEVERAL_CLUSTERS: no meta.properties show that the files are of one cluster, so no metadata log is that of all."
)


class Copies:
    """When log directories were copied, and how.

    `as_of`: when those without a manifest were copied, as the caller asserts; null if unknown.
    """

    def __init__(self, as_of: dt.datetime | None = None) -> None:
        self.as_of = as_of
        self._manifests: dict[LogDirRoot, CopyManifest | None] = {}
        self._folders: dict[LogDirRoot, dict[str, dict[str, CopiedFile]]] = {}
        self._errors: dict[LogDirRoot, str] = {}

    def left_out(self, roots: Iterable[LogDirRoot]) -> Iterator[SkippedFile]:
        """Manifests of log directories that cannot be read."""
        for root in roots:
            if self.manifest(root) is None and root in self._errors:
                yield SkippedFile(root.path / MANIFEST, f"MANIFEST: {self._errors[root]}.")

    def manifest(self, root: LogDirRoot | None) -> CopyManifest | None:
        """The manifest of a log directory; null if there is none, or it cannot be read."""
        if root is not None and root not in self._manifests:
            found = None
            try:
                found = read_manifest(root.path)
            except DecodeError as error:
                self._errors[root] = error.what
            except OSError as error:
                self._errors[root] = f"it cannot be read: {error.strerror}"
            self._manifests[root] = found  # once it is read: replicas are read by several threads
        return None if root is None else self._manifests[root]

    def files(self, log: FolderLog) -> Mapping[str, CopiedFile]:
        """The files of a log by name, by the manifest."""
        manifest = self.manifest(log.root)
        if manifest is not None and log.root not in self._folders:
            self._folders[log.root] = manifest.by_folder()
        return self._folders.get(log.root, {}).get(log.replica.path.name, {})

    def moment(self, log: ReplicaLog) -> dt.datetime | None:
        """When a log was copied, by the manifest or by the caller; null if unknown."""
        manifest = self.manifest(log.root)
        return self.as_of if manifest is None or self.doubt(log) is not None else manifest.moment

    def doubt(self, log: ReplicaLog) -> str | None:
        """Why the manifest does not prove when a log was copied; null if it does."""
        manifest = self.manifest(log.root)
        if manifest is None or not isinstance(log, FolderLog):
            return f"{log.where} was not copied by kafka-txn copy"
        if manifest.moment is None:
            return "the copy was not finished: run kafka-txn copy again"
        if not manifest.is_running:
            return (
                f"no broker ran on {manifest.source} while it was copied; if all were shut down cleanly, say "
                "--consistent-copy"
            )
        folder = log.replica.path.name
        if folder in manifest.incomplete:
            return f"{folder} changed faster than it was copied"
        copied = {name: file.size for name, file in self.files(log).items()}
        present = {name: stamp.size for name, stamp in log.stamps.items() if not is_remote_file(name)}
        different = sorted(name for name in copied.keys() | present.keys() if copied.get(name) != present.get(name))
        return f"{folder}/{different[0]} is not the file that was copied" if different else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Some of the logs at paths, for one of several tasks that share the work; the others only help to diagnose them.

    What is requested was decided when the work was divided: topics and partitions of a selection do not change it.
    """

    paths: Sequence[str | os.PathLike[str] | LogPath]  # of all logs
    topic_partitions: Collection[tuple[str | None, int | None]]  # topic and partition of the requested logs
    # partitions of the other tasks, for the one that answers for those in none; null for another one
    elsewhere: Collection[TopicPartition] | None = None
    scope: FileScope | None = None  # the scope of all tasks together; that of these files alone if null


class Contents:
    """The logs as listed now, and their states, each read on first use.

    `layout`: folders and texts at the paths.
    `broker_logs`: the events in brokers' own logs.
    `assertions`: what the caller asserts of the files.
    `share`: the task whose logs they are; null for all logs at the paths.
    """

    def __init__(
        self,
        layout: LogDirLayout,
        broker_logs: Iterable[ClusterEvent] = (),
        *,
        assertions: FileAssertions = NO_ASSERTIONS,
        share: Share | None = None,
    ) -> None:
        self.layout = layout
        self.assertions = assertions
        self.share = share
        # The end offset of logs, by name, that were read whole as they are now: without damage, and nothing is open.
        self.settled: Mapping[str, int] = {}
        self.copies = Copies(assertions.as_of)
        self.broker_logs = broker_logs
        is_remote = any(isinstance(replica.path, ObjectPath) for replica in layout.replicas)
        self._at_once = OBJECTS_AT_ONCE if is_remote else LOGS_AT_ONCE
        with ThreadPoolExecutor(self._at_once) as pool:
            listed = (pool.map if is_remote else map)(FolderLog, layout.replicas)
            self.logs: list[ReplicaLog] = list(listed)
        if layout.texts:  # most paths contain none
            from toolkit.sources.logdir.dump_logs import read_texts

            count = assertions.txn_state_partitions
            self.logs += [part for path in layout.texts for log in read_texts(path) for part in log.by_partition(count)]
        # the replicas of the metadata log; none with ZooKeeper
        self.metadata_logs = [
            log for log in self.logs if log.where.topic == METADATA_TOPIC and isinstance(log, FolderLog)
        ]
        self.taken_at = dt.datetime.now(dt.UTC)
        self._checkpoints: dict[LogDirRoot, PartitionCheckpoints] = {}
        self._states: dict[int, tuple[ReadLimit, ReplicaState]] = {}
        self._room = MAX_NEIGHBOURS

    @property
    def left_out(self) -> list[SkippedFile]:
        """Files and folders that no table, or not every table, reads, with the reason."""
        unnamed = [SkippedFile(log_path(log.name), UNNAMED) for log in self.logs if log.where.partition is None]
        of_logs = (each for log in self.logs for each in log.left_out)
        return [*self.layout.left_out, *of_logs, *unnamed, *self.copies.left_out(self.layout.roots)]

    @cached_property
    def broker_log_events(self) -> Sequence[ClusterEvent]:
        """The events in brokers' own logs, file by file."""
        return list(self.broker_logs)

    @cached_property
    def metadata_ends(self) -> Sequence[MetadataEnd]:
        """What each replica of the metadata log says at its end; none of files that may be of several clusters."""
        return [] if self._may_be_of_several_clusters else [metadata_end(log) for log in self.metadata_logs]

    @property
    def _may_be_of_several_clusters(self) -> bool:
        """Whether they may be: topics that one cluster has deleted, or never had, may be open in another."""
        roots = {log.root for log in self.logs if log.root is not None and not log.is_remote}
        roots.update(() if self.share is None or self.share.scope is None else self.share.scope.roots)
        return bool(FileScope(brokers=(), roots=roots).cluster_gaps)

    @cached_property
    def metadata(self) -> MetadataEnd:
        """The end that counts: a whole one before others, then the one that reaches furthest."""
        nothing = MetadataEnd(
            MetadataState(), error=SEVERAL_CLUSTERS if self._may_be_of_several_clusters else NO_METADATA_LOG
        )
        return max(self.metadata_ends, key=lambda each: (each.error is None, each.offset), default=nothing)

    @property
    def first_free_producer_id(self) -> int | None:
        """The first producer id that no broker of the cluster has got, by any replica of the metadata log.

        Null if that is not among the files, as with ZooKeeper, or has no such record.
        """
        found = (each.state.next_producer_id for each in self.metadata_ends)
        return max((each for each in found if each is not None), default=None)

    def cluster_events(self, *, since: dt.datetime | None = None) -> Iterator[ClusterEvent]:
        """The events of the cluster, by the metadata log that reaches furthest, and by brokers' own logs.

        `since`: earlier events are not needed.
        """
        for _, (state, *_) in self.by_partition(self.metadata_logs):
            if isinstance(state.log, FolderLog):
                yield from metadata_events(metadata_records(state.log, since=since))
        for event in self.broker_log_events:
            if since is None or event.ended_at is None or event.ended_at >= since:
                yield event

    def selection(self, selection: Selection) -> Selection:
        """A selection, as far as these logs are responsible for it."""
        if self.share is None:
            return selection
        if self.share.elsewhere is None:
            return replace(selection, partitions={log.where.tp for log in self.named_logs()})
        return replace(selection, without=self.share.elsewhere)

    def complete(self) -> Contents:
        """All logs at the paths, also where these are some of them."""
        return self if self.share is None else found_in(self.share.paths, assertions=self.assertions)

    def replica_logs(
        self, topics: Sequence[str] | None = None, partitions: Partitions | None = None
    ) -> list[ReplicaLog]:
        """The selected logs.

        Raises NotFound if one of them is not among the files.
        Raises UsageError if `partitions` are numbers without topics, or pairs with topics.
        `topics`: topic names, or one; if null, all but ``__cluster_metadata``.
        `partitions`: numbers, or one, of each of `topics`; or pairs of topic and number, without `topics`.
        """
        if self.share is not None:
            requested = self.share.topic_partitions
            return [log for log in self.logs if (log.where.topic, log.where.partition) in requested]
        names = [topics] if isinstance(topics, str) else topics
        numbers = [partitions] if isinstance(partitions, int) else partitions
        if names is None and numbers is None:
            return [log for log in self.logs if log.where.topic != METADATA_TOPIC]
        present = {(log.where.topic, log.where.partition) for log in self.logs}
        selected = _selected(names, numbers, present)
        return [log for log in self.logs if (log.where.topic, log.where.partition) in selected]

    def named_logs(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> list[ReplicaLog]:
        """As `replica_logs`, without those whose topic or partition is unknown.

        Raises UsageError if those of all selected logs are unknown.
        """
        logs = self.replica_logs(topics, partitions)
        found = [log for log in logs if log.where.partition is not None]
        if logs and not found and logs[0].where.topic == STATE_TOPIC:
            raise UsageError(
                f"No record of {STATE_TOPIC} in {logs[0].name} can be read.",
                do=f"See why: kafka-txn scan {logs[0].name} --table transaction_log.",
            )
        if logs and not found:
            raise UsageError(
                f"The topic and partition of {logs[0].name} are unknown.",
                means="Its name is not one that a broker gives to a partition's folder.",
                do="Rename the folder as the broker does: topic-partition, such as orders-0.",
            )
        return found

    def of_topic(self, topic: str, partitions: Sequence[int] | None = None) -> list[ReplicaLog]:
        """The logs of a topic, none if it is missing; or of some of its partitions, which must exist.

        Raises NotFound if one of the partitions is not among the files.
        """
        if partitions is not None:
            return self.replica_logs([topic], partitions)
        return [log for log in self.logs if log.where.topic == topic]

    def read(self, log: ReplicaLog, *, limit: ReadLimit = ReadLimit.TAIL) -> ReplicaState:
        """The state of a log, read as far back as `limit` at least; read again only for a farther one.

        Of ``__transaction_state``, only the tail or with its records: one read for the partition and its coordinator.
        """
        if log.where.topic == STATE_TOPIC and limit is not ReadLimit.TAIL:
            limit = ReadLimit.RECORDS
        known, found = self._states.get(id(log), (ReadLimit.TAIL, None))
        if found is None or (limit is not known and limit is not ReadLimit.TAIL and known is not ReadLimit.WHOLE):
            found = read_state(
                log,
                self.checkpoints(log.root),
                limit=limit,
                copied_at=self.copies.moment(log),
                is_consistent=self.assertions.consistent_copy,
            )
            self._states[id(log)] = limit, found
            self._room -= len(found.window.neighbourhood.batches)
            if self._room < 0:
                found.window.neighbourhood = MarkerNeighbourhood()
        return found

    def is_settled(self, log: ReplicaLog) -> bool:
        """Whether its state is known without another read: nothing is open in it, and it lacks nothing (`settled`)."""
        end, is_consistent = self.settled.get(log.name), self.assertions.consistent_copy
        return end is not None and is_whole(log, self.checkpoints(log.root), end, is_consistent=is_consistent)

    def checkpoints(self, root: LogDirRoot | None) -> PartitionCheckpoints:
        """The checkpoints of a log directory; empty for a text."""
        if root is None:
            return PartitionCheckpoints()
        if root not in self._checkpoints:
            self._checkpoints[root] = read_partition_checkpoints(root.path)
        return self._checkpoints[root]

    def cleaned(self, log: ReplicaLog) -> int:
        """Offset up to which a log was cleaned, by the cleaner's checkpoint; -1 for never or unknown."""
        return self.checkpoints(log.root).cleaned.get(log.where.tp, -1)

    def scope(self, logs: Iterable[ReplicaLog]) -> FileScope:
        """The scope of these logs and those of the coordinators."""
        if self.share is not None and self.share.scope is not None:
            return self.share.scope
        logs = [*logs, *self.of_topic(STATE_TOPIC)]
        roots = {log.root for log in logs if log.root is not None and not log.is_remote}
        brokers = {log.where.broker_id for log in logs if log.where.broker_id is not None}
        unread = [
            f"{each.path}: {each.reason}"
            for each in self.left_out
            if each.reason.startswith(MAY_HAVE_PARTITIONS) or self._is_moved(each)
        ]
        return FileScope(brokers=brokers, roots=roots, unread=unread)

    def _is_moved(self, folder: SkippedFile) -> bool:
        """Whether a partition was moved to this log directory while it was copied: its own folder is nowhere."""
        name = parse_folder_name(folder.path.name) if folder.reason.startswith(FUTURE) else None
        return name is not None and all(log.where.tp != (name.topic, name.partition) for log in self.logs)

    def by_partition(
        self, logs: Iterable[ReplicaLog], *, limit: ReadLimit = ReadLimit.TAIL
    ) -> Iterator[tuple[TopicPartition, list[ReplicaState]]]:
        """The replicas of each partition, the one with most of the log first; only that one is read by `limit`.

        One of a topic that was deleted since, by the metadata log, comes after all others. The first one has `error`
        also if another one may have what it lacks (`unread`).
        """
        found: dict[TopicPartition, list[ReplicaLog]] = {}
        for log in logs:
            if log.where.topic is not None and log.where.partition is not None:
                found.setdefault(log.where.tp, []).append(log)
        for replicas in found.values():
            if len(replicas) > 1:
                replicas.sort(key=lambda log: _log_rank(self.read(log)), reverse=True)
                if len(topic_ids(map(self.read, replicas))) > 1:
                    current = self._current_topic_ids(self.read(replicas[0]))
                    replicas.sort(key=lambda log: self.read(log).topic_id not in current)
        firsts = sorted((replicas[0] for replicas in found.values()), key=lambda log: log.size, reverse=True)
        with ThreadPoolExecutor(max_workers=self._at_once) as pool:  # small logs are read next to the last large one
            list(pool.map(lambda log: self.read(log, limit=limit), firsts))
        for tp in sorted(found):
            first, *others = states = list(map(self.read, found[tp]))
            unread = self.unread(states)
            yield tp, [replace(first, error=first.error or unread, lost=first.lost or unread), *others]

    def unread(self, replicas: Sequence[ReplicaState]) -> str | None:
        """Why another replica may have what the first one lacks, as an error; null if none may.

        They may be of several clusters; the first one of a topic that was deleted since; or another one reaches
        further, and is damaged, so that this may be a follower that lags: what it shows clear may be held since.
        """
        first, ids = replicas[0], topic_ids(replicas)
        clusters = {each.log.root.cluster_id for each in replicas if each.log.root is not None} - {None}
        if len(clusters) > 1:
            named = ", ".join(sorted(map(str, clusters)))
            return f"SEVERAL_CLUSTERS: a partition of this name is of each of the clusters {named}; read one at a time"
        if len(ids) > 1 and first.topic_id not in self._current_topic_ids(first):
            return (
                f"INCONSISTENT_TOPIC_ID: its topic was deleted and created again: the replicas have {len(ids)} topic "
                "ids, and the metadata log of these files does not show which one is current"
            )
        for each in replicas[1:]:
            is_same = first.topic_id is None or each.topic_id in {None, first.topic_id}
            end = each.reached
            if is_same and each.error is not None and (end is None or _reach(each) > _reach(first)):
                reach = "may reach further" if end is None else f"reaches further, to offset {end}"
                return (
                    f"REPLICA_NOT_READ: the replica {each.log.name} {reach}, and could not be read completely "
                    f"({Error.of(each.error).code})"
                )
        return None

    def _current_topic_ids(self, state: ReplicaState) -> Collection[str]:
        """The current ids of a replica's topic, by the metadata log; none if it is not among the files."""
        topics = self.metadata.state.topics
        return {topic_id for topic_id, name in topics.items() if name == state.log.where.topic}

    def best(self, topic: str) -> Mapping[int, ReplicaState]:
        """For each partition of a topic, the replica with most of the log."""
        return {tp.partition: replicas[0] for tp, replicas in self.by_partition(self.of_topic(topic))}


def found_in(
    paths: Sequence[str | os.PathLike[str] | LogPath], *, assertions: FileAssertions = NO_ASSERTIONS
) -> Contents:
    """All logs at paths, listed once, to be divided among tasks; the errors are those of `LogDir`."""
    return Contents(discover(paths), assertions=assertions)


def topic_ids(replicas: Iterable[ReplicaState]) -> Collection[str | None]:
    """The known ids of a topic; several if it was deleted and created again."""
    return {each.topic_id for each in replicas} - {None}


def _log_rank(state: ReplicaState) -> tuple[bool, int, int]:
    """A newer leader epoch wins over a longer log: what only a deposed leader has is truncated."""
    return state.error is None, *_reach(state)


def _reach(state: ReplicaState) -> tuple[int, int]:
    epoch, end = state.leader_epoch, state.reached
    return -1 if epoch is None else epoch, -1 if end is None else end


def _selected(
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
    present: set[tuple[str | None, int | None]],
) -> set[tuple[str | None, int | None]]:
    requested = [] if partitions is None else requested_partitions(topics, partitions)
    for topic in topics or [topic for topic, _ in requested]:
        if all(topic != name for name, _ in present):
            raise NotFound(
                f"These files contain no partition of topic {topic!r}.",
                do="Check its name, or copy it from its broker, too.",
            )
    if partitions is None:
        return {tp for tp in present if tp[0] in set(topics or ())}
    for topic, number in sorted(set(requested) - present):
        numbers = sorted(found for name, found in present if name == topic and found is not None)
        raise NotFound(
            f"These files do not contain partition {number} of topic {topic!r}, only partitions {_short(numbers)}.",
            do="Copy it from its broker, too.",
        )
    return {*requested}


def _short(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:10]))
    return f"{text} and {len(numbers) - 10} more" if len(numbers) > 10 else text
