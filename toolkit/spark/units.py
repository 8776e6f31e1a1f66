"""Names of what stored tables are replaced by: a log of a partition, a part of a log, a partition.

They are names of folders in Parquet tables, so they hold letters, digits and ``._-@`` only, and are no longer than a
file system allows.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "LOG",
    "SEGMENT",
    "TOPIC_PARTITION",
    "folder_column",
    "folder_of",
    "log_column",
    "log_id",
    "part_id",
    "partition_column",
    "partition_id",
    "segment_column",
]

LOG, SEGMENT, TOPIC_PARTITION = "log", "segment", "topic_partition"
LONGEST = 180
OTHER = r"[^A-Za-z0-9._-]"
FOLDER = r"[^/\\]*$"
LIVE = "live"
DIGITS = 20


def log_id(row: Any) -> str:
    """The log that a row of a bronze table is of: its folder on its broker; what brokers sent is one log.

    Parameters
    ----------
    row
        With ``topic``, ``partition``, ``broker_id`` and ``file``.
    """
    return f"{partition_id(row['topic'], row['partition'])}@{_whose(row)}"


def partition_id(topic: str | None, partition: int | None) -> str:
    """The partition that a row is of; two topics of very long names stay apart."""
    name = re.sub(OTHER, "_", topic or "")
    if len(name) > LONGEST:
        name = name[:LONGEST] + "." + _hash(topic or "")
    return f"{name}-{'' if partition is None else partition}"


def part_id(offset: int) -> str:
    """The part of a log that begins at an offset."""
    return f"{offset:0{DIGITS}d}"


def folder_of(file: str) -> str:
    """The folder of a file, with the slash at its end."""
    return re.sub(FOLDER, "", file)


def folder_column(file: Column) -> Column:
    """`folder_of` of a column."""
    return sf.regexp_replace(file, FOLDER, "")


def log_column(topic: Column, partition: Column, broker_id: Column, file: Column) -> Column:
    """`log_id` of columns."""
    named = sf.concat(sf.coalesce(broker_id.cast("string"), sf.lit("")), sf.lit(":"), folder_column(file))
    whose = sf.coalesce(sf.substring(sf.sha2(named.cast("binary"), 256), 1, 8), sf.lit(LIVE))
    return sf.concat(partition_column(topic, partition), sf.lit("@"), whose)


def partition_column(topic: Column, partition: Column) -> Column:
    """`partition_id` of columns."""
    known = sf.coalesce(topic, sf.lit(""))
    name = sf.regexp_replace(known, OTHER, "_")
    cut = sf.concat(sf.substring(name, 1, LONGEST), sf.lit("."), sf.substring(sf.sha2(known.cast("binary"), 256), 1, 8))
    short = sf.when(sf.length(name) > LONGEST, cut).otherwise(name)
    return sf.concat(short, sf.lit("-"), sf.coalesce(partition.cast("string"), sf.lit("")))


def segment_column(file: Column) -> Column:
    """The part of a log that a whole file is: by the offset that it is named after, else by its name."""
    name = sf.regexp_extract(file, r"([^/\\]*)$", 1)
    digits = sf.regexp_extract(name, rf"^(\d{{{DIGITS}}})\.", 1)
    return sf.when(digits != "", digits).otherwise(sf.substring(sf.sha2(name.cast("binary"), 256), 1, 8))


def _whose(row: Any) -> str:
    if row["file"] is None:
        return LIVE
    return _hash(f"{'' if row['broker_id'] is None else row['broker_id']}:{folder_of(row['file'])}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
