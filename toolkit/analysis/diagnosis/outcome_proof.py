"""Prove what was decided about records that are still open, by the coordinator's log.

A marker decides every open batch, so each is compared with each decision of the producer that includes the partition
and may lack its marker here: the coordinator skipped it (KAFKA-20734), or it was lost, compacted or refused.
`ClosedTransactions` tells which transactions have theirs. A decision includes what was written before it, and nothing
that was written after it. Only brokers' times prove an order: markers, and batches under LogAppendTime. With
transaction version 2 an epoch is of one transaction, which needs no times.

The log has to reach back to before the open records: of two decisions without a marker, it may have lost the first. And
it must not contradict itself: a coordinators' log can lose its tail, and come back from a backup.

Sources: ``ProducerAppendInfo`` (epochs), ``TransactionMetadata`` and ``TransactionMarkerChannelManager`` in Kafka;
KIP-890.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.decision import ABORT, COMMIT, UNDECIDED, UNKNOWN, Outcome
from toolkit.analysis.diagnosis.evidence_text import at, record_entry
from toolkit.analysis.diagnosis.log_excerpts import LogTime, OpenPart, offsets_text
from toolkit.analysis.diagnosis.markers import (
    COMPARED,
    MAX_DIFFERENCE_MS,
    ClosedTransactions,
    DecidedTransaction,
    ProducerMarker,
)
from toolkit.analysis.transaction_history import IdHistory, begins_producer
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import COMMIT as COMMIT_MARKER
from toolkit.schema.log import PastTransaction, TransactionLogRecord

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


APPEND_DELAY = 1_000  # ms from the time of a marker to its append, on one broker; more is covered by the clocks' bound
CLIENTS_DIFFER = 1_000  # ms by which a client's clock may be ahead before its times count against a claim


def find_outcome(case: Case) -> Outcome:
    """What was decided about the open records of a case, by the log of its partition and by the coordinators'."""
    if case.start is None:
        return Outcome(name=UNDECIDED, reason="it has written nothing here yet")
    parts, log, name = case.open_parts, case.coordinators, str(case.tp)
    offsets = f"{offsets_text(parts[0].first_offset, parts[-1].last_offset)} of {name}"
    whether = f"whether a commit includes these records of {name}"
    if log is None:
        return _unknown(offsets, f"the coordinators' log, which was not read: {whether}")
    if log.gaps:
        return _unknown(offsets, *(f"{why}: {whether}" for why in log.gaps))
    histories = case.id_histories
    if len(histories) != 1 or (first := histories[0].first_of(case.producer_id)) is None:
        since = f" since {at(min(log.since.values()))}" if log.since else ""
        found = f"{len(histories)} ids have it" if len(histories) > 1 else f"none is left{since}"
        return _unknown(offsets, f"records of producer {case.producer_id} in {STATE_TOPIC} ({found}): {whether}")
    leader = None if first.txn_state_partition is None else log.leaders.get(first.txn_state_partition)
    return _Proof(
        case=case,
        history=histories[0],
        first=first,
        leader_of_records=leader,
        other_ids=log.other_ids(case.producer_id, histories[0].transactional_id),
        offsets=offsets,
        whether=whether,
    ).outcome


