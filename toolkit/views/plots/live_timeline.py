"""The timeline straight from a source, and a timeline that grows while a cluster runs."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding, Partition, Producer, Transaction
from toolkit.schema.log import LogTransaction, TransactionLogRecord
from toolkit.schema.recorded import RecordedSample
from toolkit.views.plots.plot_theme import ThemeName, theme_named
from toolkit.views.plots.timeline_plot import plot_timeline

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

    Source = Cluster | LogDir | Recording


MAX_SAMPLES = 5_000
MAX_OFFSETS = 200_000  # of the log before the LSO that a live timeline reads

Tables = dict[str, Any]
SHARED = set(TransactionLogRecord.table.names) & set(Transaction.table.names) - {"error", "last_update_time"}


class LiveTimeline:
    """The timeline of a partition as its source has it now; each access to `figure` reads it again.

    On a live cluster samples are kept, so that the lines grow even where nothing is written. From a recording,
    transactions are drawn from the first sample in which they are open to the first in which they are not.

    Parameters
    ----------
    source
        A `Cluster`, `LogDir` or `Recording`.
    topic, partition
        Which partition.
    theme
        ``light`` or ``dark``.
    recheck_after
        Of a cluster, seconds before the confirming second observation; 0 disables it, and no transaction is `hanging`
        that only a second one can prove.
    max_offsets
        Of a cluster, how much of the log below the LSO is read, in offsets.
    max_age
        Of a recording, how far back its samples are read; null for all of them.

    Raises
    ------
    UsageError
        If there is no such theme.

    Examples
    --------
    >>> timeline = LiveTimeline(cluster, "orders", 0)  # doctest: +SKIP
    >>> output.update(timeline.figure())  # as often as you like
    """

    def __init__(
        self,
        source: Source,
        topic: str,
        partition: int,
        *,
        theme: ThemeName = "light",
        recheck_after: float = 5.0,
        max_offsets: int = MAX_OFFSETS,
        max_age: dt.timedelta | None = None,
    ) -> None:
        theme_named(theme)
        self.source = source
        self.topic, self.partition = topic, partition
        self.theme: ThemeName = theme
        self.recheck_after = recheck_after
        self.max_offsets = max_offsets
        self.max_age = max_age
        self.problems: Sequence[str] = ()
        """Sentences about data that could not be read for the last figure."""
        self._samples: deque[Partition] = deque(maxlen=MAX_SAMPLES)

    def figure(self, *, at: dt.datetime | None = None) -> go.Figure:
        """Sample the partition, and draw it.

        Parameters
        ----------
        at
            Of a recording, the end of the figure; null for the newest sample.

        Raises
        ------
        NotFound
            If the source does not have the partition.
        ToolkitError
            If the partition or its findings cannot be read; without its coordinator's records it is drawn, and
            `problems` says so.
        """
        tables, self.problems = self._read(at)
        return plot_timeline(topic=self.topic, partition=self.partition, theme=self.theme, now=at, **tables)

    def _read(self, at: dt.datetime | None) -> tuple[Tables, list[str]]:
        from toolkit.sources.live.cluster import Cluster
        from toolkit.sources.logdir import LogDir
        from toolkit.sources.recording import Recording

        match self.source:
            case Cluster():
                return self._of_cluster(self.source)
            case LogDir():
                return _of_files(self.source, self.topic, self.partition)
            case Recording():
                return self._of_recording(self.source, at), []
        raise UsageError(f"{type(self.source).__name__} is no source of a timeline.")

    def _of_cluster(self, cluster: Cluster) -> tuple[Tables, list[str]]:
        partitions = [(self.topic, self.partition)]
        findings = cluster.records(Finding, partitions=partitions, recheck_after=self.recheck_after)
        (sample,) = cluster.records(Partition, partitions=partitions)
        self._samples.append(sample)
        tables: Tables = {"findings": findings, "partitions": list(self._samples), "log_transactions": []}
        if sample.error is None:
            lso, first = sample.last_stable_offset or 0, sample.log_start_offset or 0
            start = max(first, lso - self.max_offsets)
            tables["log_transactions"] = cluster.log_transactions(
                topics=self.topic, partitions=self.partition, start=start
            )
            tables["lso_timeline"] = cluster.lso_timeline(topics=self.topic, partitions=self.partition, start=start)
        ids = sorted({finding.transactional_id for finding in findings if finding.transactional_id})
        events, problems = _coordinators(lambda: cluster.transaction_log(transactional_ids=ids)) if ids else (None, [])
        return tables | {"transaction_log": events}, [*([sample.error] if sample.error else []), *problems]

    def _of_recording(self, recording: Recording, at: dt.datetime | None) -> Tables:
        findings = records_of(recording.findings(topics=[self.topic], partitions=[self.partition], at=at), Finding)
        here: Mapping[str, Sequence[object]] = {"topic": [self.topic], "partition": [self.partition]}
        start = None
        if self.max_age is not None:
            start = (at or RecordedSample.of(recording.sample_row()).sampled_at) - self.max_age
        rows = recording.history("partitions", start=start, stop=at, values=here)
        times = rows["observed_at"][rows["phase"] == "before"]  # those of its second observation are of the same sample
        partitions = records_of(rows, Partition)
        producers = records_of(recording.history("producers", start=start, stop=at, values=here), Producer)
        if not partitions and not findings:
            raise NotFound(f"The recording has no sample of {self.topic}-{self.partition}.")
        owners = {each.producer_id for each in producers} | {each.producer_id for each in findings}
        known = recording.history("transactions", start=start, stop=at, values={"producer_id": list(owners - {None})})
        return {
            "log_transactions": sampled_log_transactions(producers, times.tolist()),
            "partitions": partitions,
            "findings": findings,
            "transaction_log": _as_records(records_of(known, Transaction)),
        }


def sampled_log_transactions(
    producers: Iterable[Producer], sample_times: Iterable[dt.datetime]
) -> list[LogTransaction]:
    """Transactions of a recording: from the first sample in which each was open to the first without it.

    One that ended between two samples has no outcome, but an `error`.
    `producers`: those of one partition, of all samples.
    """
    by_transaction: dict[tuple[int, int | None, int], list[Producer]] = {}
    for producer in producers:
        if producer.current_txn_start_offset is not None and producer.producer_id is not None:
            key = producer.producer_id, producer.producer_epoch, producer.current_txn_start_offset
            by_transaction.setdefault(key, []).append(producer)
    times = sorted(sample_times)
    log_transactions = []
    for (producer_id, epoch, start), states in by_transaction.items():
        last = max(state.observed_at for state in states)
        end = next((time for time in times if time > last), None)
        log_transactions.append(
            LogTransaction(
                topic=states[0].topic,
                partition=states[0].partition,
                broker_id=states[0].broker_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                first_offset=start,
                start=min(state.observed_at for state in states),
                start_clock="broker",
                end=end,
                outcome="open" if end is None else None,
                error=None if end is None else "SAMPLED: it ended between two samples",
            )
        )
    return log_transactions


def _of_files(files: LogDir, topic: str, partition: int) -> tuple[Tables, list[str]]:
    partitions = [(topic, partition)]
    tables: Tables = {
        name: getattr(files, name)(partitions=partitions)
        for name in ("log_transactions", "lso_timeline", "partitions", "findings")
    }
    events, problems = _coordinators(files.transaction_log)
    return tables | {"transaction_log": events}, problems


def _as_records(transactions: Iterable[Transaction]) -> list[TransactionLogRecord]:
    """States in samples as records of a coordinator, without repetitions; their offset is their index in time."""
    states = [each for each in transactions if each.state is not None and each.error is None]
    last: dict[str | None, object] = {}
    records = []
    for number, sampled in enumerate(sorted(states, key=lambda each: each.observed_at)):
        state = sampled.state, sampled.producer_epoch, sampled.start_time
        if last.get(sampled.transactional_id) != state:
            time = (sampled.start_time if sampled.state == "Ongoing" else None) or sampled.observed_at
            shared = {name: getattr(sampled, name) for name in SHARED}
            records.append(
                TransactionLogRecord(**shared, offset=number, timestamp=time, last_update_time=time, tombstone=False)
            )
        last[sampled.transactional_id] = state
    return records


def _coordinators(read: Callable[[], Any]) -> tuple[Any, list[str]]:
    try:
        return read(), []
    except ToolkitError as error:
        return None, [f"The coordinator's records could not be read: {error}"]
