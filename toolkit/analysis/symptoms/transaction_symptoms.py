"""A call of the transactional API failed, and the producer was not fenced; or markers are late, skipped or refused."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import ANY_CLIENT, Symptom, wordings

TRANSACTION_SYMPTOMS = (
    Symptom(
        name="transaction-abortable",
        title="This transaction cannot be committed; its client has to abort it, and can then continue.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bTRANSACTION_ABORTABLE\b",
                r"The server encountered an error with the transaction",
                r"Unable to verify the partition has been added to the transaction",
            ),
            *wordings("Java", r"\bTransactionAbortableException\b"),
            *wordings("kafka-python", r"\bTransactionAbortableError\b"),
        ),
        causes=(
            "The partition leader verified with the coordinator that this write does not belong to an open "
            "transaction: a late or retried batch, which would otherwise hang (KIP-890).",
            "The coordinator could not answer that request: it is loading, moving, or writing markers.",
            "abortTransaction itself gets this error, and the application retries it forever (KAFKA-19250).",
        ),
        checks=(
            "Whether abortTransaction repeatedly fails with it, too: that is KAFKA-19250.",
            "kafka-txn history --transactional-id ID: whether a timeout or another instance ended it first.",
        ),
        safe=(
            "Abort the transaction and process its batch again.",
            "If the abort fails with it: close the producer, start it with the same transactional.id, and upgrade the "
            "client (fixed by apache/kafka#19656).",
        ),
        never=(
            "Disable transaction.partition.verification.enable to avoid the error: such batches then hang.",
            "Send the failed record again in the same transaction.",
        ),
        sources=("KIP-890", "KIP-1050", "KAFKA-16314", "KAFKA-19250"),
        instead_of=("concurrent-transactions",),
    ),
    Symptom(
        name="end-txn-invalid-state",
        title="librdkafka tried to end a transaction that is not open at the coordinator.",
        wordings=wordings(
            "librdkafka",
            r"Failed to end transaction: Broker: Producer attempted a transactional operation in an invalid state",
            r"EndTxn (?:commit |abort )?(?:failed|returned).{0,80}(?:INVALID_TXN_STATE|in an invalid state)",
        ),
        causes=(
            "EndTxn overtook AddPartitionsToTxn: a race in the client, mostly on abort (librdkafka#4849).",
            "The coordinator ended it first, by timeout, while the client was disconnected (librdkafka#3297).",
        ),
        checks=(
            "kafka-txn describe --transactional-id ID: Empty or Complete* means that nothing is open.",
            "kafka-txn history --transactional-id ID: `timeout`, or no transaction at all.",
        ),
        safe=(
            "The error is fatal for this producer: create one with the same transactional.id; upgrade librdkafka.",
            "It holds nothing. After a failed commit, treat the batch as not committed and process it again.",
        ),
        never=("Ignore it after a commit: the records were aborted, or never part of a transaction.",),
        sources=("confluentinc/librdkafka#4849", "confluentinc/librdkafka#3297"),
        instead_of=("invalid-txn-state",),
    ),
    Symptom(
        name="invalid-txn-state",
        title="The transaction's state at the coordinator does not allow this: usually it has already been aborted.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bINVALID_TXN_STATE\b",
                r"transactional operation in an invalid state",
                r"Partition was not added to the transaction",
            ),
            *wordings("Java", r"\bInvalidTxnStateException\b"),
            *wordings("broker", r"state is Complete_?Abort, but received transaction marker result to send: COMMIT"),
            *wordings("kafka-python", r"\bInvalidTxnStateError\b"),
        ),
        causes=(
            "The client stalled for longer than transaction.timeout.ms, and the coordinator aborted the transaction. A "
            "send should then get INVALID_PRODUCER_EPOCH (KAFKA-19690), and a commit PRODUCER_FENCED (KAFKA-20785, "
            "transaction version 2). Kafka Streams stops.",
            "The partition leader refused a batch that belongs to no open transaction (KIP-890, clients before 3.8).",
            "Commit after abort, or abort after commit: a bug in the application or its framework.",
        ),
        checks=(
            "kafka-txn history --transactional-id ID: a `timeout`, or an abort past its timeout, right before it.",
            "Garbage collection, a slow call or a rebalance in the client at that time.",
        ),
        safe=(
            "Restart the client with the same transactional.id: it continues from its last committed offsets.",
            "Raise transaction.timeout.ms (Kafka Streams: 10 s by default) or do less in a transaction. Brokers with "
            "the fix of KAFKA-19690 (backported to 3.9 and 4.1) return the right error to a send; that of KAFKA-20785 "
            "is in no release up to 4.4.0.",
        ),
        never=(
            "Write an abort marker where no finding is `hanging`: the next transaction may already be open.",
            "Use a new random transactional.id.",
        ),
        sources=("KAFKA-19690", "KAFKA-20785", "apache/kafka#23204", "KIP-890", "KIP-588"),
    ),
    Symptom(
        name="transaction-timeout-too-large",
        title="The producer requests a longer transaction timeout than the brokers allow.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bINVALID_TRANSACTION_TIMEOUT\b",
                r"transaction timeout is larger than the maximum value allowed by the broker",
            ),
            *wordings("Java", r"\bInvalidTxnTimeoutException\b"),
            *wordings("kafka-python", r"\bInvalidTransactionTimeoutError\b"),
        ),
        causes=(
            "Flink's KafkaSink requests 1 hour by default; brokers allow 15 minutes (transaction.max.timeout.ms).",
            "transaction.timeout.ms of this client is set too high.",
        ),
        checks=("kafka-txn exposure: transaction.max.timeout.ms of every broker.",),
        safe=(
            "Lower the client's transaction.timeout.ms: for Flink it must stay above the checkpoint interval plus the "
            "longest recovery.",
            "Or raise the brokers' limit, with care: a client that dies may then hold the LSO for that long.",
        ),
        never=(
            "Raise transaction.max.timeout.ms to days: one dead client stops every read_committed reader for days.",
        ),
        sources=("FLIP-572", "apache/kafka Errors"),
    ),
    Symptom(
        name="init-transactions-timeout",
        title="The producer gets no producer id: the coordinator does not answer, or cannot write to its log.",
        wordings=(
            *wordings(
                "Java",
                r"Timeout expired while initializing transactional state",
                r"while awaiting InitProducerId",
            ),
            *wordings(
                "librdkafka",
                r"Failed to initialize Producer ID",
                r"Failed to (?:acquire|request) .{1,120}: "
                r"(?:Local: Timed out|(?:Broker: )?Request timed out|Broker: (?:Not )?Coordinator)",
                r"Failed to find transaction coordinator",
            ),
            *wordings("franz-go", r"producer id initialization (?:failure|errored|resulted in retryable error)"),
            *wordings(
                "broker", r"does not meet the required replication factor .{1,12} for the transactions state topic"
            ),
        ),
        causes=(
            "The leader of the id's __transaction_state partition is down, or still loading that partition.",
            "__transaction_state is below its min.insync.replicas: the coordinator cannot write.",
            "__transaction_state does not exist yet: the cluster has fewer brokers than its replication factor.",
            "The id's previous transaction is stuck in Prepare: each attempt gets CONCURRENT_TRANSACTIONS.",
            "No broker can be reached: address, security.protocol, firewall.",
        ),
        checks=(
            "kafka-txn coordinator --transactional-id ID: which partition, which broker, whether it responds.",
            "kafka-txn partitions --topic __transaction_state: leader and offsets of that partition.",
            "kafka-txn describe --transactional-id ID: PrepareCommit or PrepareAbort.",
        ),
        safe=("Bring the coordinator or its replicas back, and let the client retry with the same id.",),
        never=(
            "Delete or recreate __transaction_state: every open transaction of the cluster is left without an owner.",
            "Use a new random transactional.id as a workaround.",
        ),
        sources=("KIP-588", "KIP-98", "apache/kafka TransactionManager"),
        instead_of=("coordinator-not-ready",),
        gives_way=True,
    ),
    Symptom(
        name="send-offsets-timeout",
        title="The group's offsets could not be added to the transaction.",
        wordings=(
            *wordings(
                "librdkafka",
                r"Failed to (?:commit|add) offsets to transaction",
                r"send_offsets_to_transaction.{0,80}(?:hang|block|Timed out|_TIMED_OUT)",
            ),
            *wordings("Java", r"while awaiting (?:AddOffsetsToTxn|TxnOffsetCommit\w{0,20})"),
        ),
        causes=(
            "The group coordinator is down, loading or moving.",
            "librdkafka keeps a removed broker as the group's coordinator, and hangs (librdkafka#5511), ignoring its "
            "timeout (librdkafka#5456).",
        ),
        checks=(
            "kafka-txn coordinator --group GROUP: the group's current coordinator.",
            "Whether a broker was removed or replaced since the client started.",
        ),
        safe=(
            "Abort the transaction and process the batch again. If the call hangs, restart the client: it looks up the "
            "coordinator again, and its next start or the timeout aborts the transaction.",
        ),
        never=("Commit without the offsets: the batch is processed twice.",),
        sources=("confluentinc/librdkafka#5511", "confluentinc/librdkafka#5456", "confluentinc/librdkafka#3013"),
        instead_of=("coordinator-not-ready",),
        gives_way=True,
    ),
    Symptom(
        name="transactional-call-timeout",
        title="A transactional call was not answered in time; it may have succeeded all the same.",
        wordings=(
            *wordings(
                "Java", r"while awaiting EndTxn\((?:true|false)\)", r"while awaiting (?:commit|abort)Transaction"
            ),
            *wordings(
                "librdkafka",
                r"Timed out waiting for operation to finish, retry call to resume",
                r"Transactional API operation \(.{1,60}\) timed out",
            ),
        ),
        causes=(
            "The coordinator is down, loading or slow, or __transaction_state is below its min.insync.replicas.",
            "No broker can be reached.",
        ),
        checks=(
            "kafka-txn describe --transactional-id ID: Ongoing, PrepareCommit or CompleteCommit.",
            "kafka-txn coordinator --transactional-id ID: which broker it waits for.",
            "kafka-txn history --transactional-id ID: how the transaction ended.",
        ),
        safe=("Call the same method again on the same producer: that is safe, and returns the outcome.",),
        never=(
            "Abort after a commit that timed out, write an abort marker, or send its records again: it may have been "
            "committed.",
            "Close the producer and never start it again: the transaction stays open until its timeout.",
        ),
        sources=("KIP-588", "KAFKA-18579", "KAFKA-14053", "apache/kafka TransactionalRequestResult"),
    ),
    Symptom(
        name="failed-earlier",
        title="This is only a consequence of an earlier error of the same producer.",
        wordings=(
            *wordings(
                "Java",
                r"Cannot execute transactional method because we are in an error state",
                r"\bTransactionAbortedException\b",
                r"Failing batch since transaction was aborted",
            ),
            *wordings("librdkafka", r"Local: Purged in (?:queue|flight)", r"\b_PURGE_(?:QUEUE|INFLIGHT)\b"),
        ),
        causes=("An error before it failed the transaction; its remaining records are dropped.",),
        checks=("The first error of this producer in the log, and `Caused by:` under this one. Explain that.",),
        safe=("Abort the transaction; if that fails, close the producer and start it with the same id.",),
        never=("Count the records of this transaction as written.",),
        sources=("KIP-654", "apache/kafka TransactionManager"),
        gives_way=True,
    ),
    Symptom(
        name="not-authorized",
        title="The client's principal lacks a right: on its transactional id, a topic, a group, or the cluster.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\b(?:TRANSACTIONAL_ID|TOPIC|GROUP|CLUSTER)_AUTHORIZATION_FAILED\b",
                r"\bTransactional ?Id authorization failed",
                r"Not authorized to access (?:topics?|group)\b",
                r"Broker: (?:Topic|Group|Cluster) authorization failed",
            ),
            *wordings("Java", r"\b(?:TransactionalId|Topic|Group|Cluster)AuthorizationException\b"),
            *wordings("kafka-python", r"\b(?:TransactionalId|Topic|Group|Cluster)AuthorizationFailedError\b"),
        ),
        causes=(
            "The principal has no ACL for it, or another one than expected: a new certificate, user or listener.",
            "On the cluster: markers need ALTER (CLUSTER_ACTION before 3.8), which many managed services grant to "
            "nobody; an idempotent producer needs IDEMPOTENT_WRITE on brokers before 2.8.",
            "The id has a new prefix, and the ACL is for the old one: Kafka Streams' application.id, Flink's "
            "transactionalIdPrefix, Connect's group.id.",
            "An ACL was removed while a transaction was open: its timeout ends the transaction.",
        ),
        checks=(
            "kafka-acls.sh --list --principal User:NAME: WRITE on the TransactionalId; WRITE on each topic that it "
            "produces to; READ on the group and on its input topics, to commit offsets in a transaction.",
            "The authorizer's log: kafka-authorizer.log names the principal, the operation and the resource.",
            "kafka-txn describe --transactional-id ID: whether a transaction is open.",
        ),
        safe=(
            "Grant the right, and start the client with the same transactional.id: what was open is aborted, and it "
            "continues from its last committed offsets.",
        ),
        never=(
            "Write an abort marker for a transaction that its coordinator has: it ends by itself, at its timeout.",
            "Use a new random transactional.id because only that one is allowed: the old one stays open.",
        ),
        sources=("KIP-98", "apache/kafka KafkaApis"),
        gives_way=True,
    ),
    Symptom(
        name="coordinator-not-ready",
        title="The coordinator is loading, moving or not available; clients retry by themselves.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\b(?:GROUP_)?COORDINATOR_(?:LOAD_IN_PROGRESS|NOT_AVAILABLE)\b",
                r"\bNOT_COORDINATOR\b",
                r"NOT_COORDINATOR_FOR_GROUP\b",
                r"\bGROUP_LOAD_IN_PROGRESS\b",
                r"The coordinator is loading and hence can.t process requests",
            ),
            *wordings("Java", r"\b(?:CoordinatorLoadInProgress|CoordinatorNotAvailable|NotCoordinator)Exception\b"),
            *wordings(
                "librdkafka",
                r"Broker: (?:Coordinator load in progress|Coordinator not available|Not coordinator)",
                r"Local: Waiting for coordinator",
            ),
        ),
        causes=(
            "A broker restarted, or leaders were moved: the new leader of the id's __transaction_state partition reads "
            "that partition first. For seconds, or minutes where it is large and was never compacted.",
            "That partition has no leader, or fewer in-sync replicas than min.insync.replicas.",
            "Loading failed, by the broker's log: then it never gets ready.",
        ),
        checks=(
            "kafka-txn coordinator --transactional-id ID, or --group GROUP: which partition, which broker, whether it "
            "responds.",
            "kafka-txn partitions --topic __transaction_state: leaders, and how large they are.",
            "That broker's server.log: `Loading transaction metadata` without `Completed loading`, or `Error loading`.",
        ),
        safe=("Wait, and let the client retry with the same id. Bring the partition's leader or its replicas back.",),
        never=(
            "Write an abort marker meanwhile: nothing shows yet who owns a transaction, and findings are `unknown`.",
            "Delete or recreate __transaction_state: every open transaction of the cluster is left without an owner.",
        ),
        sources=("KIP-98", "apache/kafka TransactionStateManager"),
        gives_way=True,
    ),
)


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
