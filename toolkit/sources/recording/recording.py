"""`Recording`: the tables of a live cluster at a point in time, and over time.

It is a folder of Parquet files per table, readable while a recorder writes. A name always stands for the same bytes,
and says which samples a file has:

``20261121T095830000.parquet``
    One sample, by its due time.
``20261121T09.1.parquet``, ``20261121.2.parquet``
    All samples of an hour or a day, of merges 1 and 2. A file replaces those of its time that have a lower number, or
    none. They are deleted next, and a kill may leave some of them.
``20261121T090100000.2.parquet``
    A sample written after merge 2, so that none of these replaces it.
``00000000.empty.parquet``
    The columns without rows, so that an empty table can be read as well.

So a reader that opens all files of `current_files` reads every row once, unless one is gone, merged or expired: list
again.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.analysis.diagnosis.decision import decide_unknown
from toolkit.analysis.diagnosis.evidence_text import at as at_time
from toolkit.analysis.diagnosis.evidence_text import scope
from toolkit.analysis.diagnosis.observation import BrokersTime, Coverage, Observation
from toolkit.analysis.findings_over_time import (
    LATE,
    observation_times,
    observed_holds,
    over_time,
    with_earlier,
    without_short,
)
from toolkit.analysis.log.offset_status import visibility_reason
from toolkit.analysis.transaction_owners import owner_clauses, transaction_owners
from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC, coordinator_partition
from toolkit.schema import RECORDED, Row
from toolkit.schema.coerce import OffsetSpec, in_utc
from toolkit.schema.live import (
    Coordinator,
    Finding,
    GroupLag,
    IdOwner,
    OffsetVisibility,
    Partition,
    Producer,
    Transaction,
    open_starts,
)
from toolkit.schema.recorded import LateTransaction, LsoHold, RecordedSample
from toolkit.schema.table import EPOCH, TransactionKey, utc_now
from toolkit.schema.verdict import Verdict
from toolkit.sources.diagnose import EvidenceSource, LogReading, diagnose
from toolkit.sources.source import RECORDING, Source, TableArguments, implements, requested_partitions

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


EMPTY = "00000000.empty.parquet"
HIDDEN = "."  # prefix that Spark, pyarrow's datasets and globs ignore
NAME = re.compile(r"(\d{8})(?:T(\d{2})(\d{7})?)?(?:\.(\d+))?\.parquet")
DAY, HOUR, SAMPLE = "%Y%m%d", "%Y%m%dT%H", "%Y%m%dT%H%M%S%f"
ONE_MINUTE = dt.timedelta(minutes=1)
ONE_HOUR, ONE_DAY, AN_INSTANT = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(milliseconds=1)
MAX_RETRIES, RETRY_BACKOFF_S = 20, 0.05  # files are removed once an hour


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table."""

    # start, stop: due times of its samples: from `start` to before `stop`
    start: dt.datetime
    stop: dt.datetime
    merges: int  # number of the merge that wrote it; of a sample, the last one before it
    name: str

    @property
    def is_sample(self) -> bool:
        """Whether it has one sample, not merged yet."""
        return self.stop - self.start == AN_INSTANT


