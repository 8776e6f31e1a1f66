"""A transaction is decided, and its markers are late, skipped or refused."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import ANY_CLIENT, Symptom, wordings

MARKER_SYMPTOMS = (
    Symptom(
        name="concurrent-transactions",
        title="The transaction before this one is still being ended: its markers are not all written.",
        wordings=(
            *wordings(
                ANY_CLIENT, r"\bCONCURRENT_TRANSACTIONS\b", r"another concurrent operation on the same transaction"
            ),
            *wordings("Java", r"\bConcurrentTransactionsException\b"),
            *wordings("kafka-python", r"\bConcurrentTransactionsError\b"),
        ),
        causes=(
            "Normal for some milliseconds after each commit: clients retry automatically.",
            "For longer: one of its partitions cannot take its marker (no leader, or below min.insync.replicas).",
            "Forever: the coordinator lost the marker (KAFKA-16352, before 3.8), or brokers of one cluster differ in "
            "WriteTxnMarkers (KAFKA-20322, 4.2.0).",
        ),
        checks=(
            "kafka-txn diagnose: `ending` or `stuck_ending`, and on which partition.",
            "kafka-txn describe --transactional-id ID: PrepareCommit or PrepareAbort, and the partitions that remain.",
            "Leader and ISR of those partitions.",
        ),
        safe=(
            "Wait and let the client retry. Bring back the partition's leader or replicas: the marker follows.",
            "Only if it is stuck with all partitions healthy: move the leader of its __transaction_state partition, so "
            "that the new coordinator sends the markers again. Of a partition without a leader it may skip the marker.",
        ),
        never=(
            "Write an abort marker during PrepareCommit: it discards records whose commit is decided.",
            "Use a new transactional.id: the old one stays in Prepare, and holds the LSO.",
        ),
        sources=("confluentinc/librdkafka#3003", "IBM/sarama#2915", "KAFKA-16352", "KAFKA-20322"),
    ),
    Symptom(
        name="marker-skipped",
        title="A transaction was ended without its marker on a partition that had no leader: it stays open there.",
        wordings=wordings(
            "broker",
            r"Couldn't find leader endpoint for partitions .{1,600}? while trying to send transaction markers",
        ),
        causes=(
            "All replicas of the partition were offline when the transaction ended, and the coordinator treated the "
            "partition as deleted (KAFKA-20734; from 4.3.0 on).",
            "The topic was deleted: nothing is left of it.",
        ),
        checks=(
            "kafka-txn diagnose --topic T --partition P, once it has a leader again: `stuck_ending` after a commit, "
            "`hanging` after an abort.",
            "kafka-txn history --transactional-id ID: whether it was a commit or an abort.",
        ),
        safe=(
            "Bring the partition's leader back first, and then diagnose: its finding has the outcome.",
            "Outcome commit: kafka-txn complete writes the COMMIT marker that is missing, and the records become "
            "visible.",
            "Outcome abort: kafka-txn abort or kafka-txn complete; both write the ABORT marker.",
        ),
        never=(
            "Abort after a commit: records that the producer committed are lost on this partition.",
            "Go by the id's current state: after the skipped commit its producer may have gone on.",
        ),
        sources=("KAFKA-20734", "apache/kafka#22680", "KAFKA-5202"),
    ),
    Symptom(
        name="transaction-coordinator-fenced",
        title="A partition refused a transaction marker, because it knows a higher coordinator epoch.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bTRANSACTION_COORDINATOR_FENCED\b",
                r"is no longer the current coordinator for a given producer",
            ),
            *wordings("Java", r"\bTransactionCoordinatorFencedException\b"),
            *wordings("broker", r"(?:Detected )?invalid coordinator epoch for producerId"),
            *wordings("kafka-python", r"\bTransactionCoordinatorFencedError\b"),
        ),
        causes=(
            "A tool wrote a marker with a wrong coordinator epoch, -1 for example.",
            "A former coordinator still sends markers after the next one has taken over: this is temporary.",
            "Producer state on the partition expired too early and the epoch went back (KAFKA-9144, old brokers).",
        ),
        checks=("kafka-txn diagnose --topic T --partition P: what is open there, and whether it has an owner.",),
        safe=(
            "kafka-txn abort, for a `hanging` transaction, and kafka-txn complete, for a committed one whose marker "
            "was refused, use the coordinator epoch of the partition's leader.",
        ),
        never=("Try higher coordinator epochs: the real coordinator's markers would be refused from then on.",),
        sources=("KAFKA-9144", "KIP-664"),
    ),
)
