"""Errors as clients print them that cannot be reproduced here, and texts that are unrelated to transactions."""
# ruff: noqa: E501  lines as printed

CITED = [  # expected symptom, client that prints the text, source, and the text
    (
        "unstable-offset-commit",
        "any client",
        "redpanda-data/redpanda#6423",
        "[thrd:main]: GroupCoordinator/1: OffsetFetchResponse: transactions-pending-zstd [0] offset -1, metadata 0 byte(s):"
        " UNSTABLE_OFFSET_COMMIT",
    ),
    (
        "unstable-offset-commit",
        "any client",
        "twmb/franz-go pkg/kerr/kerr.go",
        "UNSTABLE_OFFSET_COMMIT: There are unstable offsets that need to be cleared.",
    ),
    (
        "concurrent-transactions",
        "any client",
        "twmb/franz-go pkg/kgo/txn.go",
        "[DEBUG] AddPartitionsToTxn failed with CONCURRENT_TRANSACTIONS, which may be because we ended a txn and began "
        "producing in a new txn too quickly; backing off and retrying; backoff: 20ms",
    ),
    (
        "concurrent-transactions",
        "any client",
        "IBM/sarama#2915",
        "kafka server: The producer attempted to update a transaction while another concurrent operation on the same "
        "transaction was ongoing",
    ),
    (
        "end-txn-invalid-state",
        "librdkafka",
        "fede1024/rust-rdkafka#349",
        "librdkafka: TXNERR [thrd:main]: Fatal transaction error: Failed to end transaction: Broker: Producer attempted a "
        "transactional operation in an invalid state (INVALID_TXN_STATE)",
    ),
    (
        "invalid-txn-state",
        "Java",
        "apache/kafka StreamsProducer, KAFKA-19690",
        "org.apache.kafka.streams.errors.StreamsException: stream-thread [app-StreamThread-1] Error encountered trying to "
        "commit a transaction [stream-thread [app-StreamThread-1]]\nCaused by: org.apache.kafka.common.errors."
        "InvalidTxnStateException: The producer attempted a transactional operation in an invalid state.",
    ),
    (
        "invalid-txn-state",
        "broker",
        "apache/kafka#23204 (KAFKA-20785)",
        "[TransactionCoordinator id=1] TransactionalId: app-1's state is COMPLETE_ABORT, but received transaction marker "
        "result to send: COMMIT (kafka.coordinator.transaction.TransactionCoordinator)",
    ),
    (
        "invalid-txn-state",
        "Java",
        "apache/seatunnel#4247",
        "org.apache.kafka.common.errors.InvalidTxnStateException: The producer attempted a transactional operation in an "
        "invalid state.",
    ),
    (
        "streams-task-migrated",
        "Streams",
        "apache/kafka StreamsProducer",
        "org.apache.kafka.streams.errors.TaskMigratedException: Producer got fenced trying to commit a transaction "
        "[stream-thread [app-StreamThread-1]]; it means all tasks belonging to this thread should be migrated.",
    ),
    (
        "streams-task-migrated",
        "Streams",
        "apache/kafka RecordCollectorImpl",
        "Error encountered sending record to topic out for task 0_1 due to:\norg.apache.kafka.common.errors."
        "InvalidProducerEpochException: Producer attempted to produce with an old epoch.\nWritten offsets would not be "
        "recorded and no more records would be sent since the producer is fenced, indicating the task may be migrated out",
    ),
    (
        "producer-fenced",
        "any client",
        "twmb/franz-go pkg/kerr/kerr.go",
        "INVALID_PRODUCER_EPOCH: Producer attempted an operation with an old epoch.",
    ),
    (
        "producer-fenced",
        "broker",
        "apache/kafka ProducerAppendInfo",
        "org.apache.kafka.common.errors.InvalidProducerEpochException: Epoch of producer 171100 at offset 5 in orders-0 is "
        "1, which is smaller than the last seen epoch 2",
    ),
    (
        "connect-transaction-expired",
        "Connect",
        "apache/kafka ExactlyOnceWorkerSourceTask",
        "org.apache.kafka.connect.errors.ConnectException: The task jdbc-0 was unable to finish writing records to Kafka "
        "before its producer transaction expired. It may be necessary to reconfigure this connector\n\tat org.apache.kafka."
        "connect.runtime.ExactlyOnceWorkerSourceTask.wrapTransactionTimeoutError(E.java:360)\nCaused by: org.apache.kafka."
        "common.errors.ProducerFencedException: There is a newer producer with the same transactionalId which fences the "
        "current one.",
    ),
    (
        "flink-commit-failed",
        "Flink",
        "apache/flink-connector-kafka KafkaCommitter",
        "ERROR Unable to commit transaction (CommitRequestImpl{state=RECEIVED, numberOfRetries=0, committable="
        "KafkaCommittable{producerId=25004, epoch=586, transactionalId='sink-0-12', producer=null}}) because its producer "
        "is already fenced. This means that you either have a different producer with the same 'transactional.id'\n"
        "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer with the same transactionalId "
        "which fences the current one.",
    ),
    (
        "flink-commit-failed",
        "Flink",
        "apache/flink#16941",
        "Unable to commit recovered transaction (KafkaTransactionState [transactionalId=sink-1, producerId=4, epoch=2]) "
        "because it's in an invalid state. Most likely the transaction has been aborted for some reason. Please check the "
        "Kafka logs for more details.\norg.apache.kafka.common.errors.InvalidTxnStateException: The producer attempted a "
        "transactional operation in an invalid state.",
    ),
    (
        "flink-commit-failed",
        "Flink",
        "streamnative/kop#1333",
        "Transaction KafkaTransactionState [transactionalId=Source: Custom Source -> Sink: Unnamed-1, producerId=25004, "
        "epoch=586] has been open for 42551680 ms. This is close to or even exceeding the transaction timeout of 10000 ms.",
    ),
    (
        "transaction-timeout-too-large",
        "any client",
        "j3-signalroom/apache_flink-kickstarter#787",
        "org.apache.kafka.common.KafkaException: Unexpected error in InitProducerIdResponse; The transaction timeout is "
        "larger than the maximum value allowed by the broker (as configured by transaction.max.timeout.ms).\n\tat org."
        "apache.kafka.clients.producer.internals.TransactionManager$InitProducerIdHandler.handleResponse(T.java:1463)",
    ),
    (
        "transaction-abortable",
        "Java",
        "apache/kafka Errors, KAFKA-19250",
        "org.apache.kafka.common.errors.TransactionAbortableException: The server encountered an error with the "
        "transaction. The client can abort the transaction to continue using this transactional ID.",
    ),
    (
        "transaction-abortable",
        "any client",
        "apache/kafka ReplicaManager",
        "org.apache.kafka.common.errors.NotEnoughReplicasException: Unable to verify the partition has been added to the "
        "transaction. Underlying error: CONCURRENT_TRANSACTIONS",
    ),
    (
        "init-transactions-timeout",
        "Java",
        "apache/kafka 2.x KafkaProducer",
        "org.apache.kafka.common.errors.TimeoutException: Timeout expired while initializing transactional state in 60000ms.",
    ),
    (
        "init-transactions-timeout",
        "librdkafka",
        "confluentinc/confluent-kafka-python#842",
        'cimpl.KafkaException: KafkaError{code=_TIMED_OUT,val=-185,str="Failed to initialize Producer ID: Local: Timed out"}',
    ),
    (
        "init-transactions-timeout",
        "franz-go",
        "twmb/franz-go pkg/kgo/producer.go",
        "[INFO] producer id initialization resulted in retryable error, discarding initialization attempt; err: "
        "COORDINATOR_LOAD_IN_PROGRESS: The coordinator is loading and hence can't process requests.",
    ),
    (
        "send-offsets-timeout",
        "librdkafka",
        "confluentinc/librdkafka#3958",
        "Failed to add offsets to transaction on broker TxnCoordinator/2: Broker: Not coordinator (after 0ms)",
    ),
    (
        "out-of-order-sequence",
        "any client",
        "twmb/franz-go pkg/kerr/kerr.go",
        "OUT_OF_ORDER_SEQUENCE_NUMBER: The broker received an out of order sequence number.",
    ),
    (
        "unknown-producer-id",
        "Java",
        "apache/kafka Errors",
        "org.apache.kafka.common.errors.UnknownProducerIdException: This exception is raised by the broker if it could not "
        "locate the producer metadata associated with the producerId in question.",
    ),
    (
        "unknown-producer-id",
        "librdkafka",
        "confluentinc/librdkafka src/rdkafka_request.c",
        "ProduceRequest for orders [3] with 12 message(s) failed due to unknown producer id",
    ),
    (
        "invalid-producer-id-mapping",
        "any client",
        "twmb/franz-go#451",
        "INVALID_PRODUCER_ID_MAPPING: The producer attempted to use a producer id which is not currently assigned to its "
        "transactional id.",
    ),
    (
        "transaction-coordinator-fenced",
        "broker",
        "apache/kafka ProducerAppendInfo, KAFKA-9144",
        "Detected invalid coordinator epoch for producerId 171100 at offset 7 in partition orders-0: 3 is older than "
        "previously known coordinator epoch 4",
    ),
    (
        "failed-earlier",
        "Java",
        "apache/kafka TransactionAbortedException (KIP-654)",
        "org.apache.kafka.common.errors.TransactionAbortedException: Failing batch since transaction was aborted",
    ),
    (
        "spark-offset-gaps",
        "Spark",
        "apache/hudi#8258",
        "java.lang.IllegalArgumentException: requirement failed: Failed to get records for spark-executor-hudi-streamer "
        "my-topic 0 5 after polling for 1000\n\tat scala.Predef$.require(Predef.scala:281)",
    ),
    (
        "spark-offset-gaps",
        "Spark",
        "apache/hudi#1598",
        "java.lang.IllegalArgumentException: requirement failed: Failed to get records for compacted spark-executor-topic_c"
        " topic-changelog-11 after polling for 310000",
    ),
    (
        "spark-offset-gaps",
        "Spark",
        "hankemay/hanke.github.io",
        "java.lang.IllegalStateException: Cannot fetch offset 356071232 (GroupId: spark-kafka-source-5f4425dc--1654482722-"
        "executor, TopicPartition: pair_prod_sample-45).",
    ),
    (
        "spark-offset-gaps",
        "Spark",
        "apache/spark kafka-error-conditions.json",
        "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records in offset [11, 12) for topic partition "
        "orders-0 with consumer group spark-kafka-source-5f44-executor.",
    ),
    (
        "unstable-offset-commit",
        "Java",
        "apache/kafka ClassicKafkaConsumer",
        "org.apache.kafka.common.errors.TimeoutException: Timeout of 8000ms expired before the position for partition "
        "orders-1 could be determined",
    ),
    (
        "consumer-offsets-grows",
        "broker",
        "apache/kafka LogCleaner",
        "WARN [kafka-log-cleaner-thread-0]: Unexpected exception thrown when cleaning log UnifiedLog(dir=/d/__consumer_"
        "offsets-3). Marking its partition (__consumer_offsets-3) as uncleanable",
    ),
    ("consumer-offsets-grows", "words", "a question", "__consumer_offsets keeps growing, 80 GB on disk"),
    ("read-committed-stall", "words", "a question", "Our read_committed consumer stands still, there is no error"),
    ("read-committed-stall", "words", "a question", "consumer lag is 0, but no new records arrive"),
    ("lag-stuck-at-one", "words", "kafbat/kafka-ui#1039", "Consumer lag is always stuck at 1 for transactional topics"),
    (
        "not-authorized",
        "Java",
        "apache/kafka Errors.java",
        "org.apache.kafka.common.errors.TransactionalIdAuthorizationException: Transactional Id authorization failed.",
    ),
    (
        "not-authorized",
        "Java",
        "apache/kafka TopicAuthorizationException.java",
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
    ),
    (
        "not-authorized",
        "Java",
        "apache/kafka GroupAuthorizationException.java",
        "Caused by: org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access group: g1",
    ),
    (
        "not-authorized",
        "any client",
        "confluentinc/librdkafka src/rdkafka.c",
        "%1|FATAL|p-1|: Fatal error: Broker: Transactional Id authorization failed: Failed to acquire transactional PID",
    ),
    ("coordinator-not-ready", "any client", "apache/kafka Errors.java", "InitProducerId failed: NOT_COORDINATOR"),
    (
        "coordinator-not-ready",
        "Java",
        "apache/kafka Errors.java",
        "org.apache.kafka.common.errors.CoordinatorLoadInProgressException: The coordinator is loading and hence can't "
        "process requests.",
    ),
    (
        "init-transactions-timeout",
        "librdkafka",
        "confluentinc/librdkafka src/rdkafka_idempotence.c",
        "Failed to acquire transactional PID from broker TxnCoordinator/2: Broker: Request timed out: retrying",
    ),
    ("lag-stuck-at-one", "words", "a person", "our consumer group shows LAG 1 forever on every partition"),
    (
        "last-epoch",
        "broker",
        "a broker of 3.9.2, by tests/actions/test_last_epoch.py",
        "ERROR Uncaught exception in scheduled task 'transaction-abort' (org.apache.kafka.server.util.KafkaScheduler)\n"
        "java.lang.IllegalStateException: Cannot fence producer with epoch equal to Short.MaxValue since this would overflow",
    ),
    (
        "flink-prefix-changed",
        "Flink",
        "apache/flink-connector-kafka ExactlyOnceKafkaWriter",
        "WARN  ExactlyOnceKafkaWriter [] - Transactional id prefix from previous execution orders-v1 has changed to orders-v2.",
    ),
    (
        "streams-task-migrated",
        "Streams",
        "apache/kafka TaskExecutor",
        "Failed to process stream task 0_3 since it got migrated to another thread already. Will trigger a new rebalance and "
        "close all tasks as zombies together.",
    ),
    (
        "connect-task-fenced",
        "Connect",
        "apache/kafka DistributedHerder",
        "ERROR [jdbc|task-0] Failed to start task: org.apache.kafka.connect.errors.ConnectException: Failed to perform round of "
        "zombie fencing",
    ),
    (
        "group-metadata-mismatch",
        "Java",
        "apache/kafka TransactionManager",
        "org.apache.kafka.clients.consumer.CommitFailedException: Transaction offset Commit failed due to consumer group "
        "metadata mismatch: The coordinator is not aware of this member.",
    ),
    (
        "not-authorized",
        "Java",
        "apache/kafka ClusterAuthorizationException.java",
        "org.apache.kafka.common.errors.ClusterAuthorizationException: Cluster authorization failed.",
    ),
    ("consumer-offsets-grows", "words", "a person", "compaction stands still on topic orders, 300 GB"),
    ("lag-grows-with-aborts", "words", "a person", "the consumer lag increases by 5 with every aborted transaction"),
    ("lso-held-after-abort", "words", "a person", "I aborted the hanging transaction but the LSO did not move"),
    ("wrong-transaction-aborted", "words", "a person", "we aborted the wrong transaction, what is lost?"),
    ("unclean-election", "words", "a person", "after an unclean leader election on orders-3 records are missing"),
    (
        "cannot-connect",
        "kafka-txn",
        "toolkit broker_response.py",
        "No bootstrap server can be used. b:9092 cannot be used: disconnected. The broker closed the connection: wrong "
        "security.protocol (PLAINTEXT)?",
    ),
]

