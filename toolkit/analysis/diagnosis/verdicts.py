"""The verdicts: who holds the LSO, why, and what is safe. One table of rules, read from top to bottom.

A wrong `hanging` makes an operator abort a live transaction, which silently loses part of it. So `hanging` needs a
response from every coordinator, the proven right to see every id, responses from the partition leader before and after,
and the same result in every observation. If any of these is missing, the verdict is `unknown` and names it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolkit.analysis.coordinator.transaction_states import PREPARE_GRACE
from toolkit.analysis.diagnosis.evidence_text import at, coordinator_says, number
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.durations import duration

__all__ = [
    "BRIEF",
    "HEALTHY",
    "OWNED",
    "RULES",
    "TIMEOUT_GRACE",
    "VERDICTS",
    "Rule",
    "is_to_explain",
    "rule_for",
]

VERDICTS: Mapping[str, str] = {
    "ongoing": "A live transaction within its own timeout.",
    "long": "A live transaction within its own timeout, but open longer than brokers allow by default (Flink).",
    "overdue": "Ongoing past its own timeout: its coordinator should have aborted it.",
    "ending": "The coordinator is writing its markers.",
    "stuck_ending": "The coordinator decided long ago and cannot write its markers.",
    "prepared": "Prepared by two-phase commit: only the external coordinator may decide.",
    "hanging": "Nobody will ever end this transaction: no coordinator owns it.",
    "unreplicated": "Nothing is open; the LSO waits for replication.",
    "ended": "It was open and has ended; it holds nothing any more.",
    "clear": "Nothing is held back.",
    "unknown": "Evidence is missing; `missing` names it.",
}

HEALTHY = frozenset({"ongoing", "long", "ending", "clear"})
"""Verdicts that need no action."""
BRIEF = HEALTHY - {"long"}
"""Healthy verdicts behind which nothing waits for long; what waits behind a `long` one is worth showing."""

EXPLAINED = frozenset({"hanging", "unknown", "overdue", "stuck_ending", "prepared", "long"})
"""Verdicts whose transaction the log is read to explain."""

OWNED = HEALTHY - {"clear"} | {"overdue", "stuck_ending", "prepared"}
"""Verdicts of a transaction that its coordinator will end, or that another system has to decide."""

TIMEOUT_GRACE = dt.timedelta(seconds=15)  # transaction.abort.timed.out.transaction.cleanup.interval.ms is 10 s

Text = Callable[[OpenTransaction], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row of the verdict table; the first rule that applies decides.

    Parameters
    ----------
    applies
        Whether the rule applies to an open transaction.
    verdict
        One of `VERDICTS`.
    why, remedy
        Sentences for the operator.
    needs
        For `unknown`: what is missing.
    cause
        Root cause, if the transaction's state shows it.
    """

    applies: Callable[[OpenTransaction], bool]
    verdict: str
    why: Text
    remedy: Text
    needs: Text | None = None
    cause: str | None = None


def _marker(txn: OpenTransaction) -> str:
    topic, partition = txn.tp
    command = f"kafka-txn abort --topic {topic} --partition {partition} --start-offset {txn.start}"
    if topic == OFFSETS_TOPIC:
        return f"{command} (the offsets in it are dropped: its groups continue from their last committed ones)"
    return command


def _marker_at_once(txn: OpenTransaction) -> str:
    return f"At once, before the new epoch's marker decides this data: {_marker(txn)}"


def _diagnose_again(txn: OpenTransaction) -> str:
    return "Do not abort. Get what is missing, and diagnose again."


def _wait(txn: OpenTransaction) -> str:
    if txn.expires_at is None:
        return "Wait; it is alive."
    expires_at = at(txn.expires_at)
    return f"Wait: it commits, or its coordinator aborts it after {expires_at}. Fence its id only to end it sooner."


def _state_since(txn: OpenTransaction) -> dt.timedelta:
    """Minimum time in a Prepare* state: since the coordinator's last log record, or since it was first observed."""
    since: dt.datetime | None = txn.owner.get("last_update_time")
    return txn.now - since if since else txn.seen_for


