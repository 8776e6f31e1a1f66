"""Log directories, copied files and output of kafka-dump-log.sh as tables, without a running broker."""

from __future__ import annotations

from toolkit.sources.logdir.log_dir import LogDir

__all__ = ["LogDir"]
