"""Logs whose name changes from one run to the next, and what is assumed where ids are missing.

A path becomes cluster and broker once ``meta.properties`` is copied, too. A topic gets an id when its cluster is
upgraded. And the log of a topic that was deleted and created again without a topic id makes way for the new one: its
rows stay, under a number in place of the topic id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from toolkit.schema.table import EPOCH
from toolkit.spark.datasources.log_identity import LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState

EARLIER = "~"
"""Before a number in place of a topic id: an earlier topic of that name, deleted and created again."""


def renames(listings: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> dict[str, str]:
    """New names of stored logs, by their old names.

    `listings`: the listing of each log, by name.
    `states`: the stored states, by log.
    """
    by_place: dict[LogIdentity, str] = {}
    for name, _ in sorted(states.items(), key=lambda each: each[1].latest or EPOCH):  # the newest topic is the last
        identity = LogIdentity.of(name)
        if not (identity.topic_id or "").startswith(EARLIER):
            by_place[identity._replace(topic_id=None)] = name
    old_names = _names_by_path(listings, states)
    found: dict[str, str] = {}
    for name, row in listings.items():
        identity = LogIdentity.of(name)
        stored = name if name in states else old_names.get(name) or by_place.get(identity._replace(topic_id=None))
        if stored is None:
            continue
        state = states[stored]
        if stored == name or (row.topic_id or state.topic_id) is None:
            if row.topic_id is None and _is_other_topic(row, state):
                found[stored] = _earlier_name(identity, [*states, *found.values()])
            elif stored != name:
                found[stored] = name
        elif row.topic_id is None or state.topic_id is None or stored in old_names.values():
            found[stored] = name
    return found


def _is_other_topic(row: LogListing, state: StoredState) -> bool:
    """Whether a log without a topic id is of a topic that was created again since."""
    first_batch = row.first_batch
    if first_batch is not None and state.first_batch is not None:
        (base, crc), (known_base, known_crc) = (each.split(":") for each in (first_batch, state.first_batch))
        if base == known_base:
            return bool(crc != known_crc)
    if row.leader_epochs is None:  # of a live cluster, which never loses committed records
        end, known_end = row.high_watermark, state.log_end_offset
        return end is not None and known_end is not None and end < known_end
    epochs = [int(epoch) for epoch in json.loads(row.leader_epochs)]
    return bool(epochs) and state.leader_epoch is not None and max(epochs) < state.leader_epoch


def _earlier_name(identity: LogIdentity, names: Iterable[str]) -> str:
    taken = set(names)
    numbered = (str(identity._replace(topic_id=f"{EARLIER}{number}")) for number in range(1, len(taken) + 2))
    return next(name for name in numbered if name not in taken)


def _names_by_path(listings: Mapping[str, LogListing], states: Mapping[str, StoredState]) -> dict[str, str]:
    """The names that stored logs had while their files lacked cluster or broker, by the present ones."""
    found: dict[str, str] = {}
    for name, row in listings.items():
        identity = LogIdentity.of(name)
        if name in states or identity.is_by_path or row.folder is None:
            continue
        place = identity.place if name.endswith(IDS) else row.folder
        for broker in (None, identity.broker):
            if (by_path := str(LogIdentity(None, broker, identity.topic_id, place))) in states:
                found[name] = by_path
    return found


def assumptions(names: Iterable[str]) -> list[str]:
    """What is assumed of logs whose files lack ids, as sentences.

    `names`: names of logs.
    """
    identities = [LogIdentity.of(name) for name in names]
    by_path = sum(each.is_by_path for each in identities)
    without_topic_id = sum(each.topic_id is None and not each.is_by_path for each in identities)
    found = []
    if by_path:
        found.append(
            f"{by_path:,} of {len(identities):,} logs have no meta.properties with cluster and broker: each is assumed "
            "to be the log of its path; a copy elsewhere counts as another log."
        )
    if without_topic_id:
        found.append(
            f"{without_topic_id:,} of {len(identities):,} logs have no topic id: a topic is assumed to be the same "
            "unless its first batch differs, or its newest leader epoch is older than before."
        )
    return found
