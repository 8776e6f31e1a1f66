"""The audit trail: actions on a cluster, who took them, why, and their results; and the records that they discard."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.live import EvidenceEntry
from toolkit.schema.record import Int16, Int32, Int64, TableRow, declares
from toolkit.schema.table import EPOCH

INTENT, OUTCOME, REFUSED = "intent", "outcome", "refused"  # steps


@declares("claims", row="a claim that an action needs")
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionClaim(TableRow):
    """A claim that an action needs, and what discharged it."""

    claim: Annotated[str, "What has to be true, in words; an override repeats what is not proven of it."]
    status: Annotated[str, "proven, refuted or not proven."]
    discharged_by: Annotated[str | None, "What proves or refutes it, or who asserted it; null if nothing does."] = None


@declares(
    "actions",
    row="one step of an action on a cluster: before its request is sent, or after the response",
    key=("action_id", "step"),
    sort=("at", "action_id", "step"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionStep(TableRow):
    """One step of an action on a cluster: before its request is sent, or after the response."""

    # at, action_id, step, who: set by the audit trail when it writes the line
    at: Annotated[dt.datetime, "When the line was written, by the clock of the machine that acts."] = EPOCH
    action_id: Annotated[str, "Id of the action; the same for both its steps."] = ""
    action: Annotated[str, "abort, complete, commit or fence."]
    step: Annotated[
        str,
        "intent: the request is sent next. outcome: the response or error. refused: nothing was sent. After an "
        "intent without an outcome, the action may have taken effect.",
    ] = ""
    who: Annotated[str, "User and host that took the action."] = ""
    tool_version: Annotated[str | None, "Version of this package."] = None
    bootstrap_servers: Annotated[str, "Bootstrap servers of the cluster, as configured."]
    cluster_id: Annotated[str | None, "Id of the cluster, by its brokers; null if none has answered."] = None
    principal: Annotated[str | None, "User name of the client at the brokers; null if it has none."] = None
    target: Annotated[str, "Target that the user confirmed: orders-0@913095344, or a transactional id."]
    confirmation: Annotated[str | None, "What the user typed for a list of targets: 12 transactions; else null."] = None
    topic: Annotated[str | None, "Topic of the marker; null for a commit or fence."] = None
    partition: Annotated[Int32 | None, "Partition of the marker; null for a commit or fence."] = None
    start_offset: Annotated[
        Int64 | None, "First offset of the transaction on the partition; null for a commit or fence."
    ] = None
    producer_id: Annotated[Int64 | None, "Id of the producer whose transaction is ended."] = None
    producer_epoch: Annotated[Int16 | None, "Epoch of that producer."] = None
    transactional_id: Annotated[str | None, "Transactional id that owns the producer id, if known."] = None
    verdict: Annotated[str | None, "Verdict of the check immediately before the request."] = None
    reason: Annotated[str | None, "Reason for that verdict, as a sentence."] = None
    outcome: Annotated[
        str | None, "What was decided about the records, by that check: undecided, abort, commit, unknown."
    ] = None
    claims: Annotated[
        tuple[ActionClaim, ...] | None, "What the action needed, by that check, and what discharged it."
    ] = None
    override: Annotated[
        str | None, "What the user asserted although it is not proven, word for word; null if nothing."
    ] = None
    records_file: Annotated[
        str | None, "Parquet file with the records that an abort discards; null if none was written."
    ] = None
    evidence: Annotated[tuple[EvidenceEntry, ...] | None, "Values that this check observed, with source and time."] = (
        None
    )
    request: Annotated[str | None, "Request, with the field names of Kafka's protocol."] = None
    response: Annotated[str | None, "Response of the broker."] = None
    last_stable_offset_before: Annotated[Int64 | None, "LSO of the partition before the action."] = None
    last_stable_offset_after: Annotated[Int64 | None, "LSO of the partition after the action."] = None
    error: Annotated[str | None, "What failed, or why the action was refused, as NAME: sentence."] = None


ACTIONS = ActionStep.table


def unfinished(steps: Sequence[ActionStep]) -> list[ActionStep]:
    """Intents without an outcome: these actions may have happened."""
    ended = {each.action_id for each in steps if each.step == OUTCOME}
    return [each for each in steps if each.step == INTENT and each.action_id not in ended]


@declares("headers", row="a header of a saved record")
@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHeader(TableRow):
    """A header of a saved record."""

    key: Annotated[str, "Key of the header."]
    value: Annotated[bytes | None, "Value as written; null if it has none."]


@declares(
    "saved_records",
    row="one record of a transaction that an abort discarded on a partition",
    key=("topic", "partition", "offset"),
    sort=("topic", "partition", "offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecord(TableRow):
    """One record of a transaction that an abort discarded on a partition."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    offset: Annotated[Int64, "Offset of the record."]
    timestamp: Annotated[dt.datetime | None, "Time of the record; null if it has none, or one beyond the year 9999."]
    producer_id: Annotated[Int64, "Producer id (PID)."]
    producer_epoch: Annotated[Int16, "Producer epoch of its batch."]
    key: Annotated[bytes | None, "Key as written; null if it has none."]
    value: Annotated[bytes | None, "Value as written; null for a tombstone."]
    headers: Annotated[tuple[SavedHeader, ...], "Headers in their order."]
    group_id: Annotated[str | None, "Group of a committed offset; null on other topics than __consumer_offsets."] = None
    committed_topic: Annotated[str | None, "Topic of a committed offset."] = None
    committed_partition: Annotated[Int32 | None, "Partition of a committed offset."] = None
    committed_offset: Annotated[Int64 | None, "Committed offset; null for a tombstone, which removes one."] = None
    committed_leader_epoch: Annotated[Int32 | None, "Leader epoch that was committed with it."] = None


SAVED_RECORDS = SavedRecord.table
