"""Check the transactional ids, groups, partitions and producer ids that an error names, in a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.verdicts import BRIEF
from toolkit.analysis.symptoms.recognition import MAX_NAMED, NamedResources
from toolkit.errors import NotFound, ToolkitError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema import GROUP_LAG, Row
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.sources.source import Source

NO_SUCH_GROUP = "GROUP_ID_NOT_FOUND: no broker lists it, so it has no committed offset"
SPARK_EXECUTOR = "spark-executor-"  # put before the group of a driver of DStreams, which is the one that commits
NEWEST = 3  # rows of a transactional id's history


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChecks:
    """Rows about the named resources, and failed checks."""

    # whether all partitions were checked: for producers open anywhere, or if nothing is named
    all_partitions: bool = False
    findings: tuple[Row, ...] = ()  # rows of ``schema.FINDINGS``
    # rows of ``schema.TRANSACTIONS`` of the ids, and of the owners of the producer ids
    transactions: tuple[Row, ...] = ()
    history: tuple[Row, ...] = ()  # the newest rows of ``schema.TRANSACTION_HISTORY`` of the ids
    group_lag: tuple[Row, ...] = ()  # rows of ``schema.GROUP_LAG``
    not_checked: tuple[str, ...] = ()  # failed checks and their errors, as sentences


def check_resources(source: Source, named: NamedResources, *, recheck_after: float = 5.0) -> ResourceChecks:
    """Check the named resources, or every held partition if none is named.

    `recheck_after`: as for ``Cluster.findings``; clusters only.
    """
    return _Check(source, named, recheck_after).run()


class _Check:
    def __init__(self, source: Source, named: NamedResources, recheck_after: float) -> None:
        from toolkit.sources.live.cluster import Cluster  # imports kafka-python
        from toolkit.sources.recording import Recording

        self.source: Any = source
        self.named = named
        self.is_recording = isinstance(source, Recording)
        self.is_cluster = isinstance(source, Cluster)
        self.options = {"recheck_after": recheck_after} if self.is_cluster else {}
        drivers = (each.removeprefix(SPARK_EXECUTOR) for each in named.groups)
        self.groups = list(dict.fromkeys([*named.groups, *filter(None, drivers)]))
        self.not_checked: list[str] = []
        self.all_partitions = False

    def run(self) -> ResourceChecks:
        transactions = list(self._transactions())
        history = list(self._history())
        data = list(dict.fromkeys([*self.named.partitions, *self._topics()]))
        committing = self._committing_groups(data)
        lag = [*self._group_lag(), *self._lag_on(data, committing)]
        partitions = [*data, *self._offsets_partitions([*self.groups, *committing])]
        partitions += [TopicPartition(row["topic"], row["partition"]) for row in lag if row.get("held")]
        open_on = [each for row in transactions for each in row["topic_partitions"] or ()]
        partitions += [TopicPartition(each["topic"], each["partition"]) for each in open_on]
        owners = {row["producer_id"] for row in [*transactions, *history]} | set(self.named.producer_ids)
        findings = tuple(self._findings(list(dict.fromkeys(partitions)), owners - {None}))
        return ResourceChecks(
            all_partitions=self.all_partitions,
            findings=findings,
            transactions=tuple(transactions),
            history=tuple(history),
            group_lag=tuple(lag),
            not_checked=tuple(self.not_checked),
        )

    def _transactions(self) -> Iterator[Row]:
        ids, producer_ids = self.named.transactional_ids, self.named.producer_ids
        if ids:
            yield from self._rows("transactional ids", lambda: self.source.transaction_rows(transactional_ids=ids))
        if producer_ids:
            rows = self._rows("producer ids", lambda: self.source.transaction_rows(producer_ids=producer_ids))
            yield from (row for row in rows if row["transactional_id"] not in ids)

    def _history(self) -> Iterator[Row]:
        if not self.named.transactional_ids:
            return
        if self.is_recording:
            self.not_checked.append("The history of transactional ids: a recording has none.")
            return
        rows = self._rows(
            "the history of transactional ids (READ on __transaction_state)",
            lambda: self.source.transaction_history_rows(transactional_ids=list(self.named.transactional_ids)),
        )
        for name in self.named.transactional_ids:
            yield from [row for row in rows if row["transactional_id"] == name][-NEWEST:]

    def _group_lag(self) -> Iterator[Row]:
        for group in self.groups:
            if self.is_recording:
                self.not_checked.append(f"Group {group}: a recording has no committed offsets.")
            else:
                before = len(self.not_checked)
                rows = self._rows(f"group {group}", partial(self._lag_of, group))
                if not rows and len(self.not_checked) == before:
                    self.not_checked.append(f"Lag of group {group}: it has no committed offset that can be read.")
                yield from rows

    def _lag_of(self, group: str) -> Sequence[Row]:
        """The lag of a group; of one that does not exist a row that says so: that is an answer."""
        try:
            rows: Sequence[Row] = self.source.group_lag_rows(group)
        except NotFound:
            if not self.is_cluster:
                raise  # the files may be incomplete
            row: dict[str, Any] = dict.fromkeys(GROUP_LAG.names)
            return [row | {"group_id": group, "error": NO_SUCH_GROUP}]
        return rows

    def _committing_groups(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Groups that commit offsets of the named partitions, those with a pending offset first.

        A consumer that waits for a pending offset names its partition, and the transaction is on another one: that of
        its group.
        """
        if not partitions or self.is_recording:
            return []
        names = ", ".join(f"{topic}-{number}" for topic, number in partitions[:3])
        try:
            found = self.source.committing_groups(partitions)
        except ToolkitError as error:
            self.not_checked.append(f"Groups that commit offsets of {names}: {error}")
            return []
        return [each for each in dict.fromkeys(chain(*found.values())) if each not in self.groups]

    def _lag_on(self, partitions: Sequence[TopicPartition], groups: Sequence[str]) -> Iterator[Row]:
        """The lag of some groups on the named partitions."""
        for group in groups[:MAX_NAMED]:
            rows = self._rows(f"group {group}", partial(self.source.group_lag_rows, group))
            yield from (row for row in rows if TopicPartition(row["topic"], row["partition"]) in partitions)

    def _offsets_partitions(self, groups: Sequence[str]) -> list[TopicPartition]:
        if not groups:
            return []
        rows = self._rows(
            "the partition of __consumer_offsets",
            lambda: self.source.coordinator_rows(transactional_ids=[], groups=list(groups)),
        )
        for row in rows:
            if row["partition"] is None:
                self.not_checked.append(f"The partition of __consumer_offsets of group {row['key']}: {row['error']}")
        return list(
            dict.fromkeys(
                TopicPartition(row["topic"], row["partition"]) for row in rows if row["partition"] is not None
            )
        )

    def _topics(self) -> Iterator[TopicPartition]:
        for topic in self.named.topics:
            rows = self._rows(f"topic {topic}", partial(self.source.partition_rows, topics=[topic]))
            yield from (TopicPartition(row["topic"], row["partition"]) for row in rows)

    def _findings(self, partitions: Sequence[TopicPartition], owners: set[int]) -> Iterator[Row]:
        """Findings of the partitions, of the producers on any partition, and of the whole cluster."""
        rows: Sequence[Row] = []
        offsets = self.is_recording and bool(partitions)  # its groups are not known, only what is open on them
        if owners or offsets or not self.named:
            before = len(self.not_checked)
            rows = self._rows("all partitions", lambda: self.source.finding_rows(**self.options))
            self.all_partitions = len(self.not_checked) == before
        checked = {TopicPartition(row["topic"], row["partition"]) for row in rows}
        selected = {
            TopicPartition(row["topic"], row["partition"])
            for row in rows
            if row["topic"] is None
            or TopicPartition(row["topic"], row["partition"]) in partitions
            or row["producer_id"] in owners
            or (offsets and row["topic"] == OFFSETS_TOPIC and row["verdict"] not in BRIEF)
            or (not self.named and (row["verdict"] not in BRIEF or row["cause"]))
        }
        yield from (row for row in rows if TopicPartition(row["topic"], row["partition"]) in selected)
        yield from self._findings_of([each for each in partitions if each not in checked])

    def _findings_of(self, partitions: Sequence[TopicPartition]) -> Sequence[Row]:
        if not partitions:
            return []
        try:
            rows: Sequence[Row] = self.source.finding_rows(partitions=list(partitions), **self.options)
        except ToolkitError as error:
            if len(partitions) == 1:
                self.not_checked.append(f"{partitions[0][0]}-{partitions[0][1]}: {error}")
                return []
            return [row for each in partitions for row in self._findings_of([each])]
        return rows

    def _rows(self, subject: str, read: Callable[[], Sequence[Row]]) -> Sequence[Row]:
        """Rows of a check; a failure is added to `not_checked`."""
        try:
            return read()
        except ToolkitError as error:
            self.not_checked.append(f"{subject[0].upper()}{subject[1:]}: {error}")
            return []
