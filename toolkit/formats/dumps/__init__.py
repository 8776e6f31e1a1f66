"""Output of ``kafka-dump-log.sh``, Kafka 2.8 to 4.3, or of a console consumer of ``__transaction_state``, as rows."""

from toolkit.formats.dumps.dump_reader import Dump, read_dump

__all__ = ["Dump", "read_dump"]
