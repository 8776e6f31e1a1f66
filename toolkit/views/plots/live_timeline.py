"""The timeline straight from a source, and a timeline that grows while a cluster runs."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, PARTITIONS, PRODUCERS, TRANSACTION_LOG, TRANSACTIONS, Row
from toolkit.schema.coerce import rows_of
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
    ) -> None:
        theme_named(theme)
        self.source = source
        self.topic, self.partition = topic, partition
        self.theme: ThemeName = theme
        self.recheck_after = recheck_after
        self.max_offsets = max_offsets
        self.problems: Sequence[str] = ()
        """Sentences about data that could not be read for the last figure."""
        self._samples: deque[Row] = deque(maxlen=MAX_SAMPLES)

    def figure(self) -> go.Figure:
        """Sample the partition, and draw it.

        Raises
        ------
        NotFound
            If the source does not have the partition.
        ToolkitError
            If the partition or its findings cannot be read; without its coordinator's records it is drawn, and
            `problems` says so.
        """
        tables, self.problems = self._read()
        return plot_timeline(topic=self.topic, partition=self.partition, theme=self.theme, **tables)

    def _read(self) -> tuple[Tables, list[str]]:
        from toolkit.sources.live.cluster import Cluster
        from toolkit.sources.logdir import LogDir
        from toolkit.sources.recording import Recording

        match self.source:
            case Cluster():
                return self._of_cluster(self.source)
            case LogDir():
                return _of_files(self.source, self.topic, self.partition)
            case Recording():
                return _of_recording(self.source, self.topic, self.partition), []
        raise UsageError(f"{type(self.source).__name__} is no source of a timeline.")

    def _of_cluster(self, cluster: Cluster) -> tuple[Tables, list[str]]:
        partitions = [(self.topic, self.partition)]
        findings = cluster.finding_rows(partitions=partitions, recheck_after=self.recheck_after)
        (sample,) = cluster.partition_rows(partitions=partitions)
        self._samples.append(sample)
        tables: Tables = {"findings": findings, "partitions": list(self._samples), "log_transactions": []}
        if sample["error"] is None:
            lso, first = sample["last_stable_offset"] or 0, sample["log_start_offset"] or 0
            start = max(first, lso - self.max_offsets)
            tables["log_transactions"] = cluster.log_transactions(
                topics=self.topic, partitions=self.partition, start=start
            )
            tables["lso_timeline"] = cluster.lso_timeline(topics=self.topic, partitions=self.partition, start=start)
        ids = sorted({row["transactional_id"] for row in findings if row["transactional_id"]})
        events, problems = _coordinators(lambda: cluster.transaction_log(transactional_ids=ids)) if ids else (None, [])
        return tables | {"transaction_log": events}, [*([sample["error"]] if sample["error"] else []), *problems]


def sampled_log_transactions(producers: Iterable[Row], sample_times: Iterable[dt.datetime]) -> list[Row]:
    """Transactions of a recording: from the first sample in which each was open to the first without it.

    Parameters
    ----------
    producers
        Rows of ``schema.PRODUCERS`` of one partition, of all samples.
    sample_times
        Times of the partition's samples.

    Returns
    -------
    list of Row
        Rows of ``schema.LOG_TRANSACTIONS``; one that ended between two samples has no outcome, but an `error`.
    """
    by_transaction: dict[tuple[int, int | None, int], list[Row]] = {}
    for row in producers:
        if row["current_txn_start_offset"] is not None and row["producer_id"] is not None:
            key = row["producer_id"], row["producer_epoch"], row["current_txn_start_offset"]
            by_transaction.setdefault(key, []).append(row)
    times = sorted(sample_times)
    log_transactions: list[Row] = []
    for (producer_id, epoch, start), rows in by_transaction.items():
        first, last = (bound(row["observed_at"] for row in rows) for bound in (min, max))
        end = next((time for time in times if time > last), None)
        log_transactions.append(
            {
                **dict.fromkeys(LOG_TRANSACTIONS.names),
                **{name: rows[0][name] for name in ("topic", "partition", "broker_id")},
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "first_offset": start,
                "start": first,
                "start_clock": "broker",
                "end": end,
                "outcome": "open" if end is None else None,
                "error": None if end is None else "SAMPLED: it ended between two samples",
            }
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


def _of_recording(recording: Recording, topic: str, partition: int) -> Tables:
    findings = rows_of(recording.findings(topics=[topic], partitions=[partition]), FINDINGS)
    partitions = _of_place(recording.history("partitions"), PARTITIONS, topic, partition)
    producers = _of_place(recording.history("producers"), PRODUCERS, topic, partition)
    owners = {row["producer_id"] for row in (*producers, *findings) if row["producer_id"] is not None}
    transactions = [
        row for row in rows_of(recording.history("transactions"), TRANSACTIONS) if row["producer_id"] in owners
    ]
    if not partitions and not findings:
        raise NotFound(f"The recording has no sample of {topic}-{partition}.")
    return {
        "log_transactions": sampled_log_transactions(producers, [row["observed_at"] for row in partitions]),
        "partitions": partitions,
        "findings": findings,
        "transaction_log": _as_events(transactions),
    }


def _of_place(frame: Any, table: Any, topic: str, partition: int) -> list[Row]:
    return rows_of(frame[(frame["topic"] == topic) & (frame["partition"] == partition)], table)


def _as_events(transactions: Iterable[Row]) -> list[Row]:
    """States in samples, as records of a coordinator; their offset is their index in time."""
    known = [row for row in transactions if row["state"] is not None and row["error"] is None]
    names = set(TRANSACTION_LOG.names) & set(TRANSACTIONS.names) - {"error"}
    events: list[Row] = []
    for number, row in enumerate(sorted(known, key=lambda row: row["observed_at"])):
        begun = row["start_time"] if row["state"] == "Ongoing" else None
        event: dict[str, Any] = dict.fromkeys(TRANSACTION_LOG.names)
        event |= {name: row[name] for name in names} | {"offset": number, "timestamp": begun or row["observed_at"]}
        events.append(event | {"last_update_time": event["timestamp"], "tombstone": False})
    return _changes(events)


def _changes(events: Sequence[Row]) -> list[Row]:
    """Events without repetitions of the state of the same id."""
    last: dict[str, object] = {}
    changed = []
    for row in events:
        state = row["state"], row["producer_epoch"], row["start_time"]
        if last.get(row["transactional_id"]) != state:
            changed.append(row)
        last[row["transactional_id"]] = state
    return changed


def _coordinators(read: Callable[[], Any]) -> tuple[Any, list[str]]:
    try:
        return read(), []
    except ToolkitError as error:
        return None, [f"The coordinator's records could not be read: {error}"]
