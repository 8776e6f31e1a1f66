"""Names in a log directory: the partition of a folder, and the offset and kind of a file.

Sources: ``LocalLog.parseTopicPartitionName``, ``UnifiedLog`` and ``LogFileUtils`` in Kafka, 2.8 to 4.3.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FOLDER = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})(?:\.[^.\s]+-(?P<suffix>delete|future|stray))?"
)
FILE = re.compile(
    r"(?P<offset>[0-9]{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)(?:\.(?P<suffix>deleted|cleaned|swap))?"
)
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


class FolderName(NamedTuple):
    """The name of a partition's folder.

    Parameters
    ----------
    topic, partition
        The partition. If the name has exactly 255 characters and a suffix, the end of the topic may be cut off.
    suffix
        ``delete``: the partition was deleted or moved away, and the folder is removed after ``file.delete.delay.ms``.
        ``future``: a copy that is being moved to this log directory. ``stray`` (3.7 and newer): the metadata no longer
        places the partition on this broker. Null for the partition's log.
    """

    topic: str
    partition: int
    suffix: str | None = None


class FileName(NamedTuple):
    """The name of a file in a partition's folder.

    Parameters
    ----------
    offset
        Base offset of the segment; of a ``snapshot``, the offset after the last batch in its producer state.
    kind
        ``log``, ``index``, ``timeindex``, ``txnindex`` or ``snapshot`` (producer state).
    suffix
        ``deleted`` (no longer part of the log, removed after ``file.delete.delay.ms``), ``cleaned`` (being written by
        the cleaner, not yet part of the log), ``swap`` (finished by the cleaner, replaces the files whose offsets it
        covers), or null for a regular file of the log.
    """

    offset: int
    kind: str
    suffix: str | None = None


def parse_folder_name(name: str) -> FolderName | None:
    """Parse the name of a partition's folder; null for a name that no broker gives.

    Examples
    --------
    >>> parse_folder_name("my-orders-3")
    FolderName(topic='my-orders', partition=3, suffix=None)
    >>> parse_folder_name("my-orders-3.0f81b0f6c1a8497fb47e1c9c9e2a6d1b-delete")
    FolderName(topic='my-orders', partition=3, suffix='delete')
    """
    found = FOLDER.fullmatch(name)
    if not found or found["topic"] in {".", ".."} or int(found["partition"]) > MAX_INT32:
        return None
    return FolderName(found["topic"], int(found["partition"]), found["suffix"])


def parse_file_name(name: str) -> FileName | None:
    """Parse the name of a file in a partition's folder; null for checkpoints and unknown files.

    Examples
    --------
    >>> parse_file_name("00000000000000004711.txnindex")
    FileName(offset=4711, kind='txnindex', suffix=None)
    >>> parse_file_name("00000000000000000000.log.swap")
    FileName(offset=0, kind='log', suffix='swap')
    """
    found = FILE.fullmatch(name)
    if not found or int(found["offset"]) > MAX_INT64:
        return None
    return FileName(int(found["offset"]), found["kind"], found["suffix"])
