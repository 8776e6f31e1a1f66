"""Output of ``kafka-dump-log.sh``, Kafka 2.8 to 4.3, as rows, for use without log files.

Also what the console consumer's formatter prints of ``__transaction_state``. The text may contain several dumps, with
or without the line ``Dumping ...``, and a terminal's prompts and other text.
"""

from __future__ import annotations

from toolkit.formats.dumps.dump_reader import Dump, read_dump

__all__ = ["Dump", "read_dump"]
