"""Opened paths, whose files are listed for every call, or once within ``with``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from toolkit.errors import UsageError
from toolkit.schema import Row, Table
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.files.log_dir_layout import LogDirLayout, SkippedFile, discover
from toolkit.sources.logdir.files.replica_log import ReplicaLog

__all__ = ["OpenedPaths", "logs_in_text", "named", "sorted_rows"]

UNNAMED = "UNNAMED: its folder is not named as brokers name it (topic-partition), so its partition is unknown."


class OpenedPaths:
    """Paths, checked once for Kafka files.

    Parameters
    ----------
    paths
        As for `toolkit.sources.logdir.files.log_dir_layout.discover`, which also documents the errors.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self.paths = [Path(path) for path in paths]
        self._texts: dict[tuple[str, int, int], Sequence[ReplicaLog]] = {}
        self._listed: Contents | None = None
        self._layout()

    @property
    def left_out(self) -> list[SkippedFile]:
        """Files and folders that no table, or not every table, reads, with the reason."""
        contents = self._contents()
        unnamed = [SkippedFile(Path(log.name), UNNAMED) for log in contents.logs if log.where.topic is None]
        return [*contents.layout.left_out, *(each for log in contents.logs for each in log.left_out), *unnamed]

    def _layout(self) -> LogDirLayout:
        return discover(self.paths)

    def _contents(self) -> Contents:
        if self._listed is not None:
            return self._listed
        layout = self._layout()
        return Contents(layout, [log for path in layout.texts for log in self._in_text(path)])

    def _in_text(self, path: Path) -> Sequence[ReplicaLog]:
        """The logs in a text, which is read again only if it has changed."""
        try:
            stat = path.stat()
        except OSError as exc:
            raise _unreadable(path, exc) from None
        stamp = str(path), stat.st_size, stat.st_mtime_ns
        if stamp not in self._texts:
            self._texts[stamp] = logs_in_text(path)
        return self._texts[stamp]


def logs_in_text(path: Path) -> Sequence[ReplicaLog]:
    """The logs in a text of kafka-dump-log.sh.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    from toolkit.sources.logdir.files.dump_logs import read_texts  # most paths contain no text

    try:
        return read_texts(path)
    except OSError as exc:
        raise _unreadable(path, exc) from None


def _unreadable(path: Path, exc: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read: {exc.strerror}.")


def named(logs: Iterable[ReplicaLog]) -> list[ReplicaLog]:
    """The logs whose topic and partition are known.

    Raises
    ------
    UsageError
        If no log's are.
    """
    logs = list(logs)
    found = [log for log in logs if log.where.topic is not None]
    if logs and not found:
        raise UsageError(
            f"The topic and partition of {logs[0].name} are unknown.",
            means="Its name is not one that a broker gives to a partition's folder.",
            do="Rename the folder as the broker does: topic-partition, such as orders-0.",
        )
    return found


def sorted_rows(table: Table, rows: Iterable[Row]) -> list[Row]:
    """Rows with all columns, in the table's own order, nulls last."""

    def order(row: Row) -> list[tuple[bool, object]]:
        return [(row[name] is None, 0 if row[name] is None else row[name]) for name in table.sort]

    return sorted(({**dict.fromkeys(table.names), **row} for row in rows), key=order)