def _unknown(offsets: str, *missing: str) -> Outcome:
    return Outcome(name=UNKNOWN, reason=missing[0], missing=missing, offsets=offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartDecisions:
    """The decisions that may include the batches of a part; null stands for none."""

    part: OpenPart
    possible: tuple[PastTransaction | None, ...]

    @property
    def commits(self) -> Sequence[PastTransaction]:
        """Those of them that are commits."""
        return [each for each in self.possible if each is not None and _is_commit(each)]

    @property
    def is_committed(self) -> bool:
        """Whether a commit includes them, whichever it is."""
        return len(self.commits) == len(self.possible)


@dataclass(frozen=True, kw_only=True)
class _Proof:
    """Open batches of a producer on a partition, compared with its decided transactions and with its markers there."""

    case: Case
    history: IdHistory
    first: TransactionLogRecord
    leader_of_records: tuple[int, int] | None
    other_ids: Sequence[str]
    offsets: str
    whether: str

    @cached_property
    def outcome(self) -> Outcome:
        if (contradiction := self._contradiction()) is not None:
            found = _unknown(self.offsets, f"{contradiction}: {self.whether}")
            # If the log has lost all of the epoch, a marker elsewhere may have what it lost.
            epochs = {part.epoch for part in self.parts}
            is_contradicted = any(each.producer_epoch in epochs for each in self.transactions)
            may_be_commit = bool(self._last_closed) and all(each.commits for each in self.by_part)
            claim = (self._commit_claim() or f"a commit includes {self.offsets}") if may_be_commit else None
            return replace(found, is_contradicted=is_contradicted, commit_claim=claim)
        if not self._last_closed:
            return _unknown(self.offsets, f"markers and records of {self.name} that agree: {self.whether}")
        if not any(each.commits for each in self.by_part):
            return self._not_committed()
        if self._why_complete() is None:
            return self._incomplete()
        if all(each.is_committed for each in self.by_part):
            decided = dict.fromkeys(txn for each in self.by_part for txn in each.commits)
            return self._decided(COMMIT, sorted(decided, key=self.decided.index))
        return self._not_proven()

    @property
    def parts(self) -> Sequence[OpenPart]:
        return self.case.open_parts

    @property
    def name(self) -> str:
        return f'"{self.history.transactional_id}" in {STATE_TOPIC}-{self.first.txn_state_partition}'

    @cached_property
    def transactions(self) -> Sequence[PastTransaction]:
        """The producer's transactions, in order."""
        found = (each for each in self.history.transactions if each.producer_id in {self.case.producer_id, None})
        return sorted(found, key=lambda each: each.first_offset or 0)

    @cached_property
    def decided(self) -> Sequence[PastTransaction]:
        """Those of them that were decided and include the partition, or may."""
        return [
            each
            for each in self.transactions
            if each.decided_at is not None and (each.topic_partitions is None or self.case.tp in each.topic_partitions)
        ]

    @cached_property
    def by_part(self) -> Sequence[_PartDecisions]:
        return [_PartDecisions(part=part, possible=tuple(self._possible(part))) for part in self.parts]

    def _possible(self, part: OpenPart, *, by_any_leader: bool = False) -> Iterator[PastTransaction | None]:
        """The decisions that may include the batches of a part, and null if it may be that none does.

        `by_any_leader`: as for `_is_younger`.
        """
        first_open = min(self._last_closed) + 1
        for index, each in enumerate(self.decided[first_open:], start=first_open):
            epoch = each.producer_epoch
            if epoch is not None and not part.lowest_epoch <= epoch <= part.highest_epoch:
                continue
            is_own_epoch = part.epoch is not None and part.epoch == epoch and epoch in self._epochs_of_version_2
            is_younger = self._is_younger(part, each, by_any_leader=by_any_leader)
            if not is_own_epoch and is_younger:
                continue
            yield each
            is_without_marker = index > max(self._last_closed)
            is_here = each.topic_partitions is not None or is_own_epoch
            # A leader that has no marker of the commit, as after the topic was created again, also takes a batch of
            # its epoch that was written later.
            is_of_it = is_own_epoch and not is_younger and not self._is_written_later(part, each)
            if is_without_marker and is_here and part.epoch is not None and (is_of_it or self._is_older(part, each)):
                return
        yield None

    def _is_written_later(self, part: OpenPart, decided: PastTransaction) -> bool:
        """Whether their client wrote some of the batches after a decision, by its own clock, which proves nothing."""
        until = part.written_until
        return until is not None and until > self._compared(decided).decided_at + CLIENTS_DIFFER

    def _is_older(self, part: OpenPart, decided: PastTransaction) -> bool:
        """Whether the batches were in the log before a decision, by brokers' times."""
        time = part.before
        if time is None or not self._are_clocks_near:
            return False
        differ = self._clocks_differ(time, decided)
        # A marker is lost, or skipped, with a change of leaders after its decision: what is from after the last one can
        # be older than the decision only by a leader's clock that is behind by more than the bound.
        if differ and time.leader_epoch == self.case.leader.leader_epoch:
            return False
        bound = max(differ, 0 if time.is_exact else APPEND_DELAY)
        return time.time + bound < self._compared(decided).decided_from

    def _is_later(self, part: OpenPart) -> bool:
        """Whether brokers' clocks, also that of an earlier leader, show that the batches came after each commit."""
        return not any(each is not None and _is_commit(each) for each in self._possible(part, by_any_leader=True))

    def _is_younger(self, part: OpenPart, decided: PastTransaction, *, by_any_leader: bool) -> bool:
        """Whether the batches came into the log after a decision and its markers, by brokers' times.

        What a zombie writes between the decision and its marker is decided by it, too, and the log may lose the marker.
        `by_any_leader`: whether the clock of an earlier leader counts as well, which is no proof.
        """
        time = part.after
        if time is None or not self._are_clocks_near:
            return False
        differ = self._clocks_differ(time, decided)
        # A leader loses no marker, or has none skipped, without a change of leaders: after one, what is from before it
        # may be of this decision, and be younger only by a leader's clock that is ahead by more than the bound.
        if differ and time.leader_epoch != self.case.leader.leader_epoch and not by_any_leader:
            return False
        return time.time - differ > self._compared(decided).closed_at

    def _clocks_differ(self, time: LogTime, decided: PastTransaction) -> float:
        """By how much the clocks of the leader and the coordinator may differ, in ms: by 0 if one broker is both."""
        leader, known = self.case.leader, self.leader_of_records
        is_one = (
            known is not None
            and known[0] == leader.leader
            and time.leader_epoch == leader.leader_epoch
            and all(record.leader_epoch == known[1] for record in self._records_of(decided))
        )
        return 0 if is_one and not self._is_set_back else MAX_DIFFERENCE_MS

    @cached_property
    def _is_set_back(self) -> bool:
        """Whether a clock of the present leaders went back, within the bound: its times then tell no more than two."""
        known, batches = self.leader_of_records, self.case.batches
        records = [
            _milliseconds(each.timestamp)
            for each in self.history.records
            if known is not None and each.leader_epoch == known[1] and each.timestamp is not None
        ]
        times: list[float] = []
        if batches is not None:
            headers = batches.excerpt.headers
            is_own = batches.excerpt.has_brokers_time & (headers["leader_epoch"] == self.case.leader.leader_epoch)
            times = headers["max_timestamp"][is_own].astype(float).tolist()
        return not (_are_in_order(records, within=APPEND_DELAY) and _are_in_order(times, within=APPEND_DELAY))

    @cached_property
    def _have_clocks(self) -> bool:
        """Whether no broker's time shows clocks further apart than the bound, as one far before one that it follows."""
        records = [_milliseconds(each.timestamp) for each in self.history.records if each.timestamp is not None]
        times = [] if self.case.batches is None else self.case.batches.brokers_times
        return _are_in_order(records) and _are_in_order(times)

    @cached_property
    def _begun_epochs(self) -> Mapping[int, float | None]:
        """Epochs whose beginning is in the log, and when that was, in ms.

        They begin with InitProducerId, with the end before, or with the first record after that of a lower epoch.
        """
        begun: dict[int, float | None] = {}
        highest: int | None = None
        for record in self._own_records:
            epoch, state = record.producer_epoch, record.state or ""
            if epoch is None:
                continue
            begins = state == "Empty" or (state.startswith(("Prepare", "Complete")) and _version(record) >= 2)
            if begins if highest is None else epoch > highest:
                begun[epoch] = None if record.timestamp is None else _milliseconds(record.timestamp)
            highest = epoch if highest is None else max(highest, epoch)
        return begun

    @cached_property
    def _own_records(self) -> Sequence[TransactionLogRecord]:
        return [each for each in self.history.records if each.producer_id == self.case.producer_id]

    @cached_property
    def _epochs_of_version_2(self) -> frozenset[int]:
        """Epochs that only one transaction has had, and of version 2: so all that has the epoch is of it."""
        return frozenset(
            epoch for epoch in self._begun_epochs if [self._is_of_version_2(each) for each in self._of(epoch)] == [True]
        )

    def _of(self, epoch: int) -> Sequence[PastTransaction]:
        """The transactions that had an epoch, or may have had it."""
        return [each for each in self.transactions if each.producer_epoch in {epoch, None}]

    def _is_of_version_2(self, transaction: PastTransaction) -> bool:
        """Whether all its requests were of version 2 (KIP-890): a client can go from version 1 to 2 within an epoch."""
        records = self._records_of(transaction)
        return bool(records) and all(_version(each) >= 2 for each in records)

    def _contradiction(self) -> str | None:
        """What shows that the coordinators' log has lost records, or that the producer id was given out twice."""
        producer_id = self.case.producer_id
        if self.other_ids:
            ids = ", ".join(f'"{name}"' for name in self.other_ids)
            return f"one transactional id of producer {producer_id}, which {ids} had, too"
        begun = self.first.timestamp
        if self._begins_the_producer and begun is not None:
            times = [each.time for each in self.markers if each.time is not None]
            times += [each.before.time for each in self.parts if each.before is not None]
            if not self.case.listed:  # a client's time proves nothing, and counts against a proof
                times += [each.written_at for each in self.parts if each.written_at is not None]
            if any(time + MAX_DIFFERENCE_MS < _milliseconds(begun) for time in times):
                return (
                    f"why {self.case.tp} has batches of producer {producer_id} from before {at(begun)}, when "
                    f"{self.name} got it: their records have event times, the coordinators' log is an older copy, or "
                    "the id was given out twice"
                )
        for part in self.parts:
            epoch_begun = None if part.epoch is None else self._begun_epochs.get(part.epoch)
            times = [each.time for each in self.markers if each.epoch == part.epoch and each.time is not None]
            times += [] if part.before is None else [part.before.time]
            if epoch_begun is not None and any(time + MAX_DIFFERENCE_MS < epoch_begun for time in times):
                return (
                    f"why {self.case.tp} has batches of epoch {part.epoch} of producer {producer_id} from before "
                    f"{self.name} began it: the coordinators' log is an older copy, or the epoch was given out twice"
                )
            if part.epoch is not None and self._is_never_added(part.epoch):
                return (
                    f"the record of {self.name} that added {self.case.tp} with epoch {part.epoch}, which transaction "
                    f"version 2 writes before the data ({part.offsets}): the log has lost records"
                )
            if part.epoch is not None and not self._of(part.epoch) and any(map(_shows_version_2, self._own_records)):
                return (
                    f"which transaction version {self.name} had with epoch {part.epoch}, of which the log has no "
                    f"transaction: version 2, as with other epochs, would have added {self.case.tp} before the data "
                    f"({part.offsets})"
                )
        return None

    def _is_never_added(self, epoch: int) -> bool:
        """Whether brokers of version 2, which add what is written, have not added the partition in an epoch.

        They do not, either, while the leader thinks that an earlier transaction of the epoch is open.
        """
        of_epoch = self._of(epoch)
        of_version_2 = [each for each in of_epoch if any(map(_shows_version_2, self._records_of(each)))]
        if of_version_2:
            return any(self.case.tp not in (each.topic_partitions or (self.case.tp,)) for each in of_version_2)
        # An abort of version 2 may be the coordinator's own, but then no client ever has the epoch that it raised.
        return not of_epoch and any(
            each.producer_epoch == epoch
            and (each.state or "").startswith(("Prepare", "Complete"))
            and _version(each) >= 2
            for each in self._own_records
        )

    @cached_property
    def markers(self) -> Sequence[ProducerMarker]:
        """The producer's markers before the transaction, in order."""
        if self.case.batches is None:
            return []
        # Epochs of the coordinators that wrote the records: the leader epochs of their batches.
        known = {each.leader_epoch for each in self.history.records if each.leader_epoch is not None}

        def is_by_hand(coordinator_epoch: int) -> bool:
            return bool(known) and coordinator_epoch not in known and coordinator_epoch > min(known)

        return [
            ProducerMarker(
                offset=int(each["base_offset"]),
                epoch=int(each["producer_epoch"]),
                is_commit=bool(each["marker"] == COMMIT_MARKER),
                time=None if each["max_timestamp"] < 0 else float(each["max_timestamp"]),
                leader_epoch=int(each["leader_epoch"]),
                is_by_hand=is_by_hand(int(each["coordinator_epoch"])),
            )
            for each in self.case.batches.markers_before
        ]

    @cached_property
    def _are_clocks_near(self) -> bool:
        """Whether nothing shows clocks that are further apart than the bound."""
        return self._have_clocks and not self._closed.beyond_bound

    @cached_property
    def _last_closed(self) -> set[int]:
        """Possible indices in `decided` of the last transaction whose marker is there; -1 for none of them."""
        return self._closed.last()

    @cached_property
    def _closed(self) -> ClosedTransactions:
        began = None if self._begins_the_producer else self.first.start_time or self.first.timestamp
        batches = self.case.batches
        excerpt = None if batches is None else batches.excerpt
        return ClosedTransactions(
            decided=[self._compared(each) for each in self.decided],
            markers=self.markers,
            lowest_epoch=self.case.epoch if self.parts[0].lowest_epoch < 0 else self.parts[0].lowest_epoch,
            began=None if began is None else _milliseconds(began),
            read_from=math.inf if batches is None else min(batches.brokers_times[:1], default=math.inf),
            is_whole=excerpt is not None and excerpt.start == 0 and self._begins_the_producer,
            has_gaps=batches is not None and batches.has_gaps,
            has_clocks=self._have_clocks,
            is_one_coordinator=self._is_one_coordinator,
            is_one_clock=self._is_one_clock,
        )

    def _compared(self, transaction: PastTransaction) -> DecidedTransaction:
        assert transaction.decided_at is not None
        decided_at = _milliseconds(transaction.decided_at)
        decided_from = decided_at
        if not any((record.state or "").startswith("Prepare") for record in self._records_of(transaction)):
            # A coordinator that took over has decided again, and only its record is left.
            start = transaction.start_time
            decided_from = -math.inf if start is None else _milliseconds(start)
        return DecidedTransaction(
            is_commit=_is_commit(transaction),
            is_version_2=(transaction.client_transaction_version or 0) >= 2,
            epoch=transaction.producer_epoch,
            decided_from=decided_from,
            decided_at=decided_at,
            ended_at=math.inf if transaction.end_time is None else _milliseconds(transaction.end_time),
        )

    @cached_property
    def _compared_records(self) -> Sequence[TransactionLogRecord]:
        """The records from shortly before the last marker on."""
        since = (self.markers[-1].time or 0) - 2 * COMPARED if self.markers else 0
        return [
            each for each in self.history.records if each.timestamp is None or _milliseconds(each.timestamp) >= since
        ]

    @cached_property
    def _is_one_coordinator(self) -> bool:
        """Whether one broker, in one term, has written the records that are compared."""
        epochs = {record.leader_epoch for record in self._compared_records}
        return len(epochs) <= 1 and None not in epochs

    @cached_property
    def _is_one_clock(self) -> bool:
        """Whether the broker that wrote the last marker has written these records too."""
        leader, known = self.case.leader, self.leader_of_records
        return (
            known is not None
            and not self._is_set_back
            and all(record.leader_epoch == known[1] for record in self._compared_records)
            and leader.leader == known[0]
            and bool(self.markers)
            and self.markers[-1].leader_epoch == leader.leader_epoch
        )

    @cached_property
    def _begins_the_producer(self) -> bool:
        """Whether the first record is the one with which the id got this producer id."""
        return begins_producer(self.first)

    def _why_complete(self) -> str | None:
        """Why no record of the producer from the time of these records on is missing; null if one may be."""
        first, epoch = self.first, self.parts[0].epoch
        since = f"the records of {self.name} from {at(first.timestamp)} on"
        if self._begins_the_producer:
            return f"{since} begin with its producer id"
        known = first.producer_epoch
        is_own = epoch in self._epochs_of_version_2 or not self.case.may_precede_epoch_record
        is_begun = epoch in self._begun_epochs and is_own
        if epoch is not None and known is not None and (known < epoch or is_begun):
            return f"{since} begin at epoch {known}, and these at epoch {epoch}"
        if min(self._last_closed) >= 0:
            return f"{since} include the transaction whose marker is at offset {self._marker_offset}"
        earlier = self.parts[0].after
        if (
            earlier is not None
            and self._are_clocks_near
            and first.timestamp is not None
            and _milliseconds(first.timestamp) + MAX_DIFFERENCE_MS <= earlier.time
        ):
            return f"{since} begin before offset {self.parts[0].first_offset} was written"
        return None

    def _incomplete(self) -> Outcome:
        return _unknown(
            self.offsets,
            f"records of {self.name} from before {at(self.first.timestamp)}, which are compacted or were not read: "
            f"{self.whether}",
        )

    def _not_committed(self) -> Outcome:
        """No commit includes any of them, and perhaps an abort does."""
        why = self._why_complete()
        if why is None:
            return self._incomplete()
        without_marker = self.decided[max(self._last_closed) + 1 :]
        aborts = [[each for each in found.possible if each in without_marker] for found in self.by_part]
        if all(aborts):
            last = max((each for found in aborts for each in found if each is not None), key=self.decided.index)
            if self._lists(last):
                return self._decided(ABORT, [last])
        return Outcome(
            name=UNDECIDED,
            reason=f"no commit with this partition lacks its marker here, as {why}",
            evidence=(record_entry(self.first, name="outcome_from"),),
            offsets=self.offsets,
            is_partly_aborted=self._is_partly_aborted,
        )

    @property
    def _is_partly_aborted(self) -> bool:
        """Whether an abort may include some of them."""
        return any(each is not None and not _is_commit(each) for found in self.by_part for each in found.possible)

    def _lists(self, transaction: PastTransaction) -> bool:
        """Whether a transaction is known to include the partition."""
        return transaction.topic_partitions is not None or transaction.producer_epoch in self._epochs_of_version_2

    def _decided(self, name: str, decided: Sequence[PastTransaction]) -> Outcome:
        text = " and ".join(map(self._transaction_text, decided))
        return Outcome(
            name=name,
            reason=f"{text}, and the log has no marker of {'it' if len(decided) == 1 else 'them'}",
            transaction=decided[-1],
            evidence=tuple(record_entry(r, name="outcome_record") for each in decided for r in self._records_of(each)),
            offsets=self.offsets,
        )

    def _not_proven(self) -> Outcome:
        """Some of them may be committed, and not all of them are proven to be."""
        committed = [each for each in self.by_part if each.is_committed]
        free = [each for each in self.by_part if not each.commits or (committed and self._is_later(each.part))]
        if committed and free:
            missing = [f"one decision for all of them: {'; '.join(self._part_texts())}"]
        else:
            unclear = [each for each in self.by_part if each.commits and not each.is_committed]
            missing = list(dict.fromkeys(self._what_is_missing(each) for each in unclear))
        return Outcome(
            name=UNKNOWN,
            reason=missing[0],
            missing=tuple(missing),
            offsets=self.offsets,
            is_partly_committed=bool(committed),
            is_partly_free=bool(free),
            is_partly_aborted=self._is_partly_aborted,
            commit_claim=None if free else self._commit_claim(),
        )

    def _part_texts(self) -> Iterator[str]:
        """What each part is, in order."""
        parts = groupby(self.by_part, key=lambda each: (each.possible, each.part.epoch, self._is_later(each.part)))
        for (possible, epoch, is_later), group in parts:
            found = list(group)
            offsets = offsets_text(found[0].part.first_offset, found[-1].part.last_offset)
            what = f"{offsets} (epoch {'unknown' if epoch is None else epoch})"
            if found[0].is_committed:
                yield f"{what}: {' or '.join(self._transaction_text(each) for each in found[0].commits)}"
            elif found[0].commits and not is_later:
                yield f"{what}: it is not known {self.whether}"
            else:
                aborts = [self._transaction_text(each) for each in possible if each and not _is_commit(each)]
                yield f"{what}: {' or '.join([*aborts, 'no decision includes them'] if None in possible else aborts)}"

    def _what_is_missing(self, found: _PartDecisions) -> str:
        """What would prove whether a commit includes the batches of a part."""
        without_marker = self.decided[max(self._last_closed) + 1 :]
        decisions = [each for each in found.possible if each is not None]
        commit = next((each for each in found.commits if each in without_marker and self._lists(each)), None)
        if len({_is_commit(each) for each in decisions}) > 1:
            return (
                f"which of these wrote {found.part.offsets}, as their markers may be missing here: "
                f"{' and '.join(map(self._transaction_text, decisions))}"
            )
        if commit is None:
            return f"{self._what_decides}: {self._transaction_text(found.commits[-1])}, {self.whether}"
        if found.part.last_offset is None:
            return f"the log of {self.case.tp} from offset {found.part.first_offset} on: {self.whether}"
        return (
            f"a broker's time between {found.part.offsets} and the decision: {self._transaction_text(commit)}, and its "
            "marker is missing here, so a commit is likely; the client's log, or its checkpoint, shows whether it "
            "wrote them before it committed"
        )

    def _commit_claim(self) -> str | None:
        """What `complete` has to be told if it is not proven; null if it cannot be right."""
        without_marker, claims = self.decided[max(self._last_closed) + 1 :], []
        unclear = [each for each in self.by_part if not each.is_committed]
        for (commits, _), group in groupby(unclear, key=lambda each: (tuple(each.commits), each.part.epoch)):
            listed = [each for each in commits if self._lists(each)]
            parts = [each.part for each in group]
            if not listed or parts[-1].last_offset is None or listed[0].decided_at is None:
                return None
            offsets, commit = offsets_text(parts[0].first_offset, parts[-1].last_offset), at(listed[0].decided_at)
            if listed[0] in without_marker:
                claims.append(f"records of {offsets} are older than the commit of {commit}")
            else:
                claims.append(f"records of {offsets} are of the commit of {commit}, whose marker is missing")
        return " and ".join(claims)

    @property
    def _what_decides(self) -> str:
        if self.markers:
            return f"clocks that agree on which transaction the marker at offset {self._marker_offset} ended"
        if self.case.batches is not None and self.case.batches.excerpt.start == 0:
            return f"a proof that {self.case.tp} was not created again, or lost its log, after this decision"
        return f"the log of {self.case.tp} from before offset {self.case.start}, with its markers"

    @property
    def _marker_offset(self) -> int | None:
        return self.markers[-1].offset if self.markers else None

    def _transaction_text(self, transaction: PastTransaction) -> str:
        what = "committed" if _is_commit(transaction) else "aborted"
        return (
            f"the transaction of {self.name} with epoch {transaction.producer_epoch} was {what} at "
            f"{at(transaction.decided_at)}"
        )

    def _records_of(self, transaction: PastTransaction) -> Sequence[TransactionLogRecord]:
        first, last, offsets = transaction.first_offset, transaction.last_offset, self._offsets
        if first is None or last is None:
            return ()
        return self.history.records[bisect_left(offsets, first) : bisect_right(offsets, last)]

    @cached_property
    def _offsets(self) -> Sequence[int]:
        return [record.offset or 0 for record in self.history.records]


def _is_commit(transaction: PastTransaction) -> bool:
    return (transaction.state or "").endswith("Commit")


def _version(record: TransactionLogRecord) -> int:
    """Transaction version of the client that a record shows: 1 if it shows none."""
    return record.client_transaction_version or 1


def _shows_version_2(record: TransactionLogRecord) -> bool:
    """Whether a record shows a client of version 2: coordinators abort in version 2, whatever the client is."""
    return _version(record) >= 2 and record.state in {"Ongoing", "PrepareCommit", "CompleteCommit"}


def _are_in_order(times: Sequence[float], *, within: float = MAX_DIFFERENCE_MS) -> bool:
    """Whether no time is further before one that it follows than brokers' clocks may differ, or than `within`."""
    latest = -math.inf
    for time in times:
        if time < latest - within:
            return False
        latest = max(latest, time)
    return True


def _milliseconds(time: dt.datetime) -> float:
    return time.timestamp() * 1000
