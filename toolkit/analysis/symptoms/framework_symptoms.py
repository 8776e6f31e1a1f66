"""Flink, Connect and other frameworks or systems report a transaction in words of their own."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import Symptom, wordings

_OTHERS_CHECKPOINT = (
    "Abort or fence a transaction of a completed checkpoint that is still Ongoing: Flink has yet to commit it."
)

FRAMEWORK_SYMPTOMS = (
    Symptom(
        name="flink-prefix-changed",
        title="A Flink job was restored with another transactionalIdPrefix than its savepoint has.",
        wordings=wordings(
            "Flink",
            r"Transactional id prefix from previous execution .{1,260} has changed to",
            r"Attempted to switch the transaction naming strategy back to INCREMENTING",
        ),
        causes=(
            "The prefix of the sink was changed. Flink aborts what it finds open under both prefixes, and commits what "
            "the savepoint contains.",
            "The prefix was changed and the job started without state: nobody aborts transactions of the former "
            "prefix, which hold the LSO until their timeout (1 hour by default).",
        ),
        checks=(
            "kafka-txn list --by-prefix: ids of the former prefix that are still Ongoing.",
            "kafka-txn diagnose --flink-checkpoint DIR: which of them a completed checkpoint has yet to commit.",
        ),
        safe=(
            "Restore from the last checkpoint with the former prefix: it commits and aborts what is open.",
            "Otherwise wait for the timeout. Only for ids that no checkpoint commits, and whose job is gone: kafka-txn "
            "fence.",
        ),
        never=(_OTHERS_CHECKPOINT, "Change the prefix again: each one leaves ids that nobody ends."),
        sources=("apache/flink-connector-kafka ExactlyOnceKafkaWriter", "FLIP-572"),
    ),
    Symptom(
        name="flink-duplicate-prefix",
        title="Two sinks of a Flink job have the same transactionalIdPrefix.",
        wordings=wordings("Flink", r"Found duplicate transactionalIdPrefix for multiple Kafka sinks"),
        causes=(
            "The prefix is the default or a constant in a method that makes several sinks: each would fence the "
            "transactions of the other.",
        ),
        checks=(
            "The prefix of every KafkaSink, in this job and in each job that writes to the same cluster.",
            "kafka-txn diagnose: transactions of the prefix that are still open.",
        ),
        safe=(
            "Give each sink a prefix of its own. Restore from the last checkpoint of a time before the conflict: Flink "
            "aborts what it finds under the former prefix and commits what that checkpoint contains.",
        ),
        never=(_OTHERS_CHECKPOINT,),
        sources=("apache/flink-connector-kafka BackchannelFactory", "j3-signalroom/apache_flink-kickstarter#750"),
    ),
    Symptom(
        name="connect-task-fenced",
        title="Connect could not fence a connector's former tasks, or fences its own ones again and again.",
        wordings=wordings(
            "Connect",
            r"Failed to (?:perform|complete) (?:a )?(?:round of )?zombie fencing",
            r"Only the leader may perform zombie fencing",
            r"\bExactlyOnceWorkerSourceTask\b.{0,2000}?\bProducerFencedException\b",
        ),
        causes=(
            "Two Connect clusters use one Kafka cluster, group.id and connector name: their tasks have the same "
            "transactional ids, GROUP-CONNECTOR-TASK, and fence each other.",
            "A worker that lost its group runs on with the tasks that have moved; fencing stops it. This is temporary.",
            "Each rebalance, or each new set of task configs, fences the generation before it: the group does not "
            "settle.",
            "The worker's principal lacks WRITE on these transactional ids, or their coordinator does not answer.",
        ),
        checks=(
            "kafka-txn history --transactional-id ID: `fence` every few seconds means two owners.",
            "The number of workers by the group of group.id: kafka-consumer-groups.sh --describe --members.",
            "kafka-txn coordinator --transactional-id ID: whether it responds.",
        ),
        safe=(
            "Give one of two clusters another group.id, and other internal topics. Then restart the failed task: it "
            "continues from its last committed source offset; nothing is lost or duplicated.",
        ),
        never=(
            "Set exactly.once.source.support=disabled to get past it: former tasks that still run write duplicates.",
            "Write an abort marker where no finding is `hanging`: the next task with the id aborts what was open.",
        ),
        sources=("KIP-618", "KAFKA-15059", "apache/kafka DistributedHerder"),
        instead_of=("producer-fenced",),
    ),
    Symptom(
        name="streams-task-migrated",
        title="Kafka Streams lost a task while it had a transaction open, and was fenced.",
        wordings=wordings(
            "Streams",
            r"Producer got fenced trying to (?:begin a new transaction|send a record|commit a transaction)",
            r"no more records would be sent since the producer is fenced",
            r"it means all tasks belonging to this thread should be migrated",
            r"since it got migrated to another thread already",
        ),
        causes=(
            "The transaction took longer than its timeout, 10 seconds by default in Kafka Streams: a long process(), "
            "a state store that flushes, garbage collection, a commit.interval.ms that is too long.",
            "The thread did not poll within max.poll.interval.ms, or was cut off: the group gave its tasks to another "
            "one, which fenced it (exactly_once), or whose offsets it could not commit any more (exactly_once_v2).",
            "Two applications have the same application.id.",
        ),
        checks=(
            "kafka-txn history --transactional-id ID: `timeout` means that the coordinator aborted it.",
            "The time between two commits of that thread, compared with 10 seconds.",
            "The group's log: how often it rebalances, and why.",
        ),
        safe=(
            "Once in a while: nothing to do. The task starts again from its last committed offsets; nothing is lost or "
            "written twice.",
            "In a loop: raise producer.transaction.timeout.ms above the longest time between two commits, lower "
            "max.poll.records, or raise max.poll.interval.ms.",
        ),
        never=(
            "Write an abort marker where no finding is `hanging`: the transaction is aborted, or its coordinator is "
            "about to.",
            "Change application.id to get past it: state and offsets start again, and output is written twice.",
        ),
        sources=("KIP-447", "KIP-588", "KAFKA-19690", "apache/kafka TaskMigratedException"),
        instead_of=("producer-fenced",),
    ),
    Symptom(
        name="group-metadata-mismatch",
        title="The consumer left its group, or the group rebalanced, before its offsets were added to the transaction.",
        wordings=wordings("Java", r"Transaction offset Commit failed due to consumer group metadata mismatch"),
        causes=(
            "A rebalance moved the partitions: another member processes these records (KIP-447).",
            "The consumer did not poll within max.poll.interval.ms.",
            "The group metadata was read before the rebalance, or in another thread.",
        ),
        checks=(
            "The consumer's log right before it: a rebalance, or `leave group`.",
            "kafka-txn history --transactional-id ID: the transaction ends as an abort.",
        ),
        safe=(
            "Abort the transaction and go on from the partitions and offsets that the group has now. Call "
            "consumer.groupMetadata() for each transaction.",
        ),
        never=("Commit without the offsets: the other member processes the same records, and writes them twice.",),
        sources=("KIP-447", "apache/iceberg#16366", "reactor/reactor-kafka#295"),
    ),
    Symptom(
        name="other-broker-software",
        title="These brokers are not Apache Kafka: their coordinator has rules and remedies of its own.",
        wordings=(
            *wordings("Redpanda", r"\btx(?:::|_)errc::", r"\b(?:rm_stm|tx_gateway_frontend|rm_group_frontend)\.cc\b"),
            *wordings("KoP", r"\bio\.streamnative\.pulsar\.handlers\.kop\."),
        ),
        causes=(
            "The broker implements Kafka's protocol and not its coordinator: states, errors and timeouts differ.",
            "Transactions are disabled in the broker's configuration.",
        ),
        checks=(
            "kafka-txn exposure: the row `broker software`.",
            "kafka-txn diagnose: a transaction without an owner is `unknown` here, as it proves nothing.",
        ),
        safe=(
            "Use that system's own commands; its page has them: brokers that are not Apache Kafka (how-to).",
            "Wait for the transaction's timeout.",
        ),
        never=("Write an abort marker: the system may ignore it, or end only one part of the transaction.",),
        sources=("redpanda-data/redpanda#24468", "redpanda-data/redpanda#24445", "streamnative/kop#1355"),
    ),
    Symptom(
        name="call-in-wrong-state",
        title="The application called the transactional API in the wrong order, or went on after an error.",
        wordings=(
            *wordings("librdkafka", r"Operation not valid in state [A-Z][A-Za-z]{2,40}"),
            *wordings("Java", r"Invalid transition attempted from state [A-Z_]{2,40} to state [A-Z_]{2,40}"),
            *wordings("Spring", r"IllegalArgumentException: No transaction (?:is )?in process"),
        ),
        causes=(
            "An earlier call failed, and the application did not abort the transaction.",
            "Two threads share one producer, or initialization was not finished.",
        ),
        checks=("The first error of this producer in the log. Explain that.",),
        safe=(
            "Abort the transaction; if that fails, close the producer and start it with the same transactional.id.",
            "The cluster holds nothing beyond the transaction's timeout.",
        ),
        never=("Count the records of this transaction as written.",),
        sources=("KIP-98", "confluentinc/librdkafka#3003"),
        gives_way=True,
    ),
)
