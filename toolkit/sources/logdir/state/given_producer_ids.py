"""Producer ids that a cluster never gave out, by its metadata log (KRaft).

Controllers give producer ids to brokers in blocks, in ascending order, and log the first id that is still free. A
partition with an id from there on was written in another cluster: it is a copy, and only that cluster knows its owner.
An id below proves nothing, since every cluster begins with 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from toolkit.errors import DecodeError
from toolkit.formats.log.batch_records import read_records
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.metadata_records import next_producer_id
from toolkit.formats.log.scan import scan_file_bytes
from toolkit.sources.logdir.contents import METADATA_TOPIC
from toolkit.sources.logdir.files.partition_folder import FolderLog
from toolkit.sources.logdir.files.replica_log import ReplicaLog


def first_free_producer_id(logs: Iterable[ReplicaLog]) -> int | None:
    """The first producer id that the cluster has not given out, by any of its metadata logs.

    Null if the metadata log is not among the files, as with ZooKeeper, or has no such record.
    """
    folders = [log for log in logs if log.where.topic == METADATA_TOPIC and isinstance(log, FolderLog)]
    return max((found for log in folders for file in _files(log) for found in _next_ids(file)), default=None)


def foreign_id_doubts(first_free: int | None, producer_id: int) -> list[str]:
    """What is missing to prove that a transaction without an owner hangs, as `Observation.doubts`."""
    if first_free is None or producer_id < first_free:
        return []
    return [
        f"the cluster that gave out producer id {producer_id}: this one has not, by its metadata log (the next one is "
        f"{first_free}), so the partition is a copy, or the metadata log is older. Diagnose the cluster it came from"
    ]


def _files(log: FolderLog) -> list[Path]:
    """The newest snapshot, and the segments that may have records after it."""
    snapshots = sorted(log.replica.path.glob("*-*.checkpoint"))
    end = int(snapshots[-1].name.partition("-")[0]) if snapshots else 0
    following = [*log.base_offsets[1:], None]
    segments = [
        segment.path
        for segment, base_offset in zip(log.listing.segments, following, strict=False)
        if base_offset is None or base_offset > end
    ]
    return [*snapshots[-1:], *segments]


def _next_ids(file: Path) -> Iterator[int]:
    for scanned, pieces in scan_file_bytes(file):
        for position, attributes in scanned.headers[["position", "attributes"]].tolist():
            begin, piece = next((each for each in pieces if each[0] <= position < each[0] + len(each[1])), (0, b""))
            if attributes & CONTROL or not piece:
                continue
            try:
                for record in read_records(piece, position - begin):
                    if record.value and (found := next_producer_id(record.value)) is not None:
                        yield found
            except DecodeError:
                continue  # what cannot be read proves nothing
