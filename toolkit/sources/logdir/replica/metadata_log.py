"""``__cluster_metadata`` in files: what the controllers have decided, by the newest snapshot and the segments.

Each node of KRaft has its replica of that log, so several log directories repeat the same records.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from toolkit.formats.log.metadata_records import MetadataState, metadata_log
from toolkit.formats.log.scan import in_pieces, scan_file_bytes
from toolkit.formats.log_paths import LogPath, scandir
from toolkit.schema.log import MetadataLogRecord
from toolkit.schema.table import TopicPartition
from toolkit.sources.logdir.replica.replica_log import FolderLog

SNAPSHOT_NAME = re.compile(r"[0-9]{20}-.*\.checkpoint")
NO_METADATA_LOG = (
    "NO_METADATA_LOG: the files have no __cluster_metadata-0, as with ZooKeeper, or it was not copied; it is on every "
    "controller and broker."
)
NEWEST = dt.datetime.max.replace(tzinfo=dt.UTC)


class MetadataEnd(NamedTuple):
    """What a replica of the metadata log says at its end."""

    state: MetadataState  # what holds there
    log: FolderLog | None = None  # the replica; null without any
    offset: int = -1  # of its last record; -1 without any
    error: str | None = None  # why that is not all, other than a torn end; null if it is

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; null if the metadata log is not whole, or does not have the topic."""
        if self.error is not None:
            return None
        return sum(self.state.topics.get(topic_id) == topic for topic_id, _ in self.state.partitions) or None

    def stale_replica_doubts(self, tp: TopicPartition, broker_id: int | None) -> list[str]:
        """What is missing if a broker's replica is not in sync there, as `Observation.doubts`."""
        partition = None if self.error is not None else self.state.partition(tp.topic, tp.partition)
        if partition is None or broker_id is None or broker_id in (isr := partition.isr or ()):
            return []
        return [
            f"a replica of {tp.topic}-{tp.partition} in sync: by the metadata log, that of broker {broker_id} was not "
            f"(ISR {', '.join(map(str, isr)) or 'empty'}), so its log may end before the marker"
        ]


def metadata_end(log: FolderLog) -> MetadataEnd:
    """Read a replica from its newest snapshot on."""
    state, offset, error = MetadataState(), -1, None
    for record in metadata_records(log, state, since=NEWEST):
        offset = offset if record.offset is None else record.offset
        if error is None and record.error is not None and not record.error.startswith("TORN_TAIL"):
            error = record.error
    return MetadataEnd(state, log, offset, error)


def metadata_records(
    log: FolderLog, state: MetadataState | None = None, *, since: dt.datetime | None = None
) -> Iterator[MetadataLogRecord]:
    """The records of a replica, in the order of the log, each with what holds after it.

    A snapshot replaces the segments that are deleted: the oldest one that has what is missing before the first segment.

    `state`: filled with what the records say.
    `since`: begin with the newest snapshot that was written before this time, `NEWEST` for the state at the end.
    """
    if log.error:
        yield MetadataLogRecord(metadata_node_id=log.where.broker_id, file=log.name, error=log.error)
        return
    state, begin = MetadataState() if state is None else state, 0
    first = log.base_offsets[0] if log.base_offsets else None
    snapshots = [(path, end) for path, end in _snapshots(log) if first is None or end >= first]
    if first != 0 and not snapshots:
        error = f"NO_SNAPSHOT: no snapshot has the records before offset {first}."
        yield MetadataLogRecord(metadata_node_id=log.where.broker_id, file=log.name, error=error)
    needed = snapshots[-1:] if first is None else snapshots[:1] if first else []
    if since is not None and first is not None:
        needed = next(([each] for each in reversed(snapshots) if _is_before(log, each[0], since)), needed)
    for snapshot, begin in needed:
        for record in _in_file(log, snapshot):
            yield state.add(replace(record, offset=begin - 1))
    for segment, following in zip_longest(log.segments, log.base_offsets[1:]):
        if following is None or following > begin:
            for record in _in_file(log, segment.path):
                if record.error or record.offset is None or record.offset >= begin:
                    yield state.add(record)


def _is_before(log: FolderLog, snapshot: LogPath, time: dt.datetime) -> bool:
    record = next(_in_file(log, snapshot), None)
    return record is not None and record.timestamp is not None and record.timestamp < time


def _snapshots(log: FolderLog) -> list[tuple[LogPath, int]]:
    """The snapshots, and the offset after the last one that each includes."""
    names = sorted(entry.name for entry in scandir(log.replica.path))
    return [(log.replica.path / name, int(name[:20])) for name in names if SNAPSHOT_NAME.fullmatch(name)]


def _in_file(log: FolderLog, file: LogPath) -> Iterator[MetadataLogRecord]:
    where = MetadataLogRecord(metadata_node_id=log.where.broker_id, file=str(file))
    for scanned, pieces in scan_file_bytes(file):
        try:
            for headers, begin, buf in in_pieces(scanned.headers, pieces, str(file)):
                for position in headers["position"].tolist():
                    yield from metadata_log(buf, position - begin, where=where, begin=begin)
        except OSError as exc:
            yield replace(where, error=f"UNREADABLE: {exc.strerror}.")
        for damage in scanned.damage:
            yield replace(where, position=damage.position, error=damage.reason)
