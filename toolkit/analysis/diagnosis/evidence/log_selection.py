"""Which logs to read for open transactions: around them, of their coordinators, and of their producers elsewhere."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from toolkit.analysis.diagnosis.clocks import BEFORE_OPENING
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Partition, Producer
from toolkit.schema.table import Error, TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


class ExcerptStart(NamedTuple):
    """Where the log of a partition is read: around the lowest open transaction that needs it and is still in the log.

    `tp`, `leader`: the partition, also as its leader has it.
    `offset`: first offset of that transaction that is still in the log.
    `producer_ids`: the producers of its transactions, whose markers before the offset are searched.
    """

    tp: TopicPartition
    leader: Partition
    offset: int
    producer_ids: frozenset[int]


def excerpt_starts(cases: Iterable[Case]) -> list[ExcerptStart]:
    """Where the logs of cases are read: each partition from its lowest transaction on, in the order of the cases."""
    by_partition: defaultdict[TopicPartition, list[Case]] = defaultdict(list)
    for each in cases:
        by_partition[each.tp].append(each)
    return [
        ExcerptStart(
            tp=tp,
            leader=opened[0].leader,
            offset=max(
                opened[0].leader.log_start_offset or 0, min(each.start for each in opened if each.start is not None)
            ),
            producer_ids=frozenset(each.producer_id for each in opened),
        )
        for tp, opened in by_partition.items()
    ]


MAX_OFFSETS = 20_000  # to read of each partition, from the time of the open records on
MAX_PARTITIONS = 1_000
NONE: Mapping[TopicPartition, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSearchPlan:
    """Which partitions to read for markers of which open transactions, and what is not read, by producer id.

    `ahead`: as in `MarkerSearch`.
    """

    partitions: Mapping[TopicPartition, Sequence[Case]]
    unread: Mapping[int, str]
    ahead: Mapping[int, Producer]


def plan_marker_search(
    cases: Iterable[Case], producers: Iterable[Producer], *, unread: Mapping[TopicPartition, str] = NONE
) -> MarkerSearchPlan:
    """Plan which partitions are read for markers of open transactions: where their producers have written since.

    `cases`: open transactions that no coordinator will end.
    `producers`: where the producers have written; error rows count if the coordinators' records name the partition.
    `unread`: partitions that were not read, and why; likewise.
    """
    of_producer: dict[int, str] = {}
    failed = {tp: f"{tp.topic}-{tp.partition} could not be read ({why})" for tp, why in unread.items()}
    written: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
    highest: dict[int, Producer] = {}
    for each in producers:
        if each.error:
            failed[each.tp] = f"{each.topic}-{each.partition} could not be read ({Error.of(each.error).code})"
        elif each.topic != STATE_TOPIC and each.producer_id is not None and each.producer_epoch is not None:
            written[each.producer_id].append((each.producer_epoch, each.tp))
            before = highest.get(each.producer_id)
            if before is None or each.producer_epoch > (before.producer_epoch or 0):
                highest[each.producer_id] = each
    known: defaultdict[TopicPartition, list[Case]] = defaultdict(list)
    ahead: dict[int, Producer] = {}
    for case in cases:
        newest, recorded = highest.get(case.producer_id), case.highest_epoch
        if newest is not None and recorded is not None and (newest.producer_epoch or 0) > recorded:
            ahead[case.producer_id] = newest
        producer_id, epoch = case.producer_id, case.epoch
        others = [each for each in written[producer_id] if each[1] != case.tp]
        # Those with the epoch of the open records, or a higher one, may have a marker of their transaction.
        nearest = [tp for _, tp in sorted(others, key=lambda each: (each[0] < epoch, each))]
        for tp in nearest:
            if tp in known or len(known) < MAX_PARTITIONS:
                known[tp].append(case)
            else:
                of_producer[producer_id] = f"more than {MAX_PARTITIONS:,} partitions would have to be read"
        for tp in sorted(case.recorded_partitions & failed.keys()):
            of_producer[producer_id] = failed[tp]
    return MarkerSearchPlan(partitions=known, unread=of_producer, ahead=ahead)


def cut_search(tp: TopicPartition, cases: Iterable[Case], *, start: int | None, is_cut: bool) -> str | None:
    """Why not all markers that may count were looked for on a partition; null if they were.

    `MAX_OFFSETS` from a broker's time right before the open records on are enough; from any earlier time on, they may
    end before those.
    `start`: where it was read from if that is not the beginning of the log; `is_cut`: whether the end was not read.
    """
    if all(each.opened_after is not None for each in cases):
        return None
    if is_cut or (start is not None and search_from(cases) is None):
        return f"more than {MAX_OFFSETS:,} offsets of {tp.topic}-{tp.partition} would have to be read"
    return None


def named_topics(cases: Iterable[Case]) -> set[str]:
    """The topics of the open transactions, and those that their coordinators' records name."""
    cases = list(cases)
    named = {topic for case in cases for record in case.records for topic, _ in record.topic_partitions or ()}
    return named | {case.tp[0] for case in cases}


def search_from(cases: Iterable[Case]) -> dt.datetime | None:
    """From when on markers of these open transactions are looked for; null if that is not known.

    A broker's time before their records, as markers come after them; else that of their producer's InitProducerId.
    """
    times = [case.opened_after or case.begun_after for case in cases]
    known = [time for time in times if time is not None]
    return min(known) - BEFORE_OPENING if len(known) == len(times) else None
