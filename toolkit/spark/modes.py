"""What becomes of rows that say what could not be read: Spark's three modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import BrokerError

__all__ = ["MODES", "in_mode"]

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")


def in_mode(tables: Iterable[pa.Table], mode: str) -> Iterator[pa.Table]:
    """Keep the rows with `error` (PERMISSIVE), leave them out (DROPMALFORMED), or end at the first (FAILFAST).

    Raises
    ------
    BrokerError
        In FAILFAST, by Kafka's name for the first error.
    """
    for table in tables:
        failed = pc.is_valid(table["error"])
        if mode == "FAILFAST" and pc.any(failed).as_py():
            (row,) = table.filter(failed).slice(0, 1).to_pylist()
            code, _, text = row["error"].partition(": ")
            place = f"{row['topic']}-{row['partition']}" if row.get("topic") else "The log"
            raise BrokerError(f"{place} could not be read: {text or code}", code=code)
        yield table.filter(pc.invert(failed)) if mode == "DROPMALFORMED" else table
