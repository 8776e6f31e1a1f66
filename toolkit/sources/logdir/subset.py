"""A share of what paths hold, read as if it were all: what one of many tasks does for a question that they share."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from toolkit.sources.logdir.contents import Contents, FileScope, Partitions
from toolkit.sources.logdir.files.log_dir_layout import LogDirLayout, discover
from toolkit.sources.logdir.files.replica_log import ReplicaLog
from toolkit.sources.logdir.log_dir import LogDir
from toolkit.sources.logdir.opened_paths import logs_in_text

__all__ = ["Subset", "found_in"]


def found_in(paths: Sequence[str | os.PathLike[str]]) -> Contents:
    """What there is to share out: the files of every log, listed once; the errors are those of `LogDir`."""
    layout = discover(paths)
    return Contents(layout, [log for path in layout.texts for log in logs_in_text(path)])


class Subset(LogDir):
    """Some of the logs that were found.

    Parameters
    ----------
    paths
        The paths that were looked into.
    layout
        What of it is read; files are listed again, folders are not.
    places
        Topic and partition of the logs that are asked about; those of the others only help to judge them.
    scope
        What all shares together go by; of these files alone if null.
    consistent_copy, txn_state_partitions
        As for `LogDir`.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        layout: LogDirLayout,
        *,
        places: Collection[tuple[str | None, int | None]],
        scope: FileScope | None = None,
        consistent_copy: bool = False,
        txn_state_partitions: int | None = None,
    ) -> None:
        self._scoped_layout, self._places, self._scope = layout, places, scope
        super().__init__(*paths, consistent_copy=consistent_copy, txn_state_partitions=txn_state_partitions)

    def contents(self) -> Contents:
        """The logs, listed now; whoever is asked about is what `Contents.replica_logs` gives, without being told."""
        return self._contents()

    def _layout(self) -> LogDirLayout:
        return self._scoped_layout

    def _contents(self) -> Contents:
        texts = [log for path in self._scoped_layout.texts for log in self._in_text(path)]
        return _SubsetContents(self._scoped_layout, texts, places=self._places, scope=self._scope)


class _SubsetContents(Contents):
    """Contents of which only some are asked about, whatever is asked: that was decided where they were shared out."""

    def __init__(
        self,
        layout: LogDirLayout,
        texts: Sequence[ReplicaLog],
        *,
        places: Collection[tuple[str | None, int | None]],
        scope: FileScope | None,
    ) -> None:
        super().__init__(layout, texts)
        self._places, self._scope = places, scope

    def replica_logs(
        self, topics: Sequence[str] | None = None, partitions: Partitions | None = None
    ) -> list[ReplicaLog]:
        return [log for log in self.logs if (log.where.topic, log.where.partition) in self._places]

    def scope(self, logs: Iterable[ReplicaLog]) -> FileScope:
        own_scope = super().scope(logs)
        if self._scope is None:
            return own_scope
        times = [time for time in (own_scope.written_at, self._scope.written_at) if time is not None]
        return self._scope._replace(written_at=max(times, default=None))
