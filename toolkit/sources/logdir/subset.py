"""Some of the logs at paths, for one of several tasks that share the work."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from toolkit.formats.log_paths import LogPath
from toolkit.schema.table import Selection, TopicPartition
from toolkit.sources.logdir.contents import Contents, FileScope, Partitions
from toolkit.sources.logdir.file_assertions import NO_ASSERTIONS, FileAssertions
from toolkit.sources.logdir.log_dir import LogDir
from toolkit.sources.logdir.replica.dump_logs import read_texts
from toolkit.sources.logdir.replica.log_dir_layout import LogDirLayout, discover
from toolkit.sources.logdir.replica.replica_log import ReplicaLog


def found_in(
    paths: Sequence[str | os.PathLike[str] | LogPath], *, assertions: FileAssertions = NO_ASSERTIONS
) -> Contents:
    """All logs at paths, listed once, to be divided among tasks; the errors are those of `LogDir`."""
    layout = discover(paths)
    return Contents(layout, [log for path in layout.texts for log in read_texts(path)], assertions=assertions)


class Subset(LogDir):
    """Some of the logs that were found.

    `layout`: the folders and texts to read; files are listed again, folders are not.
    `topic_partitions`: topic and partition of the requested logs; the other logs only help to diagnose them.
    `elsewhere`: partitions of the other subsets, for the one that answers for those in none; null for another one.
    `scope`: the scope of all subsets together; that of these files alone if null.
    `assertions`: what the caller asserts of the files.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str] | LogPath],
        layout: LogDirLayout,
        *,
        topic_partitions: Collection[tuple[str | None, int | None]],
        elsewhere: Collection[TopicPartition] | None = None,
        scope: FileScope | None = None,
        assertions: FileAssertions = NO_ASSERTIONS,
    ) -> None:
        self._scoped_layout, self._topic_partitions, self._scope = layout, topic_partitions, scope
        self._elsewhere = elsewhere
        super().__init__(*paths)
        self.assertions = assertions

    def _layout(self) -> LogDirLayout:
        return self._scoped_layout

    def contents(self) -> Contents:
        """The logs as of now; `Contents.replica_logs` returns the requested ones without arguments."""
        texts = [log for path in self._scoped_layout.texts for log in self._in_text(path)]
        return _SubsetContents(
            self._scoped_layout,
            texts,
            paths=self.paths,
            topic_partitions=self._topic_partitions,
            elsewhere=self._elsewhere,
            scope=self._scope,
            assertions=self.assertions,
        )


class _SubsetContents(Contents):
    """Contents whose requested logs were fixed when the work was divided; arguments do not change them."""

    def __init__(
        self,
        layout: LogDirLayout,
        texts: Sequence[ReplicaLog],
        *,
        paths: Sequence[str | os.PathLike[str] | LogPath],
        topic_partitions: Collection[tuple[str | None, int | None]],
        elsewhere: Collection[TopicPartition] | None,
        scope: FileScope | None,
        assertions: FileAssertions,
    ) -> None:
        super().__init__(layout, texts, assertions=assertions)
        self._paths = paths
        self._topic_partitions, self._elsewhere, self._scope = topic_partitions, elsewhere, scope

    def selection(self, selection: Selection) -> Selection:
        if self._elsewhere is None:
            return replace(selection, partitions={log.where.tp for log in self.named_logs()})
        return replace(selection, without=self._elsewhere)

    def complete(self) -> Contents:
        return found_in(self._paths)

    def replica_logs(
        self, topics: Sequence[str] | None = None, partitions: Partitions | None = None
    ) -> list[ReplicaLog]:
        return [log for log in self.logs if (log.where.topic, log.where.partition) in self._topic_partitions]

    def scope(self, logs: Iterable[ReplicaLog]) -> FileScope:
        return super().scope(logs) if self._scope is None else self._scope