def table_file(name: str) -> TableFile | None:
    """The samples of a file, by its name; null for other files and the empty one."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    day, hour, rest, merges = match.groups()
    if hour is None:
        text, form, length = day, DAY, ONE_DAY
    elif rest is None:
        text, form, length = f"{day}T{hour}", HOUR, ONE_HOUR
    else:
        text, form, length = f"{day}T{hour}{rest}", SAMPLE, AN_INSTANT
    try:
        start = dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return TableFile(start, start + length, int(merges or 0), name)


def floor_time(time: dt.datetime, interval: dt.timedelta) -> dt.datetime:
    """The last multiple of an interval since 1970 that is not after a time."""
    return EPOCH + (time - EPOCH) // interval * interval


def sample_name(due: dt.datetime, merges: int = 0) -> str:
    """File name of a sample."""
    return f"{due.astimezone(dt.UTC):{SAMPLE}}"[:-3] + (f".{merges}.parquet" if merges else ".parquet")


def merged_name(start: dt.datetime, *, whole_day: bool, merges: int) -> str:
    """File name of a whole day, or of an hour."""
    return f"{start.astimezone(dt.UTC):{DAY if whole_day else HOUR}}.{merges}.parquet"


def is_recording(directory: Path) -> bool:
    """Whether a folder is a recording."""
    return (directory / "samples").is_dir()


def current_files(names: Callable[[], Iterable[str]]) -> list[TableFile]:
    """The files to read of a table, by time: those that no other one replaces.

    `names`: lists the names in its folder.
    """
    listed = set(names())
    while (again := set(names())) != listed:
        listed = again  # a listing may lack both a file that was added meanwhile and those that it replaces
    files = [file for file in map(table_file, listed) if file is not None]
    current: list[TableFile] = []
    enclosing: list[TableFile] = []
    for file in sorted(files, key=lambda each: (each.start, each.start - each.stop, -each.merges)):
        enclosing = [each for each in enclosing if each.stop > file.start]
        if not any(each.stop >= file.stop and each.merges > file.merges for each in enclosing):
            current.append(file)
            enclosing.append(file)
    return current


def files_of(directory: Path, table: str) -> list[TableFile]:
    """The files to read of a table, by time. Raises FileNotFoundError if it does not exist."""
    return current_files(functools.partial(os.listdir, directory / table))


def read(
    directory: Path,
    table: str,
    *,
    start: dt.datetime | None = None,
    stop: dt.datetime | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Rows of a table, of samples due from `start` to before `stop`, in the declared order.

    Raises NotFound if files keep disappearing while they are read, or the table does not exist; DecodeError if one is
    damaged; a killed recorder leaves none.
    """
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    schema, sampled_at = RECORDED[table].arrow_schema, pc.field("sampled_at")
    condition = pc.scalar(True)
    if start is not None:
        condition = condition & (sampled_at >= start)
    if stop is not None:
        condition = condition & (sampled_at < stop)
    order = [(name, "ascending") for name in RECORDED[table].sort if columns is None or name in columns]
    for _ in range(MAX_RETRIES):
        try:
            files = [
                str(directory / table / file.name)
                for file in files_of(directory, table)
                if (stop is None or file.start < stop) and (start is None or file.stop > start)
            ]
            dataset = ds.dataset(files, schema=schema, format="parquet") if files else ds.dataset(schema.empty_table())
            rows = dataset.to_table(filter=condition, columns=None if columns is None else list(columns))
            rows.validate(full=True)  # Arrow takes any bytes for text, and Python would fail at them
            return rows.sort_by(order)
        except FileNotFoundError as error:
            missing = error
            time.sleep(RETRY_BACKOFF_S)
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(directory / table, error) from error
    raise NotFound(f"{directory / table} cannot be read: {missing}.", do="Try again.")


def is_damage(error: BaseException) -> bool:
    """Whether it is Arrow's error for bytes that it cannot read; one of the operating system has a number."""
    from pyarrow import ArrowException

    return isinstance(error, ArrowException) or (isinstance(error, OSError) and error.errno is None)


def damaged(folder: Path, error: BaseException) -> DecodeError:
    """The error of a folder with a damaged file."""
    reason = str(error).splitlines()[0].rstrip(".")
    return DecodeError(f"A file in {folder} is damaged: {reason}.", position=0, do="Move it out of the recording.")


def sample_times(
    directory: Path, start: dt.datetime | None = None, stop: dt.datetime | None = None
) -> list[dt.datetime]:
    """Due times of complete samples, in order."""
    times: list[dt.datetime] = read(directory, "samples", start=start, stop=stop, columns=["sampled_at"])[
        "sampled_at"
    ].to_pylist()
    return times


BEFORE, AFTER = "before", "after"  # the coordinators' responses


