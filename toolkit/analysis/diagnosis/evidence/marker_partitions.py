"""Which partitions to read for markers of the same transactions, and how much of each."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from toolkit.analysis.diagnosis.evidence.diagnosis_context import DiagnosisContext
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Producer
from toolkit.schema.table import TopicPartition

MAX_OFFSETS = 20_000  # to read of each partition, from the time of the open records on
MAX_OF_EACH = 3  # partitions of a producer: one marker of the transaction is enough
MAX_PARTITIONS = 100


def marker_partitions(
    contexts: Iterable[DiagnosisContext], producers: Iterable[Producer]
) -> Mapping[TopicPartition, Sequence[DiagnosisContext]]:
    """The partitions to read for markers of the same transactions: of each producer the nearest ones.

    Parameters
    ----------
    contexts
        Open transactions whose outcome the coordinators' log does not prove.
    producers
        Where the producers have written.
    """
    written: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
    for each in producers:
        if each.topic != STATE_TOPIC and each.producer_id is not None and each.producer_epoch is not None:
            written[each.producer_id].append((each.producer_epoch, TopicPartition(each.topic, each.partition)))
    known: defaultdict[TopicPartition, list[DiagnosisContext]] = defaultdict(list)
    for context in contexts:
        # A marker raises the epoch: the lowest of those that are higher have the fewest records after it.
        raised = sorted(each for each in written[context.txn.producer_id] if each[0] > context.txn.epoch)
        for _, tp in [each for each in raised if each[1] != context.txn.tp][:MAX_OF_EACH]:
            if tp in known or len(known) < MAX_PARTITIONS:
                known[tp].append(context)
    return known


def named_topics(contexts: Iterable[DiagnosisContext]) -> set[str]:
    """The topics of the open transactions, and those that their coordinators' records name."""
    contexts = list(contexts)
    named = {topic for context in contexts for event in context.events for topic, _ in event.topic_partitions or ()}
    return named | {context.txn.tp[0] for context in contexts}


def opened_after(contexts: Iterable[DiagnosisContext]) -> dt.datetime | None:
    """A broker's time before all of the open records, as markers come after them; null if one is unknown."""
    times = [context.opened_after for context in contexts]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None