# Order matters: first reasons not to trust a response, then the coordinator's open states, then disowned transactions.
RULES: tuple[Rule, ...] = (
    Rule(
        applies=lambda c: c.tp[0] == STATE_TOPIC,
        verdict="unknown",
        why=lambda c: "An open transaction on __transaction_state cannot come from a producer.",
        remedy=lambda c: "Never write a marker here; keep a copy of the segment and report it to Kafka.",
        needs=lambda c: "an explanation: Kafka itself never writes transactions to this topic",
    ),
    Rule(
        applies=lambda c: len(c.owners) > 1,
        verdict="unknown",
        why=lambda c: f"{len(c.owners)} coordinators report producer {c.producer['producer_id']}.",
        remedy=_diagnose_again,
        needs=lambda c: "one coordinator that owns the id: " + "; ".join(coordinator_says(row) for row in c.owners),
    ),
    Rule(
        applies=lambda c: bool(c.owner.get("error")),
        verdict="unknown",
        why=lambda c: f'Transactional id "{c.owner["transactional_id"]}" could not be described.',
        remedy=_diagnose_again,
        needs=lambda c: f'the state of "{c.owner["transactional_id"]}": {c.owner["error"]}',
    ),
    Rule(
        applies=lambda c: c.state.startswith("Prepare") and c.listed and _state_since(c) > PREPARE_GRACE,
        verdict="stuck_ending",
        why=lambda c: f"{coordinator_says(c.owner)} for {duration(_state_since(c))} and has not ended it here.",
        remedy=lambda c: (
            "Check the coordinator's log and the leader of this partition (ISR, disk, authorization); moving the "
            f"leader of __transaction_state-{c.owner.get('txn_state_partition')} makes it send the marker again. "
            "Never an abort marker: the outcome is decided."
        ),
        cause="marker not written by the coordinator",
    ),
    Rule(
        applies=lambda c: c.state.startswith("Prepare") and c.listed,
        verdict="ending",
        why=lambda c: f"{coordinator_says(c.owner)}: the outcome is decided and its marker is on the way.",
        remedy=lambda c: f"Wait; if it is still open after {duration(PREPARE_GRACE)}, check the coordinator.",
    ),
    Rule(
        applies=lambda c: c.state.startswith("Prepare"),
        verdict="unknown",
        why=lambda c: f"{coordinator_says(c.owner)} on other partitions and no longer expects a marker here.",
        remedy=lambda c: "Do not abort while the coordinator is ending the transaction; diagnose again when it has.",
        needs=lambda c: "the end of the transaction on its other partitions",
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.two_phase and c.listed,
        verdict="prepared",
        why=lambda c: f"{coordinator_says(c.owner)} by two-phase commit (no timeout), so it never expires.",
        remedy=lambda c: "Ask the external coordinator of this id whether to commit or abort; never decide it here.",
    ),
    Rule(
        applies=lambda c: c.two_phase and c.state == "Ongoing",
        verdict="unknown",
        why=lambda c: f"{coordinator_says(c.owner)} by two-phase commit, which may run ahead of its producer id.",
        remedy=lambda c: "Ask the external coordinator of this id; never decide it here.",
        needs=lambda c: "the external coordinator's decision on this transaction",
    ),
    Rule(
        applies=lambda c: c.owner_epoch >= 0 and c.epoch > c.owner_epoch,
        verdict="unknown",
        why=lambda c: f"{coordinator_says(c.owner)} with epoch {c.owner_epoch}, older than the partition's {c.epoch}.",
        remedy=_diagnose_again,
        needs=lambda c: "a coordinator that knows the partition's epoch (this one is stale or lost its newest records)",
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.epoch == c.owner_epoch and c.listed and _mixed(c),
        verdict="ongoing",
        why=lambda c: (
            f"{coordinator_says(c.owner)} with epoch {c.epoch}, but the first batch has the dead epoch "
            f"{c.first_epoch}: its commit would make those records visible."
        ),
        remedy=lambda c: (
            f'Have its client abort, or fence "{c.owner["transactional_id"]}", so that the coordinator aborts all '
            "of it. Never an abort marker: it would lose half of a live transaction."
        ),
        cause="mixed epochs in one transaction",
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.epoch == c.owner_epoch and c.listed and _overdue(c),
        verdict="overdue",
        why=lambda c: (
            f"{coordinator_says(c.owner)} since {at(c.owner['start_time'])} with a timeout of "
            f"{duration(_timeout(c))}, by its coordinator's clock: it should have been aborted."
        ),
        remedy=lambda c: (
            f"Check coordinator {number(c.owner.get('coordinator_id'))} (log, load, __transaction_state-"
            f"{c.owner.get('txn_state_partition')}); fencing the id ends it. Never an abort marker: it has an owner."
        ),
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.epoch == c.owner_epoch and c.listed,
        verdict="ongoing",
        why=lambda c: f"{coordinator_says(c.owner)}{_age(c)}, within its own timeout{_timeout_text(c)}.",
        remedy=_wait,
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.epoch < c.owner_epoch and c.listed and not _logged(c),
        verdict="unknown",
        why=lambda c: (
            f"{coordinator_says(c.owner)} with epoch {c.owner_epoch} on this partition: either epoch {c.epoch} is "
            "dead, or its coordinator is fencing it and will abort it."
        ),
        remedy=_diagnose_again,
        needs=lambda c: (
            f'the record of "{c.owner["transactional_id"]}" with epoch {c.owner_epoch} in __transaction_state'
            f"-{c.owner.get('txn_state_partition')} (READ on that topic): the epoch is raised before it is logged"
        ),
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.epoch < c.owner_epoch and c.listed,
        verdict="hanging",
        why=lambda c: (
            f"{coordinator_says(c.owner)} with epoch {c.owner_epoch} on this partition, as its log confirms, so epoch "
            f"{c.epoch} is dead, and the next marker will decide its data"
        ),
        remedy=_marker_at_once,
        cause="superseded epoch",
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing" and c.epoch < c.owner_epoch,
        verdict="hanging",
        why=lambda c: (
            f"{coordinator_says(c.owner)} with epoch {c.owner_epoch} elsewhere, so nobody will ever end this "
            f"transaction of epoch {c.epoch}"
        ),
        remedy=_marker_at_once,
        cause="superseded epoch",
    ),
    Rule(
        applies=lambda c: c.state == "Ongoing",
        verdict="hanging",
        why=lambda c: (
            f"{coordinator_says(c.owner)} on other partitions and does not know this one, so this one will never get "
            "a marker"
        ),
        remedy=lambda c: f"On this partition only: {_marker(c)}",
        cause="written but not added to the transaction",
    ),
    Rule(
        applies=lambda c: c.state in {"Empty", "CompleteCommit", "CompleteAbort", "Dead"},
        verdict="hanging",
        why=lambda c: f"{coordinator_says(c.owner)}, so nobody will ever end this transaction",
        remedy=_marker,
    ),
    Rule(
        applies=lambda c: bool(c.owner),
        verdict="unknown",
        why=lambda c: f"{coordinator_says(c.owner)}, a state this version does not know.",
        remedy=_diagnose_again,
        needs=lambda c: f"the meaning of the state {c.state or 'that was not returned'}",
    ),
    Rule(
        applies=lambda c: True,
        verdict="hanging",
        why=lambda c: (
            f"no transactional id has producer {c.producer['producer_id']} any more, so nobody will ever end this "
            "transaction"
        ),
        remedy=_marker,
        cause="no owner: the id has expired or moved on to another producer id",
    ),
)


