"""Known bugs of Kafka's brokers that leave transactions open, stuck or wrongly refused, by release.

Each row states how its releases were verified: in Kafka's git tags, or in the bytecode of the released jars. Not listed
are bugs that no supported release has (KAFKA-9144, fixed before 2.8; KAFKA-18660 and KAFKA-19999, fixed before a
release had them: ``ProducerAppendInfo.checkProducerEpoch`` has the strict check of a marker's epoch from 4.2.0 on, and
there it already accepts a repeated marker), bugs that are not fixed in brokers (KAFKA-19250), and bugs that could not
be verified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolkit.errors import UsageError

Release = tuple[int, ...]
"""``(4, 3, 1)``; or ``(4, 3)``, a minor release whose patch release is unknown."""

OLDEST = (0, 11, 0)  # the first with transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """A bug in Kafka's brokers."""

    key: str  # its issue in JIRA
    # title, effect, remedy: sentences: what is wrong, its effect on a transaction, and what to do
    title: str
    effect: str
    remedy: str
    # pairs of the first release that has the bug and the release that fixes it; null if none does
    affected: Sequence[tuple[Release, Release | None]]
    verified: str  # how the releases were verified

    def affects(self, release: Release) -> bool | None:
        """Whether a release has the bug; null if only some patch releases of a minor release do."""
        bounds = (bound for pair in self.affected for bound in pair if bound)
        if any(bound[:2] == release and bound[2] for bound in bounds):
            return None
        release = (*release, 0)
        return any(since <= release and (until is None or release < until) for since, until in self.affected)

    @property
    def fixed_in(self) -> str:
        """Releases that fix the bug, as text; empty if none does."""
        fixes = [release_text(until) for _, until in self.affected if until]
        return ", ".join(fixes)


