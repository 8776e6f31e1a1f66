"""Consumers get no records, or sequence numbers or offsets have gaps."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import ANY_CLIENT, Symptom, wordings

_DIAGNOSE = "kafka-txn diagnose --topic T: who holds the LSO of each partition, why, and what is safe."
_ROW = r" \d{{1,10}} \d{{1,19}} \d{{1,19}} {lag} (?:\S{{1,300}} /\S{{1,100}} |- - -)"  # PARTITION to CLIENT-ID

READING_SYMPTOMS = (
    Symptom(
        name="unstable-offset-commit",
        title="The group's committed offsets are part of an open transaction: no consumer can read them until it ends.",
        wordings=(
            *wordings(
                ANY_CLIENT, r"\bUNSTABLE_?OFFSET_?COMMIT\b", r"There are unstable offsets that need to be cleared"
            ),
            *wordings(
                "Java",
                r"\bUnstableOffsetCommitException\b",
                r"There are unstable offsets for the requested topic partitions",
                r"partitions still have unstable offsets which are not cleared on the broker side",
                r"expired before the last committed offset for partitions?\b",
                r"expired before the position for partition \S{1,260} could be determined",
            ),
            *wordings("librdkafka", r"Failed to get committed offsets: Local: Timed out", r"unstable partition\(s\)"),
            *wordings("kafka-python", r"\bUnstableOffsetCommitError\b"),
        ),
        causes=(
            "A producer added the group's offsets to a transaction and has not ended it: its timeout will end it.",
            "That transaction hangs on __consumer_offsets: no coordinator will end it, and the group stays stuck.",
            "No transaction has it, and it is pending all the same (`NO_TRANSACTION`): its marker is not in the log.",
            "Only if a client reports a timeout: the group coordinator, or the partition's leader, does not answer.",
        ),
        checks=(
            "kafka-txn diagnose --topic __consumer_offsets: the producer and the id on the group's partition.",
            "kafka-txn coordinator --group GROUP: which partition of __consumer_offsets that is.",
            "kafka-txn lag --group GROUP: `NO_TRANSACTION` if nothing is open there; `DELETED` if the group or its "
            "offsets were deleted while the transaction was open.",
        ),
        safe=(
            "`ongoing`: wait, or have its client end it.",
            "`stuck_ending`, outcome commit: kafka-txn complete, if the remedy names it; the group gets the offsets.",
            "`hanging`, outcome undecided or abort: first find out whether its output was committed on other "
            "partitions. Then kafka-txn abort; the group continues from its last committed offsets and reads later "
            "records again. To not write committed output twice, set its offsets to the saved ones first.",
            "`NO_TRANSACTION`: stop the group, write down its other offsets, delete it, and set its offsets again.",
        ),
        never=(
            "Recreate the group, or reset its offsets, in an open transaction: it loses its position, and the next one "
            "may hang again.",
            "Search the data topics only: their LSO may not be held.",
        ),
        sources=("redpanda-data/redpanda#6423", "twmb/franz-go#581", "KIP-447", "KAFKA-19163", "KAFKA-19164"),
    ),
    Symptom(
        name="lag-stuck-at-one",
        title="A lag of 1 that never goes away is the transaction's marker, not a record.",
        wordings=(
            *wordings("kafka-consumer-groups.sh", _ROW.format(lag=1)),
            *wordings(
                "words",
                r"\blag\b.{0,30}\b(?:stuck|stays?|keeps?|always|constant\w{0,2}|never)\b.{0,30}\b(?:1|one)\b",
                r"\blag (?:of |is |= ?)?(?:1|one)\b.{0,30}\b(?:stuck|stays?|always|constant\w{0,2}|never|forever)\b",
            ),
        ),
        causes=(
            "The last offset of the partition is a commit or abort marker, and the group has committed the offset "
            "after its last record, which is that of the marker. Applications do so that commit record offset + 1, in "
            "librdkafka with a message; the position of a Java client and librdkafka's stored offsets are past it.",
        ),
        checks=("kafka-txn diagnose --topic T --partition P: `clear` means that nothing is held.",),
        safe=("Nothing to do. Alert on lag that grows, or on a held LSO, instead of lag above 0.",),
        never=("Reset or skip offsets to get to 0.",),
        sources=("KAFKA-10683", "kafbat/kafka-ui#1039", "spring-projects/spring-kafka#2590"),
    ),
    Symptom(
        name="read-committed-stall",
        title="A read_committed consumer receives nothing, whatever lag it shows.",
        wordings=(
            *wordings("kafka-consumer-groups.sh", _ROW.format(lag=r"(?:[2-9]|[1-9]\d{1,18})")),
            *wordings(
                "words",
                r"\bread_committed\b.{0,120}\b(?:nothing|no (?:records|messages|data)|stuck|stalled|stands still)\b",
                r"\b(?:nothing|no (?:records|messages|data)|stuck|stalled|stands still)\b.{0,120}\bread_committed\b",
                r"\bread_committed\b.{0,40}\b(?:hangs?|stop(?:s|ped))\b",
                r"\b(?:consum\w{1,4}|read\w{0,3}) (?:hangs?|stop(?:s|ped))\b.{0,40}\bread_committed\b",
                r"\blag\b.{0,15}\b(?:0|zero)\b.{0,80}\b(?:nothing|no (?:new )?(?:records|messages|data))\b",
                r"\b(?:nothing|no (?:new )?(?:records|messages|data))\b.{0,80}\blag\b.{0,15}\b(?:0|zero)\b",
            ),
        ),
        causes=(
            "An open transaction holds the last stable offset (LSO). A client measures its lag to the LSO and shows 0; "
            "kafka-consumer-groups.sh measures it to the high watermark and includes the held records.",
            "Nothing is held: the consumer is slow, paused, rebalancing or gone.",
            "Nothing is held, and the consumer's offset is before local_log_start_offset (kafka-txn partitions): "
            "remote storage is too slow, and the leader returns nothing and no error.",
        ),
        checks=(_DIAGNOSE, "Offsets of a read_uncommitted consumer: does it receive records behind the LSO?"),
        safe=("Follow the remedy of that partition's finding: each verdict and outcome has its own.",),
        never=(
            "Switch to read_uncommitted as a workaround: aborted records are then read as if they were committed.",
            "Abort before you know what holds the LSO, and its outcome: an abort marker on a live or a committed "
            "transaction loses its records there.",
            "Skip the offsets: committed records behind the LSO are lost to the group.",
        ),
        sources=("KIP-98", "KIP-664", "softwaremill/klag-exporter#104"),
    ),
    Symptom(
        name="remote-storage-read",
        title="The leader cannot read these offsets, or the index of their transactions, from remote storage.",
        wordings=(
            *wordings("Java", r"Unknown server error while fetching offset \d{1,19} for topic-partition"),
            *wordings(
                "librdkafka", r"Fetch from broker \d{1,10} failed at offset \d{1,19}.{0,40}: Unknown broker error"
            ),
            *wordings("broker", r"Error occurred while reading the remote data for", r"\bRemoteStorageException\b"),
        ),
        causes=(
            "The transaction index of a remote segment cannot be read. A read_committed consumer fails segments before "
            "it, as the leader searches later indexes, too; a read_uncommitted one at that segment. No LSO is held.",
            "Remote storage is down, refuses the broker, or has lost the segment.",
        ),
        checks=(
            "kafka-txn partitions --topic T: what is before local_log_start_offset is in remote storage.",
            "kafka-txn diagnose --topic T: `clear` means that no transaction is the cause.",
            "The leader's log: RemoteStorageException, with the segment and the kind of index.",
        ),
        safe=(
            "Restore the object in remote storage, by its version or a backup: consumers then continue by themselves.",
        ),
        never=(
            "Delete or empty the .txnindex of a remote segment: the leader takes that for a segment without aborted "
            "transactions, and read_committed consumers receive the aborted records, without an error.",
            "Abort or fence anything: no open transaction causes this.",
        ),
        sources=("KIP-405", "apache/kafka RemoteLogManager"),
    ),
    Symptom(
        name="out-of-order-sequence",
        title="The partition expects another sequence number from this producer: a batch is missing or arrived twice.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bOUT_OF_ORDER_SEQUENCE(?:_NUMBER)?\b",
                r"The broker received an out of order sequence number",
            ),
            *wordings("Java", r"\bOutOfOrderSequenceException\b"),
            *wordings(
                "librdkafka", r"Broker: Broker received an out of order sequence number", r"sequence desynchronization"
            ),
            *wordings(
                "broker",
                r"Out of order sequence number for producer \d{1,19}",
                r"Invalid sequence number for new epoch of producer \d{1,19}",
            ),
            *wordings("kafka-python", r"\bOutOfOrderSequenceNumberError\b"),
        ),
        causes=(
            "A batch expired in the client, or was lost in an unclean leader election, and the next one arrived.",
            "Two processes write with one producer id and epoch.",
            "librdkafka up to 1.6.1 could lose messages here (librdkafka#3575).",
        ),
        checks=(
            "kafka-txn scan PATH --table violations, on that partition: gaps in the producer's sequence numbers.",
            "The client's version, and the leader elections of that time.",
        ),
        safe=(
            "Abort the transaction and process its batch again. If the abort fails, close the producer and start it "
            "with the same transactional.id.",
        ),
        never=(
            "Count the transaction as committed.",
            "Disable idempotence: the gap is then silent.",
        ),
        sources=("confluentinc/librdkafka#3575", "KIP-360", "apache/kafka ProducerAppendInfo"),
    ),
    Symptom(
        name="unknown-producer-id",
        title="The partition no longer has the state of this producer.",
        wordings=(
            *wordings(
                ANY_CLIENT,
                r"\bUNKNOWN_PRODUCER_ID\b",
                r"could not locate the producer metadata associated with the producerI[dD]",
            ),
            *wordings("Java", r"\bUnknownProducerIdException\b"),
            *wordings("librdkafka", r"Broker: Unknown Producer Id", r"failed due to unknown producer id"),
            *wordings("kafka-python", r"\bUnknownProducerIdError\b"),
        ),
        causes=(
            "Retention or DeleteRecords removed all of its records (brokers before 2.5).",
            "It was idle for longer than producer.id.expiration.ms (1 day by default).",
        ),
        checks=("kafka-txn describe-producers --topic T --partition P, and kafka-txn describe --transactional-id ID.",),
        safe=(
            "Clients from 2.5 on recover with a new epoch (KIP-360). With older ones: abort, close the producer and "
            "start it with the same transactional.id.",
        ),
        never=("Send the batch again on another producer before this one has aborted: it may be written twice.",),
        sources=("KIP-360", "KAFKA-9310"),
    ),
    Symptom(
        name="spark-offset-gaps",
        title="A reader expects consecutive offsets, but markers and aborted records leave gaps. Usually nothing is "
        "lost.",
        wordings=(
            *wordings(
                "Spark",
                r"Failed to get records for .{1,600}? after polling for",
                r"Got wrong record for .{1,600}? even after seeking to offset",
                r"Cannot fetch (?:record for )?offset \d{1,19}",
                r"Could not read records in offset \[\d{1,19}, \d{1,19}\) for topic partition",
                r"Some data may have been lost because they are not available in Kafka any more",
            ),
            *wordings("Pinot", r"\bStreamDataLoss\b"),
            *wordings("words", r"\bdata loss\b.{0,80}\bread_committed\b", r"\bread_committed\b.{0,80}\bdata loss\b"),
        ),
        causes=(
            "Each transaction ends with a marker that takes an offset, and aborted records keep theirs: no consumer "
            "ever receives these offsets.",
            "Compaction removed records.",
            "The LSO is held, and the reader waits for an offset behind it until its poll times out.",
            "Real loss: retention removed records that were not read yet, or the topic was recreated.",
        ),
        checks=(
            "kafka-txn partitions --topic T: is the offset below the log start (lost), between it and the LSO (a gap), "
            "or behind the LSO (held)?",
            "kafka-txn gaps --topic T --partition P: what each missing offset is.",
        ),
        safe=(
            "Gaps: spark.streaming.kafka.allowNonConsecutiveOffsets=true for DStreams; Structured Streaming skips them "
            "from 2.4 on (SPARK-25005).",
            "Held: see kafka-txn diagnose --topic T.",
        ),
        never=("Set failOnDataLoss=false before each missing offset is accounted for: it hides real loss, too.",),
        sources=("apache/hudi#8258", "apache/spark#21917", "SPARK-25005", "apache/pinot#19161"),
    ),
    Symptom(
        name="consumer-offsets-grows",
        title="__consumer_offsets, or another compacted topic, is no longer cleaned.",
        wordings=(
            *wordings(
                "broker", r"Marking its partition \(\S{1,260}\) as uncleanable", r"\buncleanable-partitions-count\b"
            ),
            *wordings(
                "words",
                r"__consumer_offsets\b.{0,60}\b(?:grow\w{0,3}|huge|large|disk|not (?:being )?(?:compacted|cleaned))\b",
                r"\btopic\b.{0,30}\b(?:is not (?:being )?(?:compacted|cleaned)|compaction (?:stopped|is stuck))\b",
                r"\b(?:compaction|log cleaner)\b.{0,30}\b(?:stands still|stuck|does not run|not running)\b",
            ),
        ),
        causes=(
            "An open transaction holds its LSO: the log cleaner never passes it.",
            "The log cleaner died, or marked the partition as uncleanable: another cause, which no abort fixes.",
            "Nothing is wrong: the active segment is never cleaned, nor one younger than min.compaction.lag.ms, nor a "
            "log below min.cleanable.dirty.ratio.",
        ),
        checks=(
            "kafka-txn diagnose --topic T, for example __consumer_offsets: a held LSO, and since when.",
            "The broker's metrics uncleanable-partitions-count and DeadThreadCount of the log cleaner.",
        ),
        safe=(
            "A held LSO: follow the remedy of its finding. A dead cleaner: restart that broker, and keep its "
            "log-cleaner.log.",
        ),
        never=("Delete segments, or the topic: of __consumer_offsets, every group loses its offsets.",),
        sources=("KIP-664", "apache/kafka LogCleanerManager"),
    ),
)
