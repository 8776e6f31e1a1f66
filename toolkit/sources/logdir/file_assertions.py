"""What a caller asserts of files: what they do not prove themselves."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from toolkit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAssertions:
    """Assertions of a caller about files.

    Parameters
    ----------
    consistent_copy
        Whether the brokers were stopped when the files were copied, and their replicas in sync.
    as_of
        When the files without a manifest were copied, with its time zone; null if unknown.
    txn_state_partitions
        Number of partitions of ``__transaction_state``; null for 50, or as many as the files show.

    Raises
    ------
    UsageError
        If the time has no zone or lies in the future, or the number is not positive.
    """

    consistent_copy: bool = False
    as_of: dt.datetime | None = None
    txn_state_partitions: int | None = None

    def __post_init__(self) -> None:
        if self.txn_state_partitions is not None and self.txn_state_partitions < 1:
            raise UsageError(f"__transaction_state cannot have {self.txn_state_partitions} partitions.")
        if self.as_of is not None and (self.as_of.tzinfo is None or self.as_of > dt.datetime.now(dt.UTC)):
            raise UsageError(
                f"The files cannot be of {self.as_of}.",
                means="It has no time zone." if self.as_of.tzinfo is None else "It lies in the future.",
                do="Pass the time at which they were copied, with its zone.",
            )


NO_ASSERTIONS = FileAssertions()