KNOWN_BUGS: Sequence[KnownBug] = (
    KnownBug(
        key="KAFKA-14402",
        title="Brokers append to a partition without asking the coordinator whether the transaction includes it.",
        effect="A late or retried batch opens a transaction that no coordinator ends, and the LSO stops.",
        remedy="Upgrade to 3.6.0 or newer; end each hanging transaction as its outcome says (kafka-txn diagnose).",
        affected=((OLDEST, (3, 6, 0)),),
        verified="KIP-890; the check of KAFKA-14884 is in the tags from 3.6.0 on",
    ),
    KnownBug(
        key="KAFKA-15449",
        title="Brokers append the offsets that a transaction commits without asking the coordinator.",
        effect="A late offset commit opens a transaction on __consumer_offsets, and its group cannot read its offsets.",
        remedy="Upgrade to 3.7.0 or newer; end each hanging transaction as its outcome says (kafka-txn diagnose).",
        affected=((OLDEST, (3, 7, 0)),),
        verified="in the tags from 3.7.0 on",
    ),
    KnownBug(
        key="KAFKA-14055",
        title="The log cleaner confuses a transaction marker with a user's record that has the same key.",
        effect="A marker in a compacted topic is removed, and a transaction that has ended may appear open.",
        remedy="Upgrade; then write the marker that is missing: kafka-txn complete after a commit, never an abort.",
        affected=((OLDEST, (3, 0, 2)), ((3, 1, 0), (3, 1, 2)), ((3, 2, 0), (3, 2, 1))),
        verified="in the tags 3.0.2, 3.1.2, 3.2.1 and 3.3.0",
    ),
    KnownBug(
        key="KAFKA-16352",
        title="The end of one marker removes the pending markers of the id's next transaction.",
        effect="A transaction stays in PrepareCommit or PrepareAbort for good: stuck_ending.",
        remedy="Upgrade to 3.8.0; until then, bring the partition's leader back, and then move the leader of the id's "
        "partition of __transaction_state.",
        affected=((OLDEST, (3, 8, 0)),),
        verified="in the tags from 3.8.0 on; the code that it replaces is in 2.8.2 and 3.5.2",
    ),
    KnownBug(
        key="KAFKA-17507",
        title="A marker on __consumer_offsets is acknowledged before the group coordinator has applied it.",
        effect="It may collide with the next transaction's offsets: the broker logs an error, and they may be lost.",
        remedy="Upgrade to 3.9.1 or 4.0.0.",
        affected=(((2, 0, 0), (3, 9, 1)),),
        verified="apache/kafka#18168 (since 2.0) and #18206; bytecode of 3.5.2, 3.9.0 and 3.9.1",
    ),
    KnownBug(
        key="KAFKA-19690",
        title="A batch of a producer that was fenced after a timeout is refused with INVALID_TXN_STATE.",
        effect="The transaction is aborted as it should be, but Kafka Streams treats the error as fatal and stops.",
        remedy="Upgrade; raise the transaction's timeout, or shorten the work in it.",
        affected=(((3, 6, 0), (3, 9, 2)), ((4, 0, 0), (4, 0, 2)), ((4, 1, 0), (4, 1, 1))),
        verified="bytecode of 3.9.1, 3.9.2, 4.0.1, 4.1.0 and 4.1.1; apache/kafka#20607 merged it to 4.0 after 4.0.1",
    ),
    KnownBug(
        key="KAFKA-19367",
        title="With transaction version 2, InitProducerId raises the epoch twice while a transaction is open.",
        effect="At epoch 32766 it overflows, and the id cannot be initialized.",
        remedy="Upgrade.",
        affected=(((4, 0, 0), (4, 0, 1)),),
        verified="apache/kafka#19910; bytecode of 4.0.0, 4.0.1 and 4.1.0",
    ),
    KnownBug(
        key="KAFKA-20090",
        title="A coordinator throws where it should fence a transactional id at epoch 32767.",
        effect="After a timeout at epoch 32766 that it could not log, and with transaction version 2 after others, "
        "too, the transaction stays Ongoing (overdue), and others of that coordinator may not time out.",
        remedy="Move the leader of the id's partition of __transaction_state, or restart its broker, while all of its "
        "replicas are in sync; upgrade to 4.3.0. Until then InitProducerId fails for the id.",
        affected=((OLDEST, (4, 3, 0)),),
        verified="apache/kafka#21506 and #21469; the guard is in the tags from 0.11.0.0 to 3.8.0 and in bytecode of "
        "3.9.2 to 4.2.2, not of 4.3.0 to 4.4.0; staged on 3.5.2, 3.9.2, 4.3.1 and 4.4.0. On 4.2.1 the next "
        "attempt after one that was not logged ended it",
    ),
    KnownBug(
        key="KAFKA-20310",
        title="__transaction_state does not store the previous and the next producer id of a transactional id.",
        effect="After a coordinator failover in the middle of a rotation, the producer is fenced, or gets "
        "INVALID_PRODUCER_ID_MAPPING.",
        remedy="Upgrade to 4.3.0; restart the producer.",
        affected=(((4, 0, 0), (4, 3, 0)),),
        verified="apache/kafka#21828; bytecode of 4.0.0 to 4.2.1 and of 4.3.1; staged on 4.2.1 and 4.3.1",
    ),
    KnownBug(
        key="KAFKA-20322",
        title="Coordinators send WriteTxnMarkers version 2 to brokers that do not know it.",
        effect="While brokers of 4.2.0 and of older releases run side by side, transactions wait in Prepare*.",
        remedy="Upgrade to 4.2.1 or newer, or finish the rolling upgrade.",
        affected=(((4, 2, 0), (4, 2, 1)),),
        verified="apache/kafka#21782, merged to trunk and 4.2; bytecode of 4.2.0, 4.2.1 and 4.3.0",
    ),
    KnownBug(
        key="KAFKA-20357",
        title="__transaction_state does not store the last producer epoch of a transactional id.",
        effect="A producer that repeats InitProducerId after a coordinator failover in the middle of a rotation gets "
        "PRODUCER_FENCED.",
        remedy="Restart the producer. The fix is merged (apache/kafka#22096), but in no release up to 4.4.0.",
        affected=(((4, 0, 0), None),),
        verified="apache/kafka#22096 (April 2026); the field is not in the schema of 4.4.0",
    ),
    KnownBug(
        key="KAFKA-20734",
        title="A coordinator treats a partition whose replicas are all offline as deleted, and skips its marker.",
        effect="A commit returns success while the transaction stays open on that partition: stuck_ending.",
        remedy="Bring the partition's leader back, and write the marker that was decided (kafka-txn complete); after a "
        "commit never an abort. No release up to 4.4.0 has a fix.",
        affected=(((4, 3, 0), None),),
        verified="staged on 4.3.1 and 4.4.0, not on 4.2.1; bytecode of 4.2.2, 4.3.0, 4.3.1 and 4.4.0: from 4.3.0 on, "
        "KRaftMetadataCache.getPartitionLeaderEndpoint returns nothing for a partition without a leader",
    ),
    KnownBug(
        key="KAFKA-20785",
        title="With transaction version 2, a commit that comes after the timeout's abort gets INVALID_TXN_STATE.",
        effect="The transaction is aborted as it should be, but the error is fatal to a thread of Kafka Streams.",
        remedy="Restart it with the same transactional.id, and raise its transaction.timeout.ms. The fix is merged "
        "(apache/kafka#23204), but in no release up to 4.4.0.",
        affected=(((4, 0, 0), None),),
        verified="apache/kafka#23204 (August 2026); bytecode of TransactionCoordinator in 4.0.0 to 4.4.0",
    ),
)
"""Known bugs, the oldest first."""


def may_affect(key: str, releases: Sequence[str]) -> bool:
    """Whether one of these releases may have a bug, or which ones they are is not known."""
    bug = next(each for each in KNOWN_BUGS if each.key == key)
    return not releases or any(bug.affects(release_of(each)) is not False for each in releases)


def release_of(text: str) -> Release:
    """``4.3.1`` or ``4.3`` as numbers. Raises UsageError if it is not a Kafka release."""
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?", text)
    if not found:
        raise UsageError(f"{text!r} is not a Kafka version.", do="Pass it as 4.3.1 or 4.3.")
    return tuple(int(number) for number in found.groups() if number is not None)


def release_text(release: Release) -> str:
    """Numbers as ``4.3.1``."""
    return ".".join(map(str, release))


def bugs_of(release: Release) -> Iterator[tuple[KnownBug, bool | None]]:
    """The bugs that a release has (true), or may have (null)."""
    for bug in KNOWN_BUGS:
        affects = bug.affects(release)
        if affects is not False:
            yield bug, affects
