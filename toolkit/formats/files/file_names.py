"""Names in a log directory: which partition a folder holds, and which offset and kind a file is of.

Sources: ``LocalLog.parseTopicPartitionName``, ``UnifiedLog`` and ``LogFileUtils`` in Kafka, 2.8 to 4.3.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["FileKind", "file_kind", "folder_suffix", "partition_of", "segment_base_offset"]

FOLDER = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})(?:\.[^.\s]+-(?P<suffix>delete|future|stray))?"
)
FILE = re.compile(
    r"(?P<offset>[0-9]{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)(?:\.(?P<suffix>deleted|cleaned|swap))?"
)
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


class FileKind(NamedTuple):
    """What a file of a partition folder is.

    Parameters
    ----------
    kind
        ``log``, ``index``, ``timeindex``, ``txnindex`` or ``snapshot`` (producer state).
    suffix
        ``deleted`` (no part of the log any more, removed after ``file.delete.delay.ms``), ``cleaned`` (being written by
        the cleaner, not yet part of the log), ``swap`` (finished by the cleaner, replacing the files whose offsets it
        transactions), or null for a file of the log as it is.
    """

    kind: str
    suffix: str | None = None


def partition_of(folder_name: str) -> tuple[str, int] | None:
    """Topic and partition that a folder holds; null for a name that no broker gives a partition.

    Of a folder named in exactly 255 characters, to be deleted or stray, the end of the topic may be cut off.

    Examples
    --------
    >>> partition_of("my-orders-3")
    ('my-orders', 3)
    >>> partition_of("my-orders-3.0f81b0f6c1a8497fb47e1c9c9e2a6d1b-delete")
    ('my-orders', 3)
    """
    found = _folder(folder_name)
    return (found["topic"], int(found["partition"])) if found else None


def folder_suffix(folder_name: str) -> str | None:
    """Why a partition's folder is not (or not yet) its log; null for one that is, and for no partition's folder.

    Returns
    -------
    str or None
        ``"delete"``: the partition was deleted or moved away, and the folder goes after ``file.delete.delay.ms``.
        ``"future"``: a copy on its way to another log directory. ``"stray"`` (3.7 and newer): the metadata no longer
        places the partition on this broker.
    """
    found = _folder(folder_name)
    return found["suffix"] if found else None


def segment_base_offset(file_name: str) -> int | None:
    """Offset in the name of a file of a partition folder; null for other files.

    For a ``snapshot`` it is the offset up to which, itself apart, the producer state goes; for the rest the base offset
    of the segment.
    """
    found = _file(file_name)
    return int(found["offset"]) if found else None


def file_kind(file_name: str) -> FileKind | None:
    """What a file of a partition folder is, by its name; null for checkpoints and all that is not known here.

    Examples
    --------
    >>> file_kind("00000000000000004711.txnindex")
    FileKind(kind='txnindex', suffix=None)
    >>> file_kind("00000000000000000000.log.swap")
    FileKind(kind='log', suffix='swap')
    """
    found = _file(file_name)
    return FileKind(found["kind"], found["suffix"]) if found else None


def _folder(name: str) -> re.Match[str] | None:
    found = FOLDER.fullmatch(name)
    legal = found and found["topic"] not in {".", ".."} and int(found["partition"]) <= MAX_INT32
    return found if legal else None


def _file(name: str) -> re.Match[str] | None:
    found = FILE.fullmatch(name)
    return found if found and int(found["offset"]) <= MAX_INT64 else None