def _logged(txn: OpenTransaction) -> bool:
    """Whether the coordinator's log has its state with this epoch; if so, no fence is in progress."""
    return txn.owner.get("last_update_time") is not None


def _mixed(txn: OpenTransaction) -> bool:
    return txn.first_epoch is not None and txn.first_epoch < txn.epoch


def _timeout(txn: OpenTransaction) -> dt.timedelta:
    return dt.timedelta(milliseconds=txn.owner.get("timeout_ms") or 0)


def _overdue(txn: OpenTransaction) -> bool:
    return bool(txn.owner.get("timeout_ms")) and txn.age is not None and txn.age > _timeout(txn) + TIMEOUT_GRACE


def _age(txn: OpenTransaction) -> str:
    if txn.age is not None:
        return f" for {duration(txn.age)}"
    if txn.owner.get("start_time"):
        return " since a time that this machine's clock has not reached"
    return ""


def _timeout_text(txn: OpenTransaction) -> str:
    return f" of {duration(_timeout(txn))}" if txn.owner.get("timeout_ms") else ""


def rule_for(txn: OpenTransaction) -> Rule:
    """The first rule that applies; the last one always does."""
    return next(rule for rule in RULES if rule.applies(txn))


def is_to_explain(row: Row) -> bool:
    """Whether the log should explain the transaction in a row of ``schema.FINDINGS``."""
    return row["start_offset"] is not None and (row["verdict"] in EXPLAINED or bool(row["cause"]))
