"""Log directories, copied files and printed texts as tables: what is left where the broker is gone."""

from __future__ import annotations

from toolkit.sources.logdir.log_dir import LogDir

__all__ = ["LogDir"]
