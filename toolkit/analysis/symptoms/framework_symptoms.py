"""Flink, Connect and other frameworks or systems report a transaction in words of their own."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import Symptom, wordings

_OTHERS_CHECKPOINT = (
    "Abort or fence a transaction of a completed checkpoint that is still Ongoing: Flink has yet to commit it."
)

FRAMEWORK_SYMPTOMS = (
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
        sources=("apache/flink-connector-kafka BackchannelFactory", "FLINK-40626"),
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
        wordings=wordings("librdkafka", r"Operation not valid in state [A-Z][A-Za-z]{2,40}"),
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
