"""A share of what paths hold, read as if it were all: what one of many tasks does for a question that they share."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from toolkit.sources.logdir.contents import Contents, Partitions, Scope
from toolkit.sources.logdir.layout import Layout, discover
from toolkit.sources.logdir.log import Log
from toolkit.sources.logdir.log_dir import LogDir
from toolkit.sources.logdir.opened import logs_in_text

__all__ = ["Share", "found_in"]


def found_in(paths: Sequence[str | os.PathLike[str]]) -> Contents:
    """What there is to share out: the files of every log, listed once; the errors are those of `LogDir`."""
    layout = discover(paths)
    return Contents(layout, [log for path in layout.texts for log in logs_in_text(path)])


class Share(LogDir):
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
    at_rest, txn_state_partitions
        As for `LogDir`.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        layout: Layout,
        *,
        places: Collection[tuple[str | None, int | None]],
        scope: Scope | None = None,
        at_rest: bool = False,
        txn_state_partitions: int | None = None,
    ) -> None:
        self._given, self._places, self._scope = layout, places, scope
        super().__init__(*paths, at_rest=at_rest, txn_state_partitions=txn_state_partitions)

    def contents(self) -> Contents:
        """The logs, listed now; whoever is asked about is what `Contents.asked` gives, without being told."""
        return self._contents()

    def _layout(self) -> Layout:
        return self._given

    def _contents(self) -> Contents:
        texts = [log for path in self._given.texts for log in self._in_text(path)]
        return _Shared(self._given, texts, places=self._places, scope=self._scope)


class _Shared(Contents):
    """Contents of which only some are asked about, whatever is asked: that was decided where they were shared out."""

    def __init__(
        self,
        layout: Layout,
        texts: Sequence[Log],
        *,
        places: Collection[tuple[str | None, int | None]],
        scope: Scope | None,
    ) -> None:
        super().__init__(layout, texts)
        self._places, self._scope = places, scope

    def asked(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> list[Log]:
        return [log for log in self.logs if (log.where.topic, log.where.partition) in self._places]

    def scope(self, logs: Iterable[Log]) -> Scope:
        mine = super().scope(logs)
        if self._scope is None:
            return mine
        times = [time for time in (mine.written_at, self._scope.written_at) if time is not None]
        return self._scope._replace(written_at=max(times, default=None))
