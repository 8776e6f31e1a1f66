"""Transactional ids by prefix: how many, in which states, and how fast new ones are created.

An application that never reuses its ids (Flink's KafkaSink by default, Iceberg's sink, ids with a UUID) adds one for
each run or checkpoint. Coordinators keep each for ``transactional.id.expiration.ms``, 7 days by default.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from toolkit.analysis.coordinator.transaction_owners import UUID
from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.schema.live import IdOwner, IdPrefix, Transaction
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

    updates: dict[str, dt.datetime] = field(default_factory=dict)  # time of the newest record of each id
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


def logged_ids(records: Iterable[TransactionLogRecord]) -> dict[str, LoggedIds] | None:
    """Prefix to what records of ``__transaction_state`` show of its ids; null if some could not be read.

    `records`: those of each partition in the order of their offsets.
    """
    found: dict[str, LoggedIds] = {}
    for each in records:
        if each.error:
            return None
        if each.transactional_id is None or each.timestamp is None:
            continue
        prefix = found.setdefault(prefix_of(each.transactional_id), LoggedIds())
        is_first = each.transactional_id not in prefix.updates
        if is_first and each.state == "Empty" and each.producer_epoch == 0:
            prefix.created[each.transactional_id] = each.timestamp
        if each.tombstone:  # a later record is a new id's
            prefix.updates.pop(each.transactional_id, None)
        else:
            prefix.updates[each.transactional_id] = each.timestamp
    return found


def transactional_id_prefixes(
    transactions: Sequence[Transaction],
    owners: Iterable[IdOwner],
    logged: Mapping[str, LoggedIds] | None,
    *,
    as_of: dt.datetime,
) -> Iterator[IdPrefix]:
    """Ids by prefix, and a record for each broker or partition whose ids could not be read.

    `transactions`, `owners`: state and owner of every id; errors without id are kept.
    `logged`: what the coordinators' log shows, by prefix; null if it could not be read.
    `as_of`: up to when the log was read.
    """
    of_id = {each.transactional_id: each for each in owners if each.confidence != "unknown"}
    by_prefix: dict[str, list[Transaction]] = {}
    for each in transactions:
        if each.transactional_id is None:
            yield IdPrefix(broker_id=each.broker_id, observed_at=each.observed_at, error=each.error)
        else:
            by_prefix.setdefault(prefix_of(each.transactional_id), []).append(each)
    for prefix, ids in by_prefix.items():
        states = Counter(each.state or "unknown" for each in ids)
        applications = {_application(of_id.get(each.transactional_id)) for each in ids}
        log = None if logged is None else logged.get(prefix, LoggedIds())
        times = {} if log is None else log.updates
        updates = [times[name] for each in ids if (name := each.transactional_id) in times]
        yield IdPrefix(
            prefix=prefix,
            ids=len(ids),
            open_ids=sum(count for state, count in states.items() if state in OPEN_STATES),
            states=tuple(f"{state} {count}" for state, count in states.most_common()),
            owner=applications.pop() if len(applications) == 1 else None,
            oldest_update=min(updates, default=None),
            newest_update=max(updates, default=None),
            new_ids=None if log is None else len(log.recent(as_of)),
            new_ids_per_hour=None if log is None else round(log.per_hour(as_of), 1),
            observed_at=max(each.observed_at for each in ids),
        )


def _application(owner: IdOwner | None) -> str | None:
    return f"{owner.framework or 'application'} {owner.application} ({owner.confidence})" if owner else None
