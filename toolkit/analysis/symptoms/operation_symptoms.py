"""What operators see or say: lag after aborts, an abort without effect, an unclean election, no connection."""

from __future__ import annotations

from toolkit.analysis.symptoms.symptom import Symptom, wordings

OPERATION_SYMPTOMS = (
    Symptom(
        name="lag-grows-with-aborts",
        title="The lag of a group grows with every aborted transaction, although nothing is held.",
        wordings=wordings(
            "words",
            r"\blag\b.{0,60}\b(?:grow|increas|ris)\w{0,4}\b.{0,80}\babort",
            r"\babort\w{0,4}\b.{0,80}\blag\b.{0,40}\b(?:grow|increas|ris)\w{0,4}\b",
        ),
        causes=(
            "Aborted records and markers take offsets, and no read_committed consumer receives them. A group that "
            "commits the offset of its last record + 1 commits nothing while it receives none, and "
            "kafka-consumer-groups.sh counts them all as lag.",
            "The producer fails and aborts in a loop: nothing is committed, and so nothing arrives.",
        ),
        checks=(
            "kafka-txn lag --group GROUP: `markers` grows, `behind` and `held` stay 0.",
            "kafka-txn list, and kafka-txn history --transactional-id ID: who aborts, and how often.",
        ),
        safe=(
            "Commit the consumer's position and not the offset of a record: Java commitSync() without arguments, or "
            "ConsumerRecords.nextOffsets(). With the next committed record the lag shrinks to 1 in any case.",
            "Find out why the producer aborts: its own log has the error.",
        ),
        never=("Reset or skip offsets: the next committed record may lie among those skipped.",),
        sources=("KAFKA-6607", "KAFKA-10683", "confluentinc/librdkafka#3917", "spring-projects/spring-kafka#1587"),
        instead_of=("lag-stuck-at-one",),
    ),
    Symptom(
        name="lso-held-after-abort",
        title="A transaction was aborted, and the LSO did not move.",
        wordings=wordings(
            "words",
            r"\babort(?:ed|ing)?\b.{0,80}\b(?:LSO|last stable offset)\b.{0,40}\b(?:not|\w{2,6}n.t|still|same|stuck)\b",
            r"\b(?:LSO|last stable offset)\b.{0,40}\b(?:not|\w{2,6}n.t|still|same|stuck)\b.{0,60}\babort(?:ed|ing)?\b",
        ),
        causes=(
            "Another transaction is open behind it: the lowest start offset holds the LSO, and only one was ended.",
            "The marker is written and not replicated yet: the LSO waits for the high watermark (`unreplicated`).",
            "The marker went to another partition, or was refused; or the coordinator has decided the abort and cannot "
            "write its marker (`ending`, `stuck_ending`).",
            "A late batch of the same producer opened the next one (transaction version 1).",
        ),
        checks=(
            "kafka-txn diagnose --topic T --partition P: who holds the LSO now. Compare its start offset and producer "
            "id with those of the audit trail.",
            "kafka-txn partitions --topic T: high watermark and log end offset.",
        ),
        safe=("Treat what holds it now as a finding of its own: its verdict and its outcome decide.",),
        never=(
            "Abort the next transaction because the first one was hanging: it may be alive, or committed.",
            "Restart brokers to make it move: the producer state is read from the log, marker or not.",
        ),
        sources=("KIP-664", "KAFKA-15583", "apache/kafka ProducerStateManager"),
    ),
    Symptom(
        name="wrong-transaction-aborted",
        title="An abort marker was written on a transaction that was alive, or committed.",
        wordings=wordings(
            "words",
            r"\babort(?:ed|ing)? (?:a |the )?(?:wrong|live|committed)\b",
            r"\bwrong (?:transaction|partition|producer).{0,40}\babort(?:ed)?\b",
        ),
        causes=(
            "A tool that may not see all transactional ids lists live transactions as hanging.",
            "A committed transaction whose marker is missing looks like a hanging one.",
        ),
        checks=(
            "kafka-txn scan PATH --table log_transactions --producer-id N: the records between its start and the "
            "marker.",
            "kafka-txn history --transactional-id ID: the outcome, as the coordinator decided it.",
            "The audit trail, and the saved records beside it, if `kafka-txn abort` wrote the marker.",
        ),
        safe=(
            "The records are still in the log, for read_uncommitted consumers: copy them before retention or "
            "compaction removes them, then let the owner decide which to produce again.",
            "If the client is alive, have it abort, and process its batch again: its other partitions are not lost "
            "then.",
        ),
        never=(
            "Write a COMMIT marker after it: nothing is open there any more, and the aborted records stay invisible.",
            "Produce old records again to a compacted topic before you know that no newer record has their keys.",
        ),
        sources=("KIP-664", "redpanda-data/redpanda#11949", "apache/kafka#22937"),
    ),
    Symptom(
        name="unclean-election",
        title="A replica that was not in sync became leader: records, and markers, that only the others had are lost.",
        wordings=(
            *wordings("broker", r"\bUncleanLeaderElectionsPerSec\b"),
            *wordings("words", r"\bunclean (?:leader )?election\b(?! (?:has been |is )?(?:enabled|disabled))"),
        ),
        causes=(
            "The setting unclean.leader.election.enable is true, or an operator started one: kafka-leader-election.sh "
            "--election-type unclean.",
            "All replicas in sync were lost.",
        ),
        checks=(
            "kafka-txn diagnose --topic T --partition P: `stuck_ending` after a commit, `hanging` after an abort; the "
            "cause marker-lost names the epoch.",
            "kafka-txn scan PATH --table cluster_events: elections, from the controllers' log.",
            "kafka-txn describe-producers --topic T --partition P --broker-id N: another replica, before it truncates.",
        ),
        safe=(
            "Keep the disks of the former replicas: they have what is lost.",
            "Then go by the outcome of each finding. After a commit, kafka-txn complete makes visible what survived.",
            "Records that were lost have to be produced again: the producers saw success.",
        ),
        never=(
            "Take the open transactions on that partition for ordinary hanging ones: some were committed.",
            "Let the former leader rejoin before its log is copied: it truncates to the new leader.",
        ),
        sources=("KAFKA-20716", "apache/kafka#22937", "KIP-106"),
    ),
    Symptom(
        name="cannot-connect",
        title="No broker can be reached: address, listener, security.protocol or certificate.",
        wordings=wordings(
            "kafka-txn",
            r"No bootstrap server can be used",
            r"This port speaks (?:HTTP|another protocol), not Kafka",
            r"The listener seems (?:not )?to use TLS",
            r"The broker closed the connection: wrong security\.protocol",
            r"Check ssl\.ca\.location, and that the broker.s certificate names this address",
        ),
        causes=(
            "The address is that of another listener, or of something else: a REST port, a ZooKeeper, a controller.",
            "Its security.protocol differs from the listener's: the broker closes the connection, or speaks TLS.",
            "The first broker answers, and its advertised name cannot be resolved or reached from here.",
        ),
        checks=(
            "kafka-broker-api-versions.sh with the same file: whether any client can connect.",
            "The brokers' advertised.listeners, and whether each name resolves on this machine.",
            "With openssl s_client -connect HOST:PORT: whether the listener uses TLS, and which names its certificate "
            "has.",
        ),
        safe=("Take the client's own configuration: --command-config reads Java's and librdkafka's keys.",),
        never=("Diagnose with some brokers out of reach and act on it: what they own looks as if nobody owned it.",),
        sources=("apache/kafka ClientConfig", "KIP-103"),
    ),
)
