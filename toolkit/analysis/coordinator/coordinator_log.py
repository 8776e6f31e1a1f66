"""Records of ``__transaction_state`` as evidence: what they show of each transactional id, and since when."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.log import PastTransaction, TransactionLogRecord


@dataclass(frozen=True)
class IdHistory:
    """The records of a transactional id.

    Parameters
    ----------
    transactional_id
        The id.
    rows
        Its readable rows of ``schema.TRANSACTION_LOG``, in offset order.
    """

    transactional_id: str
    rows: Sequence[Row]

    @cached_property
    def records(self) -> Sequence[TransactionLogRecord]:
        """The records."""
        return [TransactionLogRecord.of(row) for row in self.rows]

    @cached_property
    def transactions(self) -> Sequence[PastTransaction]:
        """Its transactions, in order; the last one may be open."""
        past = (PastTransaction.of(row) for row in transaction_history(self.rows))
        return [each for each in past if each.kind == "transaction"]

    def first_of(self, producer_id: int) -> TransactionLogRecord | None:
        """The first record that has the producer id as its own."""
        return next((record for record in self.records if record.producer_id == producer_id), None)


@dataclass(frozen=True, kw_only=True)
class CoordinatorLog:
    """Records of ``__transaction_state``.

    Parameters
    ----------
    rows
        Rows of ``schema.TRANSACTION_LOG`` of the relevant transactional ids, in offset order within a partition.
    unread
        Why records may be missing, one sentence per reason; empty if all that are left since the time they are needed
        for were read.
    since
        For each partition that was not read from its beginning: the time of the first record read.
    leaders
        For each partition, where known: its leader and the leader epoch when it was read.
    """

    rows: Sequence[Row] = ()
    unread: Sequence[str] = ()
    since: Mapping[int, dt.datetime] = field(default_factory=dict)
    leaders: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def gaps(self) -> Sequence[str]:
        """Why records may be missing, those among the rows that could not be read included."""
        errors = sorted({str(row["error"]).partition(":")[0] for row in self.rows if row["error"]})
        return [*self.unread, *([f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else [])]

    @cached_property
    def histories(self) -> Mapping[str, IdHistory]:
        """The records by transactional id."""
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row["transactional_id"] is not None and not row["error"]:
                found[row["transactional_id"]].append(row)
        return {name: IdHistory(name, rows) for name, rows in found.items()}

    @cached_property
    def ids_by_producer(self) -> Mapping[int, Sequence[str]]:
        """The transactional ids with a record of a producer id: as its own, as the previous, or as the next one."""
        found: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for name, history in self.histories.items():
            for row in history.rows:
                for column in ("producer_id", "previous_producer_id", "next_producer_id"):
                    if row[column] is not None:
                        found[row[column]][name] = None
        return {producer_id: list(names) for producer_id, names in found.items()}

    def of(self, producer_id: int, transactional_id: str | None) -> Sequence[IdHistory]:
        """Histories of a producer id's owner; if it has none any more, of every id that had it."""
        names = [transactional_id] if transactional_id is not None else self.ids_by_producer.get(producer_id, ())
        return [self.histories[name] for name in names if name in self.histories]


def events_of(histories: Iterable[IdHistory]) -> list[TransactionLogRecord]:
    """The records of several ids, one id after the other."""
    return [record for history in histories for record in history.records]
