"""Log directories as a source of the pipeline: the new data of their logs, and the current findings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.session import SparkSession as ClassicSession

from toolkit.errors import NotFound
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS
from toolkit.sources.logdir.contents import NO_ASSERTIONS, FileAssertions, found_in
from toolkit.spark.datasources.data_sources import register
from toolkit.spark.datasources.log_options import PROOF, LogListing, read_options, schema_of
from toolkit.spark.datasources.log_reader import LogReader, listing_rows
from toolkit.spark.datasources.reader_options import local_path
from toolkit.spark.pipeline.log_renames import assumptions
from toolkit.spark.pipeline.pipeline_source import LogPlan, plan_logs, read_here
from toolkit.spark.pipeline.tables.staging_table import IDS, LOG, StoredState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = 64 << 20
"""Maximum bytes of logs that the driver reads itself, in less time than Spark's jobs take to start."""

ON_ONE_MACHINE = 128
"""Factor of `SMALL` for a local master: there the driver has as many cores as Spark's tasks."""

MAX_PARTIALS_BYTES = 256 << 20
"""Of the table partial_transactions in the driver; beyond it, tasks read the logs again, in bounded memory."""


def assertion_options(assertions: FileAssertions) -> dict[str, str]:
    """Assertions as options of ``kafka_log_dir``."""
    options = {"consistentCopy": "true"} if assertions.consistent_copy else {}
    if assertions.as_of is not None:
        options["asOf"] = assertions.as_of.isoformat()
    if assertions.txn_state_partitions is not None:
        options["txnStatePartitions"] = str(assertions.txn_state_partitions)
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Log directories, as listed once."""

    spark: SparkSession  # the session
    paths: Sequence[str]  # log directories, partition folders, segments, texts
    topics: Sequence[str] | None  # only these topics, and ``__transaction_state``; null for all
    assertions: FileAssertions  # what the caller asserts
    logs: Sequence[LogListing]  # of these topics

    what = "logs"

    @property
    def is_consistent(self) -> bool:
        """Whether the files are asserted to be a consistent copy."""
        return self.assertions.consistent_copy

    @property
    def listed(self) -> int:
        """Number of logs."""
        return len(self.logs)

    @property
    def bytes_listed(self) -> int:
        """Total size of the logs."""
        return sum(row.bytes or 0 for row in self.logs)

    @property
    def signature(self) -> str:
        """Changes when a log, a checkpoint or the selection changes."""
        files = sorted([row.log, row.listing or "", row.checkpoints or ""] for row in self.logs)
        arguments = [list(self.paths), self.topics and list(self.topics), assertion_options(self.assertions)]
        return hashlib.sha256(json.dumps([arguments, files]).encode()).hexdigest()[:16]

    @property
    def listings(self) -> Mapping[str, LogListing]:
        """Each log, as listed."""
        return {row.log + ending: row for row in self.logs for ending in ("", IDS)}

    @property
    def assumptions(self) -> Sequence[str]:
        """What is assumed because ids are missing."""
        return assumptions(row.log for row in self.logs)

    def plans(self, states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
        """How to read the new data of each changed log."""
        best = [replace(row, log=row.log + IDS) for row in self.logs if row.is_best]
        # Most partitions are empty and need no state. A log without begin cannot be read now.
        id_logs = [row for row in best if row.bytes or row.begin is None or row.log in states]
        return plan_logs([*self.logs, *id_logs], states)

    def partial_transactions(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Partial transactions of the new ranges."""
        starts, _ = _starts(plans)
        return self._load("partial_transactions", starts=json.dumps(starts)) if starts else None

    def events(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """New records of ``__transaction_state``."""
        _, starts = _starts(plans)
        if not starts:
            return None
        rows = self._load("transaction_log", starts=json.dumps(starts))
        best_frame = self.spark.createDataFrame(list(self._best.items()), f"txn_state_partition int, {LOG} string")
        return rows.join(sf.broadcast(best_frame), "txn_state_partition")

    def batches(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Headers of the new batches."""
        starts, _ = _starts(plans)
        if not starts:
            return None
        return _with_log(self._load("batches", starts=json.dumps(starts)), self.logs)

    @property
    def is_small(self) -> bool:
        """Whether this process reads all logs sooner than Spark's jobs would."""
        if not isinstance(self.spark, ClassicSession):
            return False
        is_local = str(self.spark.sparkContext.master).startswith("local")
        return self.bytes_listed <= SMALL * (ON_ONE_MACHINE if is_local else 1)

    def tables(self, plans: Mapping[str, LogPlan]) -> tuple[pa.Table, pa.Table] | None:
        """The rows of `partial_transactions` and `events`, read by this process; null if there is too much to read."""
        if not self.is_small:
            return None
        log_starts, id_starts = _starts(plans)
        partials = self._read("partial_transactions", starts=json.dumps(log_starts))
        if partials.nbytes > MAX_PARTIALS_BYTES:
            return None
        events = self._read("transaction_log", starts=json.dumps(id_starts))
        best = self._best
        logs = [best[partition] for partition in events["txn_state_partition"].to_pylist()]
        return partials, events.append_column(LOG, pa.array(logs, pa.string()))

    @property
    def _best(self) -> dict[int, str]:
        """The best replica of each partition of ``__transaction_state``: the log whose records are read."""
        return {row.partition: row.log + IDS for row in self.logs if row.is_best and row.partition is not None}

    def current_findings(self) -> pa.Table:
        """The findings at the time that the files prove."""
        options = assertion_options(self.assertions)
        if self.topics is not None:
            options["subscribe"] = json.dumps(list(self.topics))
        found = self._read("findings", **options) if self.is_small else self._load("findings", **options).toArrow()
        return found.cast(FINDINGS.arrow_schema)

    def proof(self) -> str:
        """What the files prove and what they do not, in one line."""
        here, options = isinstance(self.spark, ClassicSession), assertion_options(self.assertions)
        found = self._read(PROOF, **options) if here else self._load(PROOF, **options).toArrow()
        return str(found["line"][0])

    def _read(self, table: str, **options: str) -> pa.Table:
        """Read a table in this process, with the data source's reader but without Spark."""
        paths = json.dumps([local_path(path) for path in self.paths])
        reader = LogReader(read_options({"table": table, "paths": paths, **options}), schema_of(table))
        return read_here(reader)

    def _load(self, table: str, **options: str) -> DataFrame:
        return load(self.spark, table, self.paths, **options)


def _starts(plans: Mapping[str, LogPlan]) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """The start offsets of logs, and those of the records of ``__transaction_state``."""
    log_starts = {log: plan.start for log, plan in plans.items() if not log.endswith(IDS)}
    return log_starts, {log.removesuffix(IDS): plan.start for log, plan in plans.items() if log.endswith(IDS)}


def list_files(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    assertions: FileAssertions = NO_ASSERTIONS,
) -> LogFiles:
    """List log directories. Raises NotFound if the files contain no partition of a topic."""
    if isinstance(spark, ClassicSession):  # Spark's driver lists them, which is this process
        contents = found_in([local_path(path) for path in paths], assertions=assertions)
        listing = pa.concat_tables(listing_rows(contents, contents.replica_logs()))
    else:
        listing = load(spark, "listing", paths).toArrow()
    logs = LogListing.of_table(listing)
    if topics is not None:
        if missing := sorted(set(topics) - {row.topic for row in logs}):
            raise NotFound(f"The files contain no partition of topic {missing[0]!r}.")
        logs = [row for row in logs if row.topic in {*topics, STATE_TOPIC}]
    return LogFiles(spark=spark, paths=paths, topics=topics, assertions=assertions, logs=logs)


def load(spark: SparkSession, table: str, paths: Sequence[str], **options: str) -> DataFrame:
    """A table of ``kafka_log_dir``; it lists the files again."""
    register(spark)
    reader = spark.read.format("kafka_log_dir").option("table", table).options(**options)
    return reader.option("paths", json.dumps(list(paths))).load()


def _with_log(rows: DataFrame, logs: Sequence[LogListing]) -> DataFrame:
    """Rows of batches with the name of their log, by the folder of a segment, or by the text and the partition."""
    spark = rows.sparkSession
    places: dict[str | None, str] = {
        **{row.folder: row.log for row in logs},
        **{f"{row.folder}#{row.topic}-{row.partition}": row.log for row in logs},
    }
    topic_partition = (sf.coalesce(sf.col(name).cast("string"), sf.lit("None")) for name in ("topic", "partition"))
    found = rows.withColumns(
        {
            "_folder": sf.regexp_replace("file", r"[/\\][^/\\]*$", ""),
            "_text": sf.concat("file", sf.lit("#"), sf.concat_ws("-", *topic_partition)),
        }
    )
    for column in ("_folder", "_text"):
        names = spark.createDataFrame(list(places.items()), f"{column} string, {column}_log string")
        found = found.join(sf.broadcast(names), column, "left")
    return found.select(*rows.columns, sf.coalesce("_folder_log", "_text_log").alias(LOG))
