"""What identifies a log from run to run: cluster, broker, topic id and partition, wherever its files are.

A moved or dated copy of a log directory has the same logs, and a topic that was created again has new ones. Ids that
are missing: without ``meta.properties``, the folder of the log takes their place, because nothing else distinguishes
replicas; without a topic id, the topic is assumed to be the same as long as its first batch is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from toolkit.errors import UsageError
from toolkit.formats.batches import HEADER_SIZE
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.scan import bytes_at
from toolkit.sources.logdir.replica_log import FolderLog

if TYPE_CHECKING:
    from toolkit.sources.logdir.contents import Contents
    from toolkit.sources.logdir.replica_log import ReplicaLog

LEADER = "leader"
"""In place of a broker, where a log is that of the partition, whichever broker has it."""
LEADER_EPOCHS, METADATA = "leader-epoch-checkpoint", "partition.metadata"
COMPACTED = {STATE_TOPIC, OFFSETS_TOPIC}


class Origin(NamedTuple):
    """Cluster and topic id of a log, null if unknown: the partitions of one topic are only those with the same."""

    cluster_id: str | None
    topic_id: str | None


class LogIdentity(NamedTuple):
    """The parts of the name of a log.

    Parameters
    ----------
    cluster_id, broker, topic_id
        Null if unknown.
    place
        Topic and partition as in a folder's name; the whole path if cluster or broker is unknown.
    """

    cluster_id: str | None
    broker: str | None
    topic_id: str | None
    place: str

    @classmethod
    def of(cls, name: str) -> LogIdentity:
        """The parts of a name; of a name of another form only the place."""
        parts = name.split("/", 3)
        if len(parts) < 4 or ":" in parts[0]:
            return cls(None, None, None, name)
        return cls(parts[0] or None, parts[1] or None, parts[2] or None, parts[3])

    def __str__(self) -> str:
        return "/".join(each or "" for each in self)

    @property
    def origin(self) -> Origin:
        """Cluster and topic id."""
        return Origin(self.cluster_id, self.topic_id)

    @property
    def broker_id(self) -> int | None:
        """Number of the broker; null if it is unknown, or any."""
        return int(self.broker) if self.broker is not None and self.broker != LEADER else None

    @property
    def is_by_path(self) -> bool:
        """Whether it depends on where the files are."""
        return self.cluster_id is None or self.broker is None


class LogMetadata(NamedTuple):
    """What the files next to the segments say: the start offset of each leader epoch, and the topic id."""

    leader_epochs: dict[int, int]
    topic_id: str | None


class LogNames:
    """Names of the logs at some paths; their metadata is read once.

    `contents`: the logs.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._metadata: dict[int, LogMetadata] = {}

    def metadata(self, log: ReplicaLog) -> LogMetadata:
        """The metadata of a log; nothing of a log that cannot be read."""
        if id(log) not in self._metadata:
            self._metadata[id(log)] = _read_metadata(log)
        return self._metadata[id(log)]

    def identity(self, log: ReplicaLog) -> LogIdentity:
        """What identifies a log."""
        if log.is_text or not isinstance(log, FolderLog):
            return LogIdentity(None, None, None, f"{log.name}#{log.where}")
        root, where = log.replica.root, log.where
        broker = None if where.broker_id is None else str(where.broker_id)
        topic_id = self.metadata(log).topic_id
        is_whole = where.topic is not None and log.replica.only is None and not log.is_remote
        if root.cluster_id and broker and is_whole:
            return LogIdentity(root.cluster_id, broker, topic_id, str(where))
        manifest = self._contents.copies.manifest(root)
        folder = f"{manifest.source}/{log.replica.path.name}" if manifest and is_whole else log.name
        return LogIdentity(None, broker, topic_id, folder)

    def name(self, log: ReplicaLog) -> str:
        """The name of a log."""
        return str(self.identity(log))

    def by_name(self, logs: Iterable[ReplicaLog]) -> dict[str, ReplicaLog]:
        """Logs by name: of several copies of one log, the one that reaches furthest.

        Raises UsageError if two logs may be of two brokers, but nothing in their files says so.
        """
        found: dict[str, ReplicaLog] = {}
        for log in logs:
            name = self.name(log)
            other = found.setdefault(name, log)
            if other is log:
                continue
            if LogIdentity.of(name).is_by_path:
                raise UsageError(
                    f"{other.name} and {log.name} may be of two brokers, or of one at two times.",
                    means="Both log directories are copies of the same path, and neither has a meta.properties.",
                    do="Copy meta.properties, too, or read one of them at a time.",
                )
            found[name] = max(other, log, key=self._reach)
        return found

    def first_batch(self, log: ReplicaLog) -> str | None:
        """Base offset and checksum of the first batch of a log without a topic id; null where these may change."""
        if not isinstance(log, FolderLog) or log.error or self.metadata(log).topic_id or not log.segments:
            return None
        is_cleaned = self._contents.cleaned(log) >= 0 or not self._contents.checkpoints(log.root).has_cleaned
        if is_cleaned or log.where.topic in COMPACTED:
            return None
        try:
            header = bytes_at(str(log.segments[0].path), 0, HEADER_SIZE)
        except OSError:
            return None
        if len(header) < HEADER_SIZE or not any(header):
            return None
        return f"{int.from_bytes(header[:8], 'big')}:{int.from_bytes(header[17:21], 'big')}"

    def _reach(self, log: ReplicaLog) -> tuple[int, int, int]:
        epochs = self.metadata(log).leader_epochs
        newest_size = log.newest_size if isinstance(log, FolderLog) else 0
        return max(epochs, default=-1), max(log.base_offsets, default=-1), newest_size


def _read_metadata(log: ReplicaLog) -> LogMetadata:
    epochs: dict[int, int] = {}
    topic_id = None
    for entry in () if log.error else log.checkpoint_rows():
        if entry.error:
            continue
        if entry.name == LEADER_EPOCHS and entry.leader_epoch is not None and entry.offset is not None:
            epochs[entry.leader_epoch] = entry.offset
        elif entry.name == METADATA and entry.key == "topic_id":
            topic_id = entry.value
    return LogMetadata(epochs, topic_id)
