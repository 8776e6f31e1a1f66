"""The text of ``kafka-dump-log.sh``, Kafka 2.8 to 4.3, as rows: what is left where only dumps were sent.

The text may hold several dumps, with or without the line ``Dumping ...``, and a terminal's prompts and prose around.
"""

from __future__ import annotations

from toolkit.formats.dumps.dump_reader import read_dump
from toolkit.formats.dumps.dump_section import DumpChunk

__all__ = ["DumpChunk", "read_dump"]
