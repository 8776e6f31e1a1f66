"""Compare open transactions of a partition with their coordinators' state.

Responses read at different times differ for healthy transactions, too, and a hidden id looks like a missing one. So a
combination is stated only if a finding has proven it, and is `unknown` otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.analysis.diagnosis.diagnose import transaction_key
from toolkit.schema.derived import Reconciliation
from toolkit.schema.live import Finding, Producer, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import TransactionKey
from toolkit.schema.verdict import Verdict

COMBINATIONS: Mapping[str, str] = MappingProxyType(
    {
        "its own": "The coordinator owns it and ends it: at its client's request, or by its timeout.",
        "orphan": "No transactional id has this producer id any more: no coordinator will end it.",
        "superseded epoch": "Its id has a later epoch now: the producer that wrote this is dead.",
        "not this partition": "Its transaction is open on other partitions, and this one will get no marker.",
        "late": "It was added, and that transaction has ended: these records came after its marker.",
        "never added": "No transaction of this epoch in the coordinator's log includes this partition.",
        "disowned": "The coordinator has nothing open, and its earlier transactions are not known.",
        "unknown": "Its owner is not proven: the finding names what is missing.",
    }
)
"""The combinations of partition and coordinator state, and what each means; ``its own`` if it has an owner."""


def reconcile(
    producers: Iterable[Producer],
    transactions: Sequence[Transaction],
    transaction_history: Sequence[PastTransaction] | None = None,
    *,
    findings: Iterable[Finding],
) -> list[Reconciliation]:
    """Join every open transaction of a partition with its coordinator's state.

    `producers`: producers; those without an open transaction are left out.
    `transactions`: states of all coordinators, their errors included.
    `transaction_history`: what became of the same ids; null if that was not read.
    `findings`: findings of the same partitions.
    """
    by_key = {transaction_key(each): each for each in findings}
    found: list[Reconciliation] = []
    for each in producers:
        if each.current_txn_start_offset is None:
            continue
        key = TransactionKey(each.topic, each.partition, each.producer_id, each.current_txn_start_offset)
        found.append(_reconciled(each, transactions, transaction_history, by_key.get(key)))
    return found


def _reconciled(
    producer: Producer,
    transactions: Sequence[Transaction],
    transaction_history: Sequence[PastTransaction] | None,
    finding: Finding | None,
) -> Reconciliation:
    tp, producer_id = producer.tp, producer.producer_id
    owner = next((each for each in transactions if each.producer_id == producer_id), None)
    of_producer = [each for each in transaction_history or () if each.producer_id == producer_id]
    of_epoch = [each for each in of_producer if each.producer_epoch == producer.producer_epoch]
    on_partition = [each for each in of_epoch if tp in (each.topic_partitions or ())]
    is_complete = bool(of_producer) and not any(each.truncated or each.error for each in of_producer)
    assert producer.current_txn_start_offset is not None
    assert producer_id is not None
    found = Reconciliation(
        topic=producer.topic,
        partition=producer.partition,
        start_offset=producer.current_txn_start_offset,
        producer_id=producer_id,
        producer_epoch=producer.producer_epoch,
        transactional_id=owner.transactional_id if owner else None,
        state=owner.state if owner else None,
        owner_epoch=owner.producer_epoch if owner else None,
        expects_marker=None if owner is None or owner.error else tp in (owner.topic_partitions or ()),
        was_added=True if on_partition else False if is_complete else None,
        last_ended=on_partition[-1].ended if on_partition else None,
        verdict=finding.verdict if finding else None,
        combination="unknown",
        means="",
    )
    combination = (
        _combination(found)
        if found.verdict is Verdict.HANGING
        else "its own"
        if found.verdict and found.verdict.is_owned
        else "unknown"
    )
    means = "; ".join(finding.missing) if finding and combination == "unknown" else ""
    return replace(found, combination=combination, means=means or COMBINATIONS[combination])


def _combination(found: Reconciliation) -> str:
    """The combination of a hanging transaction; the first that applies."""
    if found.transactional_id is None:
        return "orphan"
    if found.expects_marker is None:
        return "unknown"  # its coordinator's response is missing
    if found.state == "Ongoing" and (found.owner_epoch or 0) > (found.producer_epoch or 0):
        return "superseded epoch"
    if found.expects_marker:
        return "unknown"  # the finding proved otherwise, but the coordinator now expects to write the marker
    if found.state in OPEN_STATES:
        return "not this partition"
    if found.was_added is None:
        return "disowned"
    return "late" if found.was_added else "never added"
