"""Check the transactional ids, groups, partitions and producer ids that an error names, in a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit.analysis.findings_over_time import unread
from toolkit.analysis.symptoms import MAX_NAMED, NamedResources
from toolkit.errors import NotFound, ToolkitError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema.live import Coordinator, Finding, GroupLag, Partition, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import Error, TableRow, TopicPartition
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.source import Source

R = TypeVar("R", bound=TableRow)

NO_SUCH_GROUP = "GROUP_ID_NOT_FOUND: no broker lists it, so it has no committed offset"
ANSWERS = {"GROUP_ID_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND", "UNSTABLE_OFFSET_COMMIT"}
SPARK_EXECUTOR = "spark-executor-"  # put before the group of a driver of DStreams, which is the one that commits
NEWEST = 3  # rows of a transactional id's history


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChecks:
    """Rows about the named resources, and failed checks."""

    # whether all partitions were checked: for producers open anywhere, or if nothing is named
    all_partitions: bool = False
    findings: tuple[Finding, ...] = ()
    transactions: tuple[Transaction, ...] = ()  # of the ids, and of the owners of the producer ids
    history: tuple[PastTransaction, ...] = ()  # the newest ones of the ids
    group_lag: tuple[GroupLag, ...] = ()
    groups: tuple[str, ...] = ()  # that were looked up: those of the text, and those that commit on its partitions
    not_checked: tuple[str, ...] = ()  # failed checks and their errors, as sentences

    @property
    def is_incomplete(self) -> bool:
        """Whether a check failed, as a whole or of one of the named: a row with an error that is no answer."""
        of_ids = (each.error for each in self.transactions)
        of_others = (*(each.error for each in self.history), *(each.error for each in self.group_lag))
        errors = filter(None, (*of_ids, *of_others))
        return bool(self.not_checked) or any(Error.of(each).code not in ANSWERS for each in errors)


def check_resources(source: Source, named: NamedResources, *, recheck_after: float = 5.0) -> ResourceChecks:
    """Check the named resources, or every held partition if none is named.

    `recheck_after`: as for ``Cluster.findings``; clusters only.
    """
    return _Check(source, named, recheck_after).run()


class _Check:
    def __init__(self, source: Source, named: NamedResources, recheck_after: float) -> None:
        from toolkit.sources.live.cluster import Cluster  # imports kafka-python
        from toolkit.sources.logdir import LogDir

        self.source = source
        self.named = named
        self.is_cluster = isinstance(source, Cluster)
        self.groups_of = source if isinstance(source, Cluster | LogDir) else None  # a recording has none
        self.options = {"recheck_after": recheck_after} if self.is_cluster else {}
        drivers = (each.removeprefix(SPARK_EXECUTOR) for each in named.groups)
        self.groups = list(dict.fromkeys([*named.groups, *filter(None, drivers)]))
        self.not_checked = [f"{each}, which the text names: explain a part of it." for each in named.left_out]
        self.owners = {*named.producer_ids}
        self.all_partitions = False

    def run(self) -> ResourceChecks:
        transactions = list(self._transactions())
        history = list(self._history())
        data = list(dict.fromkeys([*self.named.partitions, *self._topics()]))
        committing = self._committing_groups(data)
        lags = [*self._group_lags(), *self._lags_on(data, committing)]
        partitions = [*data, *self._offsets_partitions([*self.groups, *committing])]
        partitions += [
            TopicPartition(each.topic, each.partition)
            for each in lags
            if each.held and each.topic is not None and each.partition is not None
        ]
        partitions += [tp for each in transactions for tp in each.topic_partitions or ()]
        self.owners.update(each.producer_id for each in transactions if each.producer_id is not None)
        findings = tuple(self._findings(list(dict.fromkeys(partitions))))
        return ResourceChecks(
            all_partitions=self.all_partitions,
            findings=findings,
            transactions=tuple(transactions),
            history=tuple(history),
            group_lag=tuple(lags),
            groups=tuple(dict.fromkeys([*self.groups, *committing])),
            not_checked=tuple(self.not_checked),
        )

    def _transactions(self) -> Iterator[Transaction]:
        ids, producer_ids = self.named.transactional_ids, self.named.producer_ids
        if ids:
            yield from self._records("transactional ids", Transaction, transactional_ids=ids)
        if producer_ids:
            owners = self._records("producer ids", Transaction, producer_ids=producer_ids)
            yield from (each for each in owners if each.transactional_id not in ids)

    def _history(self) -> Iterator[PastTransaction]:
        ids = self.named.transactional_ids
        if not ids:
            return
        if self.groups_of is None:
            self.not_checked.append("The history of transactional ids: a recording has none.")
            return
        subject = "the history of transactional ids (READ on __transaction_state)"
        found = self._records(subject, PastTransaction, transactional_ids=ids)
        former = (number for each in found for number in (each.producer_id, each.previous_producer_id))
        self.owners.update(number for number in former if number is not None)
        for name in ids:
            yield from [each for each in found if each.transactional_id == name][-NEWEST:]

    def _group_lags(self) -> Iterator[GroupLag]:
        for group in self.groups:
            if self.groups_of is None:
                self.not_checked.append(f'Group "{group}": a recording has no committed offsets.')
            else:
                before = len(self.not_checked)
                lags = self._lags_of(group, self.groups_of)
                if not lags and len(self.not_checked) == before:
                    self.not_checked.append(f'Lag of group "{group}": it has no committed offset that can be read.')
                yield from lags

    def _lags_of(self, group: str, source: Cluster | LogDir) -> list[GroupLag]:
        """The lag of a group; of one that no broker lists a row that says so, as that is an answer."""
        try:
            return source.group_lags(group)
        except ToolkitError as error:
            if isinstance(error, NotFound) and self.is_cluster:  # files may be incomplete
                return [GroupLag(group_id=group, error=NO_SUCH_GROUP)]
            self.not_checked.append(f'Group "{group}": {error}')
            return []

    def _committing_groups(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Groups that commit offsets of the named partitions, those with a pending offset first.

        A consumer that waits for a pending offset names its partition, and the transaction is on another one: that of
        its group.
        """
        if not partitions or self.groups_of is None:
            return []
        names = ", ".join(f"{topic}-{number}" for topic, number in partitions[:3])
        try:
            found = self.groups_of.committing_groups(partitions)
        except ToolkitError as error:
            self.not_checked.append(f"Groups that commit offsets of {names}: {error}")
            return []
        return [each for each in dict.fromkeys(chain(*found.values())) if each not in self.groups]

    def _lags_on(self, partitions: Sequence[TopicPartition], groups: Sequence[str]) -> Iterator[GroupLag]:
        """The lag of some groups on the named partitions."""
        if self.groups_of is not None:
            if len(groups) > MAX_NAMED:
                self.not_checked.append(f"Lag of {len(groups) - MAX_NAMED} more groups: that of {MAX_NAMED} is read.")
            lags = chain.from_iterable(self._lags_of(group, self.groups_of) for group in groups[:MAX_NAMED])
            yield from (each for each in lags if (each.topic, each.partition) in partitions)

    def _offsets_partitions(self, groups: Sequence[str]) -> list[TopicPartition]:
        if not groups:
            return []
        subject = "the partition of __consumer_offsets"
        found = self._records(subject, Coordinator, transactional_ids=[], groups=groups)
        self.not_checked += [
            f'The partition of __consumer_offsets of group "{each.key}": {each.error}'
            for each in found
            if each.partition is None
        ]
        numbers = dict.fromkeys(each.partition for each in found if each.partition is not None)
        return [TopicPartition(OFFSETS_TOPIC, number) for number in numbers]

    def _topics(self) -> Iterator[TopicPartition]:
        for topic in self.named.topics:
            yield from (each.tp for each in self._records(f"topic {topic}", Partition, topics=[topic]))

    def _findings(self, partitions: Sequence[TopicPartition]) -> Iterator[Finding]:
        """Findings of the partitions, of the producers on any partition, and of the whole cluster."""
        found: Sequence[Finding] = []
        owners, ids = self.owners, self.named.transactional_ids
        offsets = self.groups_of is None and bool(partitions)  # its groups are not known, only what is open on them
        if owners or ids or offsets or not self.named:
            before = len(self.not_checked)
            found = self._records("all partitions", Finding, **self.options)
            self.all_partitions = len(self.not_checked) == before
        selected = {
            (each.topic, each.partition)
            for each in found
            if each.topic is None
            or each.tp in partitions
            or each.producer_id in owners
            or each.transactional_id in ids
            or (ids and _is_of_any_id(each))
            or ((owners or ids) and each.topic != STATE_TOPIC and unread([each]) is not None)  # they may be open there
            or (offsets and each.topic == OFFSETS_TOPIC and not each.verdict.is_brief)
            or (not self.named and (not each.verdict.is_brief or each.cause))
        }
        yield from (each for each in found if (each.topic, each.partition) in selected)
        checked = {each.tp for each in found}
        yield from self._findings_of([each for each in partitions if each not in checked])

    def _findings_of(self, partitions: Sequence[TopicPartition]) -> Sequence[Finding]:
        if not partitions:
            return []
        try:
            return self.source.records(Finding, partitions=partitions, **self.options)
        except ToolkitError as error:
            if len(partitions) == 1:
                self.not_checked.append(f"{partitions[0].topic}-{partitions[0].partition}: {error}")
                return []
            middle = len(partitions) // 2
            return [*self._findings_of(partitions[:middle]), *self._findings_of(partitions[middle:])]

    def _records(self, subject: str, record: type[R], **arguments: Any) -> Sequence[R]:
        """The rows of a table; a failure is added to `not_checked`."""
        try:
            return self.source.records(record, **arguments)
        except ToolkitError as error:
            self.not_checked.append(f"{subject[0].upper()}{subject[1:]}: {error}")
            return []


def _is_of_any_id(finding: Finding) -> bool:
    """Whether its transactional id is not known: it may be one that expired, or whose coordinator did not answer."""
    is_known = finding.transactional_id is not None or finding.producer_id is None
    return not is_known and finding.verdict in {Verdict.HANGING, Verdict.UNKNOWN}
