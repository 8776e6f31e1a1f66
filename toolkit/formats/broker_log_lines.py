"""The lines of brokers' logs that bear on transactions, and what each of them names.

The wordings are those of Kafka 2.8 to 4.4, read in its source and in the jars of each version. Brokers write no line,
at their default levels, when a client ends its transaction, when a new instance fences one (its InitProducerId is
answered first, and logged when it is repeated), or when a producer id or a transactional id expires. Where brokers
verify transactions (KIP-890), they log neither a batch that fails it nor its refused epoch.

Sources: ``TransactionCoordinator``, ``TransactionStateManager``, ``TransactionMarkerChannelManager``,
``TransactionMarkerRequestCompletionHandler``, ``ProducerAppendInfo``, ``ReplicaManager``, ``Partition``,
``UnifiedLog``, ``SocketServer``, ``LogLoader``, ``LogManager``, ``LogCleaner``, ``PartitionRegistration`` and
``BrokerLifecycleManager`` in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.log import ClusterEvent
from toolkit.schema.table import TopicPartition

TP = r"(?P<tp>[\w.-]+-\d+)"
OF_LOG = rf"partition={TP}[,\]].*"  # [UnifiedLog partition=orders-0, dir=/data] before the message
OF_APPEND = rf"(?:append operation on partition (?:[\w-]{{22}}:)?{TP}\s.*?)?"  # before the exception; 4.x with topic id
ID = r"(?P<transactional_id>[^\n]*)"
PRODUCER = r"producer (?P<producer_id>\d+)"
COORDINATOR_EPOCH = r"(?:\w+[(\[])?(?P<leader_epoch>\d+)"  # of Scala or Java, in an Option or an OptionalInt


class LinePattern(NamedTuple):
    """A line, and the event that it reports."""

    event: str  # name of the event, as in ``schema.metadata.EVENTS``
    words: str  # what the line contains; searched for before everything else
    # the message; the names of its groups are columns, or ``tp`` and ``tps`` for one or several partitions
    pattern: re.Pattern[str]


def _line(event: str, words: str, pattern: str) -> LinePattern:
    return LinePattern(event, words, re.compile(pattern, re.DOTALL | re.ASCII))


LINES: Sequence[LinePattern] = (
    _line("transaction_timed_out", "due to timeout", f"of ongoing transaction for transactionalId {ID} due to timeout"),
    _line("timeout_abort_failed", "Rollback of ongoing", f"transaction for transactionalId {ID} failed due to error"),
    _line(
        "producer_initialized",
        "Initialized transactionalId",
        f"Initialized transactionalId {ID} with producerId (?P<producer_id>\\d+) and producer epoch "
        r"(?P<producer_epoch>\d+) on partition",
    ),
    _line("producer_init_refused", "InitProducerId request", f"error code to client for {ID}'s InitProducerId request"),
    _line("transaction_end_failed", "EndTransaction request", f"error to client for {ID}'s EndTransaction request"),
    _line(
        "epoch_fence_failed",
        "write an epoch fence",
        f"an epoch fence transition for producer {ID} to the transaction log with error \\w+"
        r"(?:\. The epoch was increased to (?P<producer_epoch>\d+))?",  # not with transaction version 2
    ),
    _line(
        "producer_fenced", "Expected producer epoch", "Expected producer epoch (?P<producer_epoch>\\d+) does not match"
    ),
    _line(
        "marker_skipped",
        "find leader endpoint for",
        f"endpoint for partitions (?P<tps>.*) while trying to send transaction markers for {ID}, these partitions",
    ),
    _line(
        "marker_skipped", "transaction marker from", f"Sending {ID}'s transaction marker from partition {TP} has failed"
    ),
    _line(
        "marker_retried", "transaction marker for", f"Sending {ID}'s transaction marker for partition {TP} has failed"
    ),
    _line(
        "marker_refused",
        "transaction marker for",
        f"Sending {ID}'s transaction marker for partition {TP} has permanently failed",
    ),
    _line(
        "marker_refused",
        "Invalid coordinator epoch",
        rf"Invalid coordinator epoch for producerId (?P<producer_id>\d+) at offset \d+ in partition {TP}",
    ),
    _line(
        "markers_cancelled",
        "cancel sending",
        "(?:(?:no longer the coordinator for|partition that contains|coordinator epoch for|transaction metadata for) "
        "(?P<transactional_id>.*?)(?:; cancel| which means| has changed from| with coordinator epoch)|The cached "
        "metadata).*",
    ),
    _line("marker_request_failed", "(WriteTxnMarkers) and unsupp", "Closing socket for .*WriteTxnMarkers.*version"),
    _line(
        "marker_request_failed", "WRITE_TXN_MARKERS, apiVersion", "Closing socket for .*WRITE_TXN_MARKERS, apiVersion"
    ),
    _line("marker_request_failed", "api key WRITE_TXN_MARKERS", "Closing socket for .*WRITE_TXN_MARKERS with version"),
    _line(
        "coordinator_elected",
        "Elected as the txn coord",
        rf"Elected as the txn coordinator for partition (?P<state>\d+)(?: at epoch {COORDINATOR_EPOCH})?",
    ),
    _line(
        "coordinator_resigned",
        "Resigned as the txn coord",
        rf"Resigned as the txn coordinator for partition (?P<state>\d+)(?: at epoch {COORDINATOR_EPOCH})?",
    ),
    _line("coordinator_loading", "Loading transaction metadata", f"metadata from {TP} at epoch (?P<leader_epoch>\\d+)"),
    _line(
        "coordinator_loaded",
        "Completed loading transaction",
        f"metadata from {TP} for coordinator epoch (?P<leader_epoch>\\d+)",
    ),
    _line("coordinator_load_failed", "Error loading transactions", f"from transaction log {TP}"),
    _line(
        "coordinator_load_failed", "load transaction metadata from", f"Attempted to load transaction metadata from {TP}"
    ),
    _line("out_of_order_sequence", "Out of order sequence", rf"number for {PRODUCER} at offset \d+ in partition {TP}"),
    _line(
        "out_of_order_sequence",
        "Invalid sequence number for",
        rf"for (?:new epoch of )?{PRODUCER} ?at offset \d+ in partition {TP}(?:: (?P<producer_epoch>\d+) \(request)?",
    ),
    _line(
        "invalid_producer_epoch",
        "the last seen epoch",
        rf"Epoch of {PRODUCER} at offset \d+ in {TP} is (?P<producer_epoch>\d+), which",
    ),
    _line(
        "invalid_producer_epoch",
        "the last seen epoch",
        rf"{OF_APPEND}Epoch of {PRODUCER} is (?P<producer_epoch>\d+), which",
    ),
    _line("invalid_txn_state", "Expected transactional write", f"write from {PRODUCER} at offset .* in partition {TP}"),
    _line("invalid_txn_state", "not part of an ongoing transaction", f"{OF_APPEND}Record was not part of"),
    _line("verification_failed", "verify the partition has been", f"{OF_APPEND}Unable to verify the partition"),
    _line("verification_failed", "not added to the transaction", f"{OF_APPEND}Partition was not added"),
    _line("verification_failed", "AddPartitionsToTxnRequest", r"for node (?P<affected_broker>\d+)"),
    _line("id_not_removed", "remove expired transactionalId", f"expired transactionalId: {ID} from cache"),
    _line("partition_uncleanable", "as uncleanable", rf"Marking its partition \({TP}\) as uncleanable"),
    _line("cleaner_died", "kafka-log-cleaner-thread", r"\[kafka-log-cleaner-thread-\d+\]:? (?:Error|Stopped) due to"),
    _line("unclean_election", "Triggering unclean leader", rf"for offline partition {TP}"),
    _line(
        "unclean_election",
        "UNCLEAN partition change",
        rf"for {TP} with topic ID \S+(?:.*?\bleader: -?\d+ -> (?P<leader>\d+))?(?:.*?\bleaderEpoch: \d+ -> "
        r"(?P<leader_epoch>\d+))?",
    ),
    _line("unclean_election", "was marked as RECOVERING", f"topic partition {TP} was marked"),
    _line("leader_changed", "starts at leader epoch", rf"Leader {TP} .*?starts at leader epoch (?P<leader_epoch>\d+)"),
    _line("no_leader", "Current leader is -1", rf"Follower {TP} .*?starts at leader epoch (?P<leader_epoch>\d+)"),
    _line(
        "leader_changed",
        "starts at leader epoch",
        rf"Follower {TP} .*?starts at leader epoch (?P<leader_epoch>\d+)(?:.*Current leader is (?P<leader>\d+))?",
    ),
    _line(
        "leader_changed",
        "to OnlinePartition with state",
        rf"Changed partition {TP} .*\(leader=(?P<leader>\d+), leaderEpoch=(?P<leader_epoch>\d+)",
    ),
    _line("isr_changed", " ISR from ", rf"\[Partition {TP} broker=\d+\] (?:Shrinking|Expanding) ISR from"),
    _line("log_truncated", "below high watermark", rf"Truncating .*?{TP} to offset \d+ below"),
    _line("log_truncated", "Truncating to offset", f"{OF_LOG}Truncating to offset"),
    _line("log_truncated", "Truncate and start at offset", f"{OF_LOG}Truncate and start"),
    _line("log_truncated", ", truncating to offset", f"{OF_LOG}Corruption found"),
    _line("unclean_shutdown", "no clean shutdown file", "ecover.*since no clean shutdown file was found"),
    _line("log_recovered", "Recovering unflushed segment", f"{OF_LOG}Recovering"),
    _line("log_dir_failed", "Stopping serving replicas", r"in dir \S+"),
    _line("broker_started", "Kafka Server started", ""),
    _line("broker_started", "] started", r"\[KafkaServer id=\d+\] started"),
    _line("broker_stopping", "] shutting down", r"\[(?:Broker|Kafka)Server id=\d+\] shutting down"),
    _line("broker_stopped", "] shut down completed", r"\[(?:Broker|Kafka)Server id=\d+\] shut down completed"),
    _line("broker_fenced", "Fencing broker", r"Fencing broker (?P<affected_broker>\d+) "),
    _line("broker_fenced", "Broker failure callback for", r"callback for (?P<affected_broker>\d+)"),
    _line("broker_unfenced", "has been unfenced", "The broker has been unfenced"),
    _line("broker_registered", "Successfully registered broker", r"registered broker (?P<affected_broker>\d+) with"),
)
"""The first that fits is the event of a line."""

SEARCHED = "|".join(sorted({re.escape(each.words) for each in LINES}))
"""A regular expression, for RE2, of the words of every line."""

OF_ITSELF = frozenset(
    {
        "broker_started",
        "broker_stopping",
        "broker_stopped",
        "broker_unfenced",
        "cleaner_died",
        "log_dir_failed",
        "marker_request_failed",
        "unclean_shutdown",
    }
)
"""Events of the broker that wrote the line."""

LAST = {"producer_epoch": 2**15 - 1, "producer_id": 2**63 - 1}  # 2**31 - 1 of the others


def line_events(message: str, where: ClusterEvent) -> Iterator[ClusterEvent]:
    """The events of a log entry: of each partition that it names; none if it does not bear on transactions.

    `message`: the message of the entry, and the lines of its exception.
    `where`: what is known of the entry: its time, text, broker, file and position.
    """
    for line in LINES:
        found = line.pattern.search(message) if line.words in message else None
        if found is not None:
            yield from _events(line.event, found.groupdict(), where)
            return


def _events(name: str, found: dict[str, str | None], where: ClusterEvent) -> Iterator[ClusterEvent]:
    def number(column: str) -> int | None:
        return _number(found.get(column), LAST.get(column, 2**31 - 1))

    event = replace(
        where,
        event=name,
        transactional_id=found.get("transactional_id"),
        producer_id=number("producer_id"),
        producer_epoch=number("producer_epoch"),
        affected_broker=where.broker_id if name in OF_ITSELF else number("affected_broker"),
        leader=where.broker_id if name == "leader_changed" and "leader" not in found else number("leader"),
        leader_epoch=number("leader_epoch"),
    )
    partitions = _partitions(found)
    yield from (replace(event, topic=tp.topic, partition=tp.partition) for tp in partitions)
    if not partitions:
        yield event


def _partitions(found: dict[str, str | None]) -> list[TopicPartition]:
    if (state := found.get("state")) is not None:
        names = [f"{STATE_TOPIC}-{state}"]
    elif (several := found.get("tps")) is not None:
        names = re.findall(r"[\w.-]+-\d+", several, re.ASCII)
    else:
        names = [name] if (name := found.get("tp")) is not None else []
    parts = [name.rpartition("-") for name in names]
    return [TopicPartition(topic, int(number)) for topic, _, number in parts if _number(number, 2**31 - 1) is not None]


def _number(digits: str | None, last: int) -> int | None:
    """Digits as a number; null if they are not one of the column's."""
    return None if digits is None or len(digits) > 19 or int(digits) > last else int(digits)