def recorded_sample(
    observation: Observation, *, due: dt.datetime, interval_ms: int, seconds: float, cluster_id: str | None
) -> RecordedSample:
    """The row of ``samples`` of an observation that was `due` at a time and took some `seconds`."""
    coverage = observation.coverage
    return RecordedSample(
        sampled_at=due,
        observed_at=observation.observed_at,
        brokers_time=observation.brokers_time.time,
        brokers_clock=observation.brokers_time.clock,
        cluster_id=cluster_id,
        interval_ms=interval_ms,
        seconds=seconds,
        brokers=tuple(coverage.brokers),
        proofs=tuple(coverage.proofs),
        gaps=tuple(coverage.gaps),
        topic_gaps=tuple(coverage.topic_gaps),
        absent_partitions=tuple(tp for tp, error in observation.absent.items() if error is None),
        first_batches=tuple(observation.first_batches),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSamples:
    """The newest samples up to a time."""

    sample: RecordedSample  # the newest successful one
    before: RecordedSample | None  # the successful one before it; null if there is none
    failed: Sequence[RecordedSample]  # failed ones after `sample`, in order


def find_samples(directory: Path, *, at: dt.datetime | None = None) -> FoundSamples:
    """Find the samples of a time; null for the newest. Raises NotFound if there is no successful sample by then."""
    failed: list[RecordedSample] = []
    successful: list[RecordedSample] = []
    stop = None if at is None else at + AN_INSTANT
    # Newest first, one file at a time, since one or two rows suffice.
    while len(successful) < 2 and (
        files := [file for file in files_of(directory, "samples") if stop is None or file.start < stop]
    ):
        start = files[-1].start
        for sample in reversed(RecordedSample.of_table(read(directory, "samples", start=start, stop=stop))):
            if sample.error is None and (missing := missing_rows(directory, sample)) is not None:
                sample = replace(sample, error=missing)
            if sample.error is None:
                successful.append(sample)
            elif not successful:
                failed.insert(0, sample)
        stop = start
    if not successful:
        when = "" if at is None else f" by {at.isoformat()}"
        raise NotFound(
            f"No successful sample in {directory}{when}.",
            do="Recording.samples() shows when, and why the others failed.",
        )
    return FoundSamples(sample=successful[0], before=successful[1] if len(successful) > 1 else None, failed=failed)


OTHER_TABLES = [name for name in RECORDED if name != "samples"]  # in the order of `RecordedSample.row_counts`
COUNTED = ("sampled_at", "row_counts", "error")
INCOMPLETE = "INCOMPLETE: it lacks rows of {}, as in a copy made while the recorder wrote; copy samples before the rest"


def missing_rows(directory: Path, sample: RecordedSample) -> str | None:
    """The error of a sample that lacks rows; null for one that is complete, or of an older recording."""
    due, lacking = sample.sampled_at, []
    for name, count in zip(OTHER_TABLES, sample.row_counts or (), strict=False):
        if read(directory, name, start=due, stop=due + AN_INSTANT, columns=["sampled_at"]).num_rows != count:
            lacking.append(name)
    return INCOMPLETE.format(", ".join(lacking)) if lacking else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An observation of a cluster and its findings at one time."""

    due: dt.datetime  # when it was due; `sampled_at` of every row
    row: RecordedSample  # its row of ``samples``; if it failed, `error` says why
    findings: Sequence[Finding] = ()
    late_transactions: Sequence[LateTransaction] = ()
    # the newest observation, of this sample or an earlier one; the next sample is diagnosed with it
    observation: Observation | None = None
    # when each open transaction was first observed
    first_seen: Mapping[TransactionKey, dt.datetime] = field(default_factory=dict)
    # what the logs showed of open transactions, for the next sample
    log_readings: Mapping[TransactionKey, LogReading] = field(default_factory=dict)
    # the lag of groups with offsets beyond a held LSO; null if they were not requested or could not be read
    held_groups: Sequence[GroupLag] | None = None

    @property
    def error(self) -> str | None:
        """Why the sample failed, as ``"NAME: sentence"``; null on success."""
        return self.row.error

    @property
    def tables(self) -> Mapping[str, Sequence[Row]]:
        """Its rows by the names of ``schema.RECORDED``; ``samples`` has one, the others have none if it failed."""
        found, due = self.observation, self.due
        tables: dict[str, list[Row]] = {name: [] for name in RECORDED}
        if self.error is None and found is not None:
            after = (AFTER, found.partitions_after, found.producers_after)
            for phase, partitions, producers in ((BEFORE, found.partitions, found.producers), after):
                tables["partitions"] += [{"sampled_at": due, "phase": phase, **each.row()} for each in partitions]
                tables["producers"] += [{"sampled_at": due, "phase": phase, **each.row()} for each in producers]
            tables["transactions"] = [{"sampled_at": due, **each.row()} for each in found.transactions]
            tables["findings"] = [{"sampled_at": due, **each.row()} for each in self.findings]
            tables["late_transactions"] = [each.row() for each in self.late_transactions]
        counts = tuple(len(tables[name]) for name in OTHER_TABLES)
        return tables | {"samples": [replace(self.row, row_counts=counts).row()]}


def read_sample(directory: Path, sample: RecordedSample, *, idle_producers: bool = True) -> tuple[Sample, Observation]:
    """A successful sample, as far as it was recorded, and its observation.

    `idle_producers`: include producers without an open transaction: most of the rows, and no verdict needs them.
    Raises NotFound if it expires meanwhile.
    """
    import pyarrow.compute as pc

    due = sample.sampled_at
    partitions, producers, transactions, findings, late = (
        read(directory, name, start=due, stop=due + AN_INSTANT)
        for name in ("partitions", "producers", "transactions", "findings", "late_transactions")
    )
    if not idle_producers:
        selected = pc.or_(pc.is_valid(producers["current_txn_start_offset"]), pc.is_valid(producers["error"]))
        producers = producers.filter(selected)
    if not sample_times(directory, due, due + AN_INSTANT):
        raise NotFound(f"The sample of {due.isoformat()} expired while it was read.", do="Try again.")
    before, after = pc.field("phase") == BEFORE, pc.field("phase") == AFTER
    observation = Observation(
        partitions=Partition.of_table(partitions.filter(before)),
        producers=Producer.of_table(producers.filter(before)),
        transactions=Transaction.of_table(transactions),
        partitions_after=Partition.of_table(partitions.filter(after)),
        producers_after=Producer.of_table(producers.filter(after)),
        coverage=Coverage(
            brokers=sample.brokers or (),
            proofs=sample.proofs or (),
            gaps=sample.gaps or (),
            topic_gaps=sample.topic_gaps or (),
        ),
        observed_at=sample.observed_at,
        brokers_time=BrokersTime.recorded(sample.brokers_time, sample.brokers_clock),
        absent=dict.fromkeys(sample.absent_partitions or ()),
        first_batches=sample.first_batches or (),
    )
    recorded = Sample(
        due=due,
        row=sample,
        findings=Finding.of_table(findings),
        late_transactions=LateTransaction.of_table(late),
        observation=observation,
    )
    return recorded, observation


NOT_RECORDED = "NOT_RECORDED: a recording has no records; only the cluster or its files show the content of an offset"


def select_partitions(
    observation: Observation,
    topics: Sequence[str] | None,
    partitions: Sequence[int] | Sequence[tuple[str, int]] | None,
    *,
    broker_id: int | None = None,
) -> Observation:
    """An observation of the selected partitions; with `broker_id`, of those with a replica on it.

    Raises NotFound if the observation does not have one of them. Raises UsageError if `partitions` are numbers without
    topics, or pairs with topics.
    """
    topics = [topics] if isinstance(topics, str) else topics
    if topics is None and partitions is None and broker_id is None:
        return observation
    replicas = {each.tp: each.replicas or () for each in observation.partitions}
    name = f"The sample of {observation.observed_at.isoformat(timespec='seconds')}"
    for topic in topics or ():
        if all(tp.topic != topic for tp in replicas):
            raise NotFound(f"{name} has no topic {topic!r}.", do="Check its name, or read a later sample.")
    selected = {tp for tp in replicas if topics is None or tp.topic in topics}
    if partitions is not None:
        selected = set(requested_partitions(topics, partitions))
        for tp in sorted(selected - replicas.keys()):
            raise NotFound(f"{name} has no partition {tp}.", do="Check its number, or read a later sample.")
    if broker_id is not None:
        known = {*observation.coverage.brokers}.union(*replicas.values())
        if broker_id not in known:
            brokers = ", ".join(map(str, sorted(known)))
            raise NotFound(f"{name} has no broker {broker_id}, only {brokers}.", do="Name one of these.")
        selected = {tp for tp in selected if broker_id in replicas[tp]}

    hidden_topics = replace(observation.coverage, topic_gaps=())  # a gap of the whole cluster only
    arguments = TableArguments(topics=topics, partitions=partitions, broker_id=broker_id)
    return replace(observation.on(selected), coverage=hidden_topics, selection=arguments.selection(selected))


def named_transactions(observation: Observation, transactional_ids: Sequence[str]) -> Iterator[Transaction]:
    """The transactions of exactly these ids; one that was not recorded has `error`."""
    found = {each.transactional_id: each for each in observation.transactions}
    why = "TRANSACTIONAL_ID_NOT_FOUND: this id had no open transaction, so its state was not recorded"
    if gaps := observation.coverage.gaps:
        why = f"NOT_OBSERVED: its coordinator may not have answered; missing: {'; '.join(gaps)}"
    for name in dict.fromkeys(transactional_ids):
        yield found.get(name) or Transaction(
            transactional_id=name, source="ListTransactions", observed_at=observation.observed_at, error=why
        )


def coordinators(
    observation: Observation, transactional_ids: Iterable[str], groups: Iterable[str]
) -> Iterator[Coordinator]:
    """Coordinators of ids and groups: partition by hash, its leader, and the broker that returned an id."""
    returned_by = {each.transactional_id: each.coordinator_id for each in observation.transactions}
    keys = [("transaction", STATE_TOPIC, name, returned_by.get(name)) for name in dict.fromkeys(transactional_ids)]
    keys += [("group", OFFSETS_TOPIC, name, None) for name in dict.fromkeys(groups)]
    for key_type, topic, key, coordinator_id in keys:
        leaders = {each.partition: each.leader for each in observation.partitions if each.topic == topic}
        partition = coordinator_partition(key, len(leaders)) if leaders else None
        leader = None if partition is None else leaders[partition]
        yield Coordinator(
            key_type=key_type,
            key=key,
            topic=topic,
            partition=partition,
            leader=leader,
            coordinator_id=coordinator_id,
            agrees=None if leader is None or coordinator_id is None else leader == coordinator_id,
            broker_id=coordinator_id,
            observed_at=observation.observed_at,
            error=None if leaders else f"UNKNOWN_TOPIC_OR_PARTITION: {topic} is not in the recording",
        )


def recorded_visibility(observation: Observation, offset: int) -> OffsetVisibility:
    """Where an offset was. `observation`: a sample's observation of one partition."""
    partition = (*observation.partitions, *observation.partitions_after)[-1]
    found = OffsetVisibility.of_record(partition, offset=offset, reason="")
    ends = {
        "deleted": partition.log_start_offset is not None and offset < partition.log_start_offset,
        "beyond_log_end": partition.log_end_offset is not None and offset >= partition.log_end_offset,
        "beyond_high_watermark": partition.high_watermark is not None and offset >= partition.high_watermark,
    }
    if (status := next((name for name, is_there in ends.items() if is_there), None)) is not None:
        outside = replace(found, status=status, read_committed=False, read_uncommitted=False)
        return replace(outside, reason=visibility_reason(outside))
    found = replace(found, error=partition.error or NOT_RECORDED)
    lso = partition.last_stable_offset
    if lso is None:
        return replace(found, reason="The LSO at that time is unknown.")
    if offset < lso:
        received = "read_committed consumers received it unless it is a marker or was aborted."
        return replace(found, reason=f"It was below the LSO {lso}: {received}")
    producers = (*observation.producers, *observation.producers_after)
    opened = open_starts(producers)
    unread = next((each.error for each in producers if each.error), None)
    why = "and no transaction was open, so the LSO waited for replication"
    if unread:
        found, why = replace(found, error=unread), "and what held it was not read"
    if opened:
        holder, first = min(opened.items(), key=itemgetter(1))
        found = replace(found, holder_producer_id=holder, holder_first_offset=first)
        why = f"held by the transaction of producer {holder} that began at offset {first}"
    return replace(found, read_committed=False, reason=f"It was beyond the LSO {lso}, {why}.")


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
        self._sampled_at: dt.datetime | None = None  # of the sample that was read for findings
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

    @property
    def scope_text(self) -> str | None:
        """As of every source, with the time of the sample: its recorder may have stopped long ago."""
        text = super().scope_text
        return None if text is None or self._sampled_at is None else f"{text}; sample of {at_time(self._sampled_at)}"

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
        from toolkit.sources.live.transactions import TransactionFilters  # imports kafka-python

        filters = TransactionFilters.of(arguments)
        observation = self._observe(arguments.at)
        if arguments.transactional_ids is not None:
            return named_transactions(observation, arguments.transactional_ids)
        now = observation.brokers_time
        found = [each for each in observation.transactions if each.error or filters.match(each, now)]
        return found + (filters.unfiltered(now) if any(each.start_time for each in found) else [])

    @implements(Source.coordinators)
    def coordinators(self, arguments: TableArguments) -> Iterable[Coordinator]:
        sample, observation = read_sample(self.path, self._find_samples(arguments.at).sample)
        transactional_ids, groups = arguments.transactional_ids, arguments.groups
        if transactional_ids is None:
            transactional_ids = [each.transactional_id for each in observation.transactions if each.transactional_id]
        if groups is None:
            groups = [group for each in sample.findings for group in each.groups_held or ()]
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
        self._sampled_at = found.sample.sampled_at
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
        newest = found.sample
        doubts = self._newer(newest) if arguments.at is None else not_sampled(newest, in_utc(arguments.at))
        return [*findings, *(failed_samples(found.failed) or doubts)]

    def unreachable(self) -> list[Finding]:
        """A finding about the whole cluster if its newest samples failed: what is open since is not known."""
        found = self._find_samples(None)
        return [*self._newer(found.sample), *failed_samples(found.failed)]

    def _newer(self, newest: RecordedSample) -> list[Finding]:
        import pyarrow.compute as pc

        columns = ["sampled_at", "brokers_time", "brokers_clock"]
        rows = read(self.path, "samples", stop=newest.sampled_at, columns=columns)
        of_clock = rows.filter(pc.equal(rows["brokers_clock"], newest.brokers_clock or ""))
        latest = pc.max(of_clock["brokers_time"]).as_py()
        return newer_samples(newest.sampled_at, brokers_time=newest.brokers_time, latest=latest)

    def _over_time(
        self,
        topics: Sequence[str] | None,
        partitions: TopicPartitions | None,
        start: dt.datetime | None,
        stop: dt.datetime | None,
    ) -> list[Finding]:
        """One finding for each transaction and verdict; those about the whole cluster are always included."""
        samples = RecordedSample.of_table(self._history("samples", start, stop))
        findings = self._history("findings", start, stop)  # then: a sample written meanwhile ends nothing
        if topics is not None or partitions is not None:
            selected = set(topics or ()) if partitions is None else set(requested_partitions(topics, partitions))
            tps = zip(findings["topic"].to_pylist(), findings["partition"].to_pylist(), strict=True)
            findings = findings.filter([tp[0] is None or not selected.isdisjoint((tp, tp[0])) for tp in tps])
        if len(clusters := {each.cluster_id for each in samples} - {None}) > 1:
            raise UsageError(
                f"The samples of {self.path} are of the clusters {', '.join(sorted(map(str, clusters)))}.",
                means="What is open in one would have ended by the next sample of the other.",
                do="Select the time of one of them, or move its samples to a recording of its own.",
            )
        return over_time(findings, observation_times(samples))

    def _history(self, table: str, start: dt.datetime | None, stop: dt.datetime | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        if table not in schema.RECORDED:
            raise UsageError(f"A recording has no table {table!r}.", do=f"Use {', '.join(schema.RECORDED)}.")
        start, stop = (None if time is None else in_utc(time) for time in (start, stop))
        complete = sample_times(self.path, start, stop)  # first, to leave out samples written meanwhile
        rows = read(self.path, table, start=start, stop=stop)
        rows = rows.filter(pc.is_in(rows["sampled_at"], value_set=pa.array(complete, rows["sampled_at"].type)))
        if table != "samples" or not complete:  # a recorder that begins has made the folder of samples first
            return rows
        found = Counter(read(self.path, "findings", start=start, stop=stop, columns=["sampled_at"])[0].to_pylist())
        of_findings = OTHER_TABLES.index("findings")
        errors = [
            INCOMPLETE.format("findings") if error is None and counts and counts[of_findings] != found[due] else error
            for due, counts, error in zip(*(rows[name].to_pylist() for name in COUNTED), strict=True)
        ]
        return rows.set_column(rows.schema.get_field_index("error"), "error", pa.array(errors, pa.string()))

    def _find_samples(self, at: dt.datetime | None) -> FoundSamples:
        return find_samples(self.path, at=None if at is None else in_utc(at))

    def _observe(self, at: dt.datetime | None) -> Observation:
        return read_sample(self.path, self._find_samples(at).sample)[1]


class RecordedEvidence(EvidenceSource):
    """What the samples of a recording give to a diagnosis: no logs, but the findings of their time."""

    def __init__(self, path: Path, found: FoundSamples, arguments: TableArguments) -> None:
        sample, observation = read_sample(path, found.sample, idle_producers=False)
        self._path = path
        self._before = found.before
        self._sample = found.sample
        self._transactions = observation.transactions
        self.observation = select_partitions(
            observation, arguments.topics, arguments.partitions, broker_id=arguments.broker_id
        )
        self.recorded = sample.findings if arguments.log_evidence else []
        everything = arguments.is_everything and arguments.broker_id is None
        self.requested = () if everything else [each.tp for each in self.observation.partitions]

    @property
    def cluster_id(self) -> str | None:
        return self._sample.cluster_id

    def observations(self) -> Sequence[Observation]:
        earlier, own = self._before, self._sample.cluster_id
        if earlier is None or (None not in (own, earlier.cluster_id) and own != earlier.cluster_id):
            return with_earlier(self.observation, None)  # another cluster's has the same numbers
        return with_earlier(self.observation, read_sample(self._path, earlier, idle_producers=False)[1])

    def owners(self, ids: Collection[str], observations: Sequence[Observation]) -> Mapping[str, str | None]:
        return owner_clauses(self._transactions)


def failed_samples(samples: Sequence[RecordedSample]) -> list[Finding]:
    """A finding about the whole cluster if there are samples that failed after the last successful one, in order."""
    if not samples:
        return []
    first, last = samples[0], samples[-1]
    count, since = len(samples), at_time(first.sampled_at)
    failed = f"the sample of {since}" if count == 1 else f"{count} samples since {since}"
    unreachable = decide_unknown(
        f"What is open now is not known: {failed} failed.",
        remedy="Diagnose the live cluster.",
        missing=tuple(dict.fromkeys(each.error for each in samples if each.error)),
        is_open=False,
    )
    return [replace(unreachable.finding(observed_at=last.observed_at), error=last.error)]


def not_sampled(sample: RecordedSample, time: dt.datetime) -> list[Finding]:
    """A finding about the whole cluster if the newest sample before a time is long before it."""
    interval = (sample.interval_ms or 0) * AN_INSTANT
    if time - sample.sampled_at <= max(LATE * interval, ONE_MINUTE):
        return []
    unknown = decide_unknown(
        f"There is no sample from {at_time(sample.sampled_at)} to {at_time(time)}: what was open then is not known.",
        remedy="Select a time of which there is a sample.",
        missing=("a sample of that time",),
        is_open=False,
    )
    return [unknown.finding(observed_at=sample.observed_at)]


def newer_samples(
    newest: dt.datetime, *, brokers_time: dt.datetime | None, latest: dt.datetime | None
) -> list[Finding]:
    """A finding about the whole cluster if the newest sample may be older than another, as the clock was set back.

    `newest`: when it was due. `brokers_time`, `latest`: its time of a broker, and the latest one of that broker's clock
        or record in any sample.
    """
    now = utc_now()
    if newest > now + ONE_MINUTE:
        why = "after this machine's time: a later one may have an earlier time"
    elif brokers_time is not None and latest is not None and latest > brokers_time + ONE_MINUTE:
        why = f"at {at_time(brokers_time)} by the brokers' clocks, and that of an earlier one is {at_time(latest)}"
    else:
        return []
    ahead = decide_unknown(
        f"The newest sample is of {at_time(newest)}, {why}.",
        remedy="Diagnose the live cluster.",
        missing=("a clock of the recorder that was not set back, or one of this machine that is not behind",),
        is_open=False,
    )
    return [ahead.finding(observed_at=now)]


def _time(bound: OffsetSpec | None) -> dt.datetime | None:
    if bound is None or isinstance(bound, dt.datetime):
        return bound
    raise UsageError(
        f"{bound!r} is not a time: the samples of a recording are selected by time.", do="Pass a time, as in samples()."
    )
