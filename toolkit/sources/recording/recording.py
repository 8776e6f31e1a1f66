"""`Recording`: the tables of a live cluster at a point in time, and over time."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.analysis.coordinator.transaction_owners import owner_clauses, transaction_owners
from toolkit.analysis.diagnosis.decision import decide
from toolkit.analysis.diagnosis.evidence_text import at as at_time
from toolkit.analysis.diagnosis.evidence_text import scope
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.verdicts import GapEvidence
from toolkit.analysis.history.findings_over_time import (
    observation_times,
    observed_holds,
    over_time,
    with_earlier,
    without_short,
)
from toolkit.errors import NotFound, UsageError
from toolkit.schema import Row
from toolkit.schema.coerce import in_utc
from toolkit.schema.live import Coordinator, Finding, IdOwner, Partition, Producer, Transaction
from toolkit.schema.recorded import LsoHold, RecordedSample
from toolkit.schema.verdict import Verdict
from toolkit.sources.diagnose import diagnose
from toolkit.sources.evidence_source import EvidenceSource
from toolkit.sources.offset_queries.offset_spec import OffsetSpec
from toolkit.sources.recording.recorded_samples import (
    FoundSamples,
    coordinators,
    find_samples,
    named_transactions,
    read_sample,
    recorded_visibility,
    select_partitions,
)
from toolkit.sources.recording.recording_folder import AN_INSTANT, is_recording, read, sample_times
from toolkit.sources.source import Source
from toolkit.sources.source_table import RECORDING, TableArguments, implements, requested_partitions

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TopicPartitions = Sequence[int] | Sequence[tuple[str, int]]


class Recording(Source):
    """A recording by ``kafka-txn record``, read only; the recorder may still be writing it.

    The tables are those of one sample: the newest, or the newest at or before the time `at`. A failed sample is
    skipped, and reported in the findings.

    Parameters
    ----------
    path
        The folder that ``kafka-txn record`` writes to.

    Raises
    ------
    NotFound
        If it does not exist or is not a recording.

    Examples
    --------
    >>> Recording("/var/lib/kafka-txn").findings(at=datetime(2026, 11, 21, 9, 58, tzinfo=UTC))  # doctest: +SKIP
    """

    kind = RECORDING

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not is_recording(self.path):
            reason = "is not a recording" if self.path.exists() else "does not exist"
            raise NotFound(f"{path} {reason}.", do="Use the --output folder of kafka-txn record.")

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc: object) -> None:
        pass  # nothing to close; for code that also takes a cluster

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r})"

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, by its newest successful sample; null without one, and of older recordings."""
        try:
            return self._find_samples(None).sample.cluster_id
        except NotFound:
            return None

    def samples(self, *, start: dt.datetime | None = None, stop: dt.datetime | None = None) -> pd.DataFrame:
        """The samples of the recorder (``schema.SAMPLES``), failed ones included.

        Parameters
        ----------
        start, stop
            Only samples due from `start` to before `stop`; null for no bound.
        """
        return self.history("samples", start=start, stop=stop)

    def sample_row(self, *, at: dt.datetime | None = None) -> Row:
        """The sample at a time, as a row of ``schema.SAMPLES``.

        Parameters
        ----------
        at
            As for `partitions`, with the same errors.
        """
        return self._find_samples(at).sample.row()

    def late_transactions(self, *, start: dt.datetime | None = None, stop: dt.datetime | None = None) -> pd.DataFrame:
        """Transactions open for too long (``schema.LATE_TRANSACTIONS``), a row for each sample.

        Parameters
        ----------
        start, stop
            As for `samples`.
        """
        return self.history("late_transactions", start=start, stop=stop)

    def history(self, table: str, *, start: dt.datetime | None = None, stop: dt.datetime | None = None) -> pd.DataFrame:
        """All rows of a recorded table, with the time of their sample (``schema.RECORDED``).

        Parameters
        ----------
        table
            samples, partitions, producers, transactions, findings or late_transactions.
        start, stop
            As for `samples`.

        Raises
        ------
        UsageError
            If there is no such table, or a time has no zone.
        """
        import pandas as pd

        frame: pd.DataFrame = self._history(table, start, stop).to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    def observe(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: TopicPartitions | None = None,
        at: dt.datetime | None = None,
    ) -> Observation:
        """The observation of a sample (`analysis.diagnosis.observation.Observation`)."""
        return select_partitions(self._observe(at), topics, partitions)

    def offset_visibility(
        self, topic: str, partition: int, offset: int, *, at: dt.datetime | None = None
    ) -> pd.DataFrame:
        """Where an offset was: before the log, below the LSO, or beyond it (``schema.OFFSET_VISIBILITY``): one row.

        A recording has no records: only the cluster or its files have the content of the offset, and `error` says so.

        Parameters
        ----------
        topic, partition, offset
            The offset.
        at
            As for `partitions`.
        """
        return schema.OFFSET_VISIBILITY.frame(self.offset_visibility_rows(topic, partition, offset, at=at))

    def offset_visibility_rows(
        self, topic: str, partition: int, offset: int, *, at: dt.datetime | None = None
    ) -> list[Row]:
        """`offset_visibility` as rows."""
        observation = self.observe(topics=[topic], partitions=[partition], at=at)
        return [recorded_visibility(observation, offset).row()]

    @implements(Source.findings_over_time)
    def findings_over_time(self, arguments: TableArguments) -> Iterable[Finding]:
        start, stop = map(_time, (arguments.start, arguments.stop))
        return self._over_time(arguments.topics, arguments.partitions, start, stop)

    @implements(Source.lso_holds)
    def lso_holds(self, arguments: TableArguments) -> Iterable[LsoHold]:
        start, stop = map(_time, (arguments.start, arguments.stop))
        return observed_holds(self._over_time(arguments.topics, arguments.partitions, start, stop))

    @implements(Source.partitions)
    def partitions(self, arguments: TableArguments) -> Iterable[Partition]:
        observation = self.observe(topics=arguments.topics, partitions=arguments.partitions, at=arguments.at)
        return {each.tp: each for each in (*observation.partitions, *observation.partitions_after)}.values()

    @implements(Source.producers, without=["broker_id"])
    def producers(self, arguments: TableArguments) -> Iterable[Producer]:
        observation = self.observe(topics=arguments.topics, partitions=arguments.partitions, at=arguments.at)
        rechecked = {each.tp for each in observation.partitions_after}
        return [*(each for each in observation.producers if each.tp not in rechecked), *observation.producers_after]

    @implements(Source.transactions)
    def transactions(self, arguments: TableArguments) -> Iterable[Transaction]:
        from toolkit.sources.live.transaction_listing import TransactionFilters  # imports kafka-python

        filters = TransactionFilters.of(arguments)
        observation = self._observe(arguments.at)
        if arguments.transactional_ids is not None:
            return named_transactions(observation, arguments.transactional_ids)
        now = observation.brokers_time
        found = [each for each in observation.transactions if each.error or filters.match(each, now)]
        return found + (filters.unfiltered(now) if any(each.start_time for each in found) else [])

    @implements(Source.coordinators)
    def coordinators(self, arguments: TableArguments) -> Iterable[Coordinator]:
        content = read_sample(self.path, self._find_samples(arguments.at).sample)
        observation = content.observation
        transactional_ids, groups = arguments.transactional_ids, arguments.groups
        if transactional_ids is None:
            transactional_ids = [each.transactional_id for each in observation.transactions if each.transactional_id]
        if groups is None:
            groups = [group for each in content.findings for group in each.groups_held or ()]
        return coordinators(observation, transactional_ids, groups)

    @implements(Source.transaction_owners)
    def transaction_owners(self, arguments: TableArguments) -> Iterable[IdOwner]:
        ids = arguments.transactional_ids
        return transaction_owners(self.records(Transaction, transactional_ids=ids, at=arguments.at))

    @implements(Source.findings, without=["recheck_after"])
    def findings(self, arguments: TableArguments) -> Iterable[Finding]:
        found = self._find_samples(arguments.at)
        evidence = RecordedEvidence(self.path, found, arguments)
        self.scope = scope(evidence.observation, len(evidence.observation.partitions))
        options = replace(arguments.diagnosis(), recheck_after=0, log_evidence=False, is_sample=True)
        findings = [*diagnose(evidence, options).findings]
        if arguments.min_held_ms is not None:
            selected: set[tuple[str | None, int | None]] = {each.tp for each in evidence.observation.partitions}
            everything = not evidence.requested
            past = self._over_time(None, None, None, found.sample.sampled_at + AN_INSTANT)
            ended = [
                each
                for each in past
                if each.verdict is Verdict.ENDED and (everything or (each.topic, each.partition) in selected)
            ]
            findings += without_short(ended, min_held_ms=arguments.min_held_ms)
        return [*findings, *_failed_samples(found)]

    def _over_time(
        self,
        topics: Sequence[str] | None,
        partitions: TopicPartitions | None,
        start: dt.datetime | None,
        stop: dt.datetime | None,
    ) -> list[Finding]:
        """One finding for each transaction and verdict; those about the whole cluster are always included."""
        findings = self._history("findings", start, stop)
        if topics is not None or partitions is not None:
            selected = set(topics or ()) if partitions is None else set(requested_partitions(topics, partitions))
            tps = zip(findings["topic"].to_pylist(), findings["partition"].to_pylist(), strict=True)
            findings = findings.filter([tp[0] is None or not selected.isdisjoint((tp, tp[0])) for tp in tps])
        samples = RecordedSample.of_table(self._history("samples", start, stop))
        return over_time(findings, observation_times(samples))

    def _history(self, table: str, start: dt.datetime | None, stop: dt.datetime | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        if table not in schema.RECORDED:
            raise UsageError(f"A recording has no table {table!r}.", do=f"Use {', '.join(schema.RECORDED)}.")
        start, stop = (None if time is None else in_utc(time) for time in (start, stop))
        complete = sample_times(self.path, start, stop)  # first, to leave out samples written meanwhile
        rows = read(self.path, table, start=start, stop=stop)
        return rows.filter(pc.is_in(rows["sampled_at"], value_set=pa.array(complete, rows["sampled_at"].type)))

    def _find_samples(self, at: dt.datetime | None) -> FoundSamples:
        return find_samples(self.path, at=None if at is None else in_utc(at))

    def _observe(self, at: dt.datetime | None) -> Observation:
        return read_sample(self.path, self._find_samples(at).sample).observation


class RecordedEvidence(EvidenceSource):
    """What the samples of a recording give to a diagnosis: no logs, but the findings of their time."""

    def __init__(self, path: Path, found: FoundSamples, arguments: TableArguments) -> None:
        content = read_sample(path, found.sample, idle_producers=False)
        self._path = path
        self._before = found.before
        self._sample = found.sample
        self._transactions = content.observation.transactions
        self.observation = select_partitions(
            content.observation, arguments.topics, arguments.partitions, broker_id=arguments.broker_id
        )
        self.recorded = content.findings if arguments.log_evidence else []
        everything = arguments.is_everything and arguments.broker_id is None
        self.requested = () if everything else [each.tp for each in self.observation.partitions]

    @property
    def cluster_id(self) -> str | None:
        return self._sample.cluster_id

    def observations(self) -> Sequence[Observation]:
        before = None if self._before is None else read_sample(self._path, self._before, idle_producers=False)
        return with_earlier(self.observation, None if before is None else before.observation)

    def owners(self, ids: Collection[str], observations: Sequence[Observation]) -> Mapping[str, str | None]:
        return owner_clauses(self._transactions)


def _failed_samples(found: FoundSamples) -> list[Finding]:
    """A finding about the whole cluster if later samples failed."""
    if not found.failed:
        return []
    first, last = found.failed[0], found.failed[-1]
    count, since = len(found.failed), at_time(first.sampled_at)
    failed = f"the sample of {since}" if count == 1 else f"{count} samples since {since}"
    unreachable = GapEvidence(
        reason=f"The cluster could not be reached any more: {failed} failed.",
        remedy="Diagnose the live cluster.",
        missing=tuple(dict.fromkeys(each.error for each in found.failed if each.error)),
        is_open=False,
    )
    return [replace(decide(unreachable).finding(observed_at=last.observed_at), error=last.error)]


def _time(bound: OffsetSpec | None) -> dt.datetime | None:
    if bound is None or isinstance(bound, dt.datetime):
        return bound
    raise UsageError(f"{bound!r} is not a time: the samples of a recording are selected by time.")