CITED += [
    (
        "call-in-wrong-state",
        "Java",
        "spring-cloud/spring-cloud-stream#1166",
        "org.apache.kafka.common.KafkaException: TransactionalId my-id-6: Invalid transition attempted from state "
        "IN_TRANSACTION to state IN_TRANSACTION",
    ),
    (
        "call-in-wrong-state",
        "Spring",
        "spring-attic/spring-cloud-stream-binder-kafka#946",
        "java.lang.IllegalArgumentException: No transaction in process at org.springframework.kafka.core.KafkaTemplate."
        "producerForOffsets(KafkaTemplate.java:532)",
    ),
    (
        "end-txn-invalid-state",
        "librdkafka",
        "fede1024/rust-rdkafka#349",
        "Error: KafkaError (Transaction error: EndTxn commit failed: Broker: Producer attempted a transactional operation "
        "in an invalid state)",
    ),
    ("producer-fenced", "sarama", "IBM/sarama#2859", "Error: Unknown error, how did this happen? Error code = 90"),
    (
        "connect-leader-fenced",
        "Connect",
        "a worker of 4.3.1 whose leader's id was fenced",
        "ERROR Uncaught exception in REST call to /connectors/orders-csv/restart (ConnectExceptionMapper)\n"
        "java.lang.IllegalStateException: Cannot produce to config topic without claiming write privileges first\n"
        "\tat org.apache.kafka.connect.storage.KafkaConfigBackingStore.sendPrivileged(KafkaConfigBackingStore.java:839)",
    ),
    (
        "connect-leader-fenced",
        "Connect",
        "the same worker, before",
        "WARN Failed to perform fencable send to config topic (org.apache.kafka.connect.storage.KafkaConfigBackingStore)\n"
        "org.apache.kafka.common.errors.InvalidProducerEpochException: Producer attempted to produce with an old epoch.",
    ),
    (
        "unstable-offset-commit",
        "any client",
        "confluentinc/librdkafka#3265",
        "rd_kafka_consumer_err (rkq=0x10891a0, err=RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT, version=version@entry=0)",
    ),
]

