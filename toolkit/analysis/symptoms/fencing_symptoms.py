"""A producer lost its transaction to a timeout or to another instance."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import ANY_CLIENT, Symptom, wordings

_HISTORY = (
    "kafka-txn history --transactional-id ID: with `timeout`, or an abort past its timeout, the coordinator ended it "
    "(its broker's log contains `due to timeout`); with `fence`, or a new instance right after it, another instance."
)
_NEVER = (
    "Use a new random transactional.id: no instance fences the old one any more, and what it left open holds the LSO "
    "until it times out.",
    "Write an abort marker where no finding is `hanging`: the coordinator has aborted it, or is about to.",
)

FENCING_SYMPTOMS = (
    Symptom(
        name="flink-commit-failed",
        title="Flink could not commit a transaction of a checkpoint: its records may be lost.",
        wordings=wordings(
            "Flink",
            r"Unable to commit (?:recovered )?transaction \(",
            r"encountered error and data has been potentially lost",
            r"Failed to commit KafkaCommittable\{",
            r"\bsignalFailedWithUnknownReason\b",
            r"has been open for \d{1,19} ms\. This is close to or even exceeding the transaction timeout",
        ),
        causes=(
            "The recovery took longer than transaction.timeout.ms: the coordinator aborted the transaction before "
            "Flink could commit it.",
            "The job was restored from an old savepoint: since then its transactions were committed, timed out or "
            "aborted, and their ids may be in use again.",
            "Another job or sink uses the same transactionalIdPrefix and fenced it.",
            "Only a warning in the recovery of a pooled id: a later checkpoint has reused it (FLINK-40626).",
        ),
        checks=(
            _HISTORY,
            "The restored checkpoint: compare the producer id and epoch in its committable with those of the "
            "coordinator (kafka-txn describe --transactional-id ID).",
            "Other jobs with the same transactionalIdPrefix.",
        ),
        safe=(
            "Keep the checkpoint and the source's offsets: lost records can be produced again from there.",
            "Set the sink's transaction.timeout.ms above the checkpoint interval plus the longest recovery, and the "
            "broker's transaction.max.timeout.ms at least as high.",
        ),
        never=(
            "Abort or fence a transaction of a completed checkpoint that is still Ongoing: Flink has yet to commit it.",
            "Change the transactionalIdPrefix to recover faster: transactions of the old one stay open until they time "
            "out.",
        ),
        sources=("FLIP-572", "FLINK-40626", "apache/flink-connector-kafka KafkaCommitter"),
        instead_of=("producer-fenced", "invalid-txn-state", "unknown-producer-id", "invalid-producer-id-mapping"),
    ),
    Symptom(
        name="connect-transaction-expired",
        title="A Connect source task wrote for longer than its transaction may last.",
        wordings=wordings(
            "Connect", r"unable to finish writing records to Kafka before its producer transaction expired"
        ),
        causes=(
            "One offset commit interval, or one poll, holds more than the task can write within transaction.timeout.ms "
            "(1 minute by default): the coordinator aborted it.",
        ),
        checks=(_HISTORY, "The task's rate, compared with its offset.flush.interval.ms and transaction.boundary."),
        safe=(
            "Restart the task: it continues from its last committed source offset; nothing is lost or duplicated.",
            "Raise producer.override.transaction.timeout.ms, or set transaction.boundary=poll.",
        ),
        never=_NEVER,
        sources=("KIP-618", "apache/kafka ExactlyOnceWorkerSourceTask"),
        instead_of=("producer-fenced", "connect-task-fenced"),
    ),
    Symptom(
        name="rolled-back-by-timeout",
        title="The coordinator aborted a transaction that was not ended within its timeout.",
        wordings=(
            *wordings(
                "broker", r"Completed rollback of ongoing transaction for transactionalId \S{1,249} due to timeout"
            ),
            *wordings("words", r"\btransactions? (?:was |has |is )?tim(?:ed|es) out\b.{0,40}\brolled back\b"),
        ),
        causes=(
            "The client stalled or is gone: crash, long garbage collection, a slow call inside the transaction.",
            "The transaction does more work than its transaction.timeout.ms allows.",
        ),
        checks=(
            "kafka-txn history --transactional-id ID: how long it was Ongoing, and whether it happens repeatedly.",
            "The client's log at that time, 1 to 2 timeouts before this line.",
        ),
        safe=(
            "Nothing is held: its abort markers are written. The client gets INVALID_PRODUCER_EPOCH or PRODUCER_FENCED "
            "from its next call.",
            "Shorten the work inside a transaction, or raise its transaction.timeout.ms.",
        ),
        never=_NEVER,
        sources=("KIP-588", "apache/kafka TransactionCoordinator"),
    ),
    Symptom(
        name="last-epoch",
        title="The coordinator cannot fence an id at epoch 32767, and other transactions may not time out.",
        wordings=wordings("broker", r"Cannot fence producer with epoch equal to Short\.MaxValue"),
        causes=(
            "A transaction timed out at epoch 32766, and the coordinator could not log the fence: too few replicas of "
            "__transaction_state were in sync (KAFKA-20090, brokers before 4.3.0).",
        ),
        checks=(
            "kafka-txn find-hanging: `overdue`, with the id and its coordinator.",
            "The replicas in sync of the id's partition of __transaction_state.",
        ),
        safe=(
            "With all replicas in sync, move the leader of that partition, or restart its broker: it reads its log "
            "again, and aborts the transaction by its timeout.",
            "Upgrade to 4.3.0.",
        ),
        never=(
            "Write an abort marker: the coordinator owns the transaction. It refuses a fence of the id until then.",
        ),
        sources=("KAFKA-20090", "apache/kafka#21469"),
    ),
    Symptom(
        name="producer-fenced",
        title="The coordinator fenced this producer: its transaction timed out, or another instance took its id.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bPRODUCER_FENCED\b",
                r"\bINVALID_PRODUCER_EPOCH\b",
                r"There is a newer producer with the same transactionalId which fences the current one",
                r"Producer attempted (?:to produce|an operation) with an old epoch",
            ),
            *wordings(
                "Java",
                r"\bProducerFencedException\b",
                r"\bInvalidProducerEpochException\b",
                r"has been fenced by another producer with the same transactionalId",
                r"epoch=-?\d{1,5}\) attempted to produce with an old epoch",
            ),
            *wordings(
                "librdkafka",
                r"(?<!\w)_FENCED\b",
                r"This instance has been fenced by a newer instance",
                r"Producer fenced by newer instance",
            ),
            *wordings(
                "broker",
                r"Epoch of producer \d{1,19} at offset \d{1,19} in \S{1,260} is -?\d{1,5}, which is smaller than the "
                r"last seen epoch",
            ),
            *wordings("kafka-python", r"\bProducerFencedError\b", r"\bInvalidProducerEpochError\b"),
        ),
        causes=(
            "Its transaction exceeded transaction.timeout.ms: the coordinator aborted it and raised the epoch.",
            "A second instance has the same transactional.id: a rolling restart, a zombie, an id used twice.",
            "The coordinator changed and lost a rotation of the producer id: brokers from 4.0.0 to 4.2 (KAFKA-20310).",
            "An operator fenced it: kafka-txn fence, forceTerminateTransaction, Admin.fenceProducers.",
        ),
        checks=(
            _HISTORY,
            "Two live processes with one transactional.id: compare client.id and host in their logs.",
            "The time between its last send and this error, compared with its transaction.timeout.ms.",
        ),
        safe=(
            "Close this producer and start one with the same transactional.id; process the last batch again. Java "
            "clients may abort and continue after InvalidProducerEpochException (KIP-588).",
        ),
        never=(*_NEVER, "Let two instances with one id keep restarting: they fence each other forever."),
        sources=("KIP-588", "KIP-360", "KAFKA-20310", "KAFKA-20357", "spring-projects/spring-kafka#1612"),
    ),
    Symptom(
        name="invalid-producer-id-mapping",
        title="The coordinator has forgotten this transactional id, or knows it with another producer id.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bINVALID_PRODUCER_ID_MAPPING\b",
                r"producer id which is not currently assigned to its transactional id",
            ),
            *wordings("Java", r"\bInvalidPidMappingException\b"),
            *wordings("kafka-python", r"\bInvalidProducerIdMappingError\b"),
        ),
        causes=(
            "The producer was idle for longer than transactional.id.expiration.ms (7 days by default).",
            "__transaction_state was deleted, or its partition lost records.",
            "The coordinator changed and lost a rotation of the producer id: brokers from 4.0.0 to 4.2 (KAFKA-20310).",
        ),
        checks=(
            "kafka-txn history --transactional-id ID: `expired`, and when; or a commit whose next producer id is lost.",
            "kafka-txn find-hanging: a transaction that an expired id left open has no owner, and never ends. Its "
            "outcome may be `unknown`, as the coordinators' log forgets the id.",
        ),
        safe=("Close the producer and start it again with the same transactional.id: it gets a new producer id.",),
        never=("Fence the id to end what its former producer id left open: fencing affects only the new producer id.",),
        sources=("KAFKA-18019", "KAFKA-20310", "KIP-360", "twmb/franz-go#451"),
    ),
)
