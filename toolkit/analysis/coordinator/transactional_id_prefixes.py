"""Prefixes of transactional ids, and how fast new ids are created under them.

An application that never reuses its ids (Flink's KafkaSink by default, Iceberg's sink, ids with a UUID) adds one for
each run or checkpoint. Coordinators keep each for ``transactional.id.expiration.ms``, 7 days by default.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from toolkit.analysis.coordinator.transaction_owners import UUID
from toolkit.schema.log import TransactionLogRecord

HEX = r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,}"  # of digits and letters: no word, and no number
POD = r"[b-df-hj-np-tv-xz2-9]{8,10}-[b-df-hj-np-tv-xz2-9]{5}"  # Kubernetes: hash of a Deployment, and of its pod
VARIABLE = re.compile(rf"(?:^|[-._:])(?:{UUID}|{HEX}|{POD})(?![0-9a-zA-Z])", re.IGNORECASE)
NUMBERS = re.compile(r"(?:(?:^|[-._:])\d+)+$|\d+$")
RECENT = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)
GROWING_IDS, GROWING_HOURS = 24, 3
"""New ids of a day, and hours in which they were created, from which on a prefix grows: one start creates many."""


@dataclass(slots=True)
class LoggedIds:
    """What ``__transaction_state`` shows of the ids of a prefix."""

    known: set[str] = field(default_factory=set)  # ids that it has a record of, since they expired last
    # time of the first record of each id that it shows to be new: ``Empty``, with epoch 0
    created: dict[str, dt.datetime] = field(default_factory=dict)

    def recent(self, as_of: dt.datetime) -> list[dt.datetime]:
        """When the ids of the last 24 hours were created."""
        return [each for each in self.created.values() if each > as_of - RECENT]

    def per_hour(self, as_of: dt.datetime) -> float:
        """New ids per hour, from the first new one of the last 24 hours on."""
        recent = self.recent(as_of)
        return len(recent) / max((as_of - min(recent)) / HOUR, 1.0) if recent else 0.0

    def is_growing(self, as_of: dt.datetime) -> bool:
        """Whether new ids are created all the time, not only when the application was started."""
        recent = self.recent(as_of)
        hours = {each.replace(minute=0, second=0, microsecond=0) for each in recent}
        return len(recent) >= GROWING_IDS and len(hours) >= GROWING_HOURS


def prefix_of(transactional_id: str) -> str:
    """The id without the numbers at its end, and without a random part (UUID, hash, pod) and all after it.

    >>> prefix_of("flink-tx-0-12"), prefix_of("worker-txn-1f0c6b52-90ab-4c1e-8d31-2f6f0c0a9e11-0")
    ('flink-tx', 'worker-txn')
    """
    random = VARIABLE.search(transactional_id)
    return NUMBERS.sub("", transactional_id[: random.start()] if random else transactional_id)


def logged_ids(records: Iterable[TransactionLogRecord]) -> dict[str, LoggedIds]:
    """Prefix to what records of ``__transaction_state`` show of its ids.

    `records`: those of each partition in the order of their offsets; unreadable ones are left out.
    """
    found: dict[str, LoggedIds] = {}
    for each in records:
        if each.transactional_id is None or each.timestamp is None:
            continue
        prefix = found.setdefault(prefix_of(each.transactional_id), LoggedIds())
        if each.transactional_id not in prefix.known and each.state == "Empty" and each.producer_epoch == 0:
            prefix.created[each.transactional_id] = each.timestamp
        if each.tombstone:  # a later record is a new id's
            prefix.known.discard(each.transactional_id)
        else:
            prefix.known.add(each.transactional_id)
    return found