UNRELATED = [
    "",
    " \n\t ",
    'java.lang.NullPointerException: Cannot invoke "String.length()" because "<local1>" is null\n\tat com.example.Main.'
    "main(Main.java:5)",
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nZeroDivisionError: division by zero',
    "org.apache.kafka.common.errors.TimeoutException: Topic orders not present in metadata after 60000 ms.",
    "org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s) for orders-0:120000 ms has passed since batch "
    "creation",
    "org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests intended only for the leader",
    "[Consumer clientId=c-1, groupId=billing] Offset commit failed: This is not the correct coordinator.",
    "%3|1585687831.368|FAIL|rdkafka#consumer-1| [thrd:b:9092/1]: b:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection "
    "refused (after 0ms in state CONNECT)",
    "org.postgresql.util.PSQLException: ERROR: current transaction is aborted, commands ignored until end of transaction "
    "block",
    "com.mysql.cj.jdbc.exceptions.MySQLTransactionRollbackException: Lock wait timeout exceeded; try restarting transaction",
    "2026-11-21 09:58:11 INFO Started Application in 3.2 seconds; profile=prod, workers=12, queue=orders-0",
    "ProducerConfig values:\n\tacks = -1\n\ttransaction.timeout.ms = 60000\n\ttransactional.id = payments-7\n",
    "[Producer clientId=p, transactionalId=payments-7] Discovered transaction coordinator b1:9092 (id: 1 rack: null)",
    "[KafkaServer id=1] Unclean leader election has been enabled by default",
    "the LSO is at 4711, and two transactions were aborted on orders-0 today",
    "HTTP/1.1 500 Internal Server Error in 120000 ms, 3 retries left, state=fenced",
]
