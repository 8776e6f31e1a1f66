"""Log directories as a source of the pipeline: the new data of their logs, and the current findings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.session import SparkSession as ClassicSession

from toolkit.errors import NotFound
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS
from toolkit.sources.logdir.contents import NO_ASSERTIONS, FileAssertions, found_in
from toolkit.spark.datasources.data_sources import register
from toolkit.spark.datasources.log_options import PROOF, LogListing, read_options, schema_of
from toolkit.spark.datasources.log_reader import LogReader, listing_rows
from toolkit.spark.datasources.reader_options import local_path
from toolkit.spark.pipeline.log_plan import LogPlan, plan_logs
from toolkit.spark.pipeline.log_renames import assumptions
from toolkit.spark.pipeline.log_work import AT_ONCE, WorkOptions
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState, records_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = 64 << 20
"""Maximum bytes of logs that the driver reads itself, in less time than Spark's jobs take to start."""

MANY = 1000
"""Logs that tasks read sooner, however small: of each, most of the time is that of Python, which uses one core here."""

ON_ONE_MACHINE = 128
"""Factor of `SMALL` for a local master: there the driver has as many cores as Spark's tasks."""


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
        return {row.log: row for row in self.logs} | {records_name(row): row for row in self.logs if row.is_best}

    @property
    def assumptions(self) -> Sequence[str]:
        """What is assumed because ids are missing."""
        return assumptions(row.log for row in self.logs)

    def plans(self, states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
        """How to read the new data of each changed log."""
        # Most partitions of __transaction_state are empty and need no state. A log without begin cannot be read now.
        listed = {
            name: row
            for name, row in self.listings.items()
            if not name.endswith(IDS) or row.bytes or row.begin is None or name in states
        }
        return plan_logs(listed, states)

    def options(self, *, min_held_ms: int, with_batches: bool) -> WorkOptions:
        """How to read and fold them."""
        return WorkOptions(min_held_ms=min_held_ms, with_batches=with_batches)

    @property
    def reads_here(self) -> bool:
        """Whether this process reads the logs: sooner than Spark's jobs would."""
        if not isinstance(self.spark, ClassicSession) or len(self.logs) > MANY:
            return False
        is_local = str(self.spark.sparkContext.master).startswith("local")
        return self.bytes_listed <= SMALL * (ON_ONE_MACHINE if is_local else 1)

    def current_findings(self) -> pa.Table:
        """The findings at the time that the files prove."""
        options = assertion_options(self.assertions)
        if self.topics is not None:
            options["subscribe"] = json.dumps(list(self.topics))
        found = self._read("findings", **options) if self.reads_here else self._load("findings", **options).toArrow()
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
        with ThreadPoolExecutor(AT_ONCE) as pool:
            batches = pool.map(lambda work: list(reader.read(work)), reader.partitions())
            return pa.Table.from_batches(chain.from_iterable(batches), reader.columns)

    def _load(self, table: str, **options: str) -> DataFrame:
        return load(self.spark, table, self.paths, **options)


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
