"""Log directories into the store: their segments that are new, and what the files answer now."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from toolkit.errors import NotFound
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import CHECKPOINTS, SEGMENTS, Row
from toolkit.spark.bronze import Bronze
from toolkit.spark.intake import UNREAD, Intake, log_marks, plan_log
from toolkit.spark.ledger import Ledger, Part, digest
from toolkit.spark.tables import KEPT, PART, chosen, stored
from toolkit.spark.types import spark_table
from toolkit.spark.units import (
    LOG,
    SEGMENT,
    folder_column,
    folder_of,
    log_column,
    log_id,
    part_id,
    partition_id,
    segment_column,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LogFiles", "list_files"]

BY_TOPIC = {"batches", "aborted", "snapshots", "partitions", "producers", "findings"}
TEXT = "text"
ODD = {TEXT, UNREAD}  # parts that are no segment in a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Log directories as they were listed at one time.

    Parameters
    ----------
    spark
        The session.
    paths
        Log directories, folders of partitions, segments, texts.
    topics
        Only these, and what the coordinators wrote down of transactions; all if null.
    at_rest, txn_state_partitions
        As of `toolkit.LogDir`.
    segments
        Rows of ``schema.SEGMENTS``, of these topics.
    checkpoints
        Rows of ``schema.CHECKPOINTS``.
    """

    spark: SparkSession
    paths: Sequence[str]
    topics: Sequence[str] | None
    at_rest: bool
    txn_state_partitions: int | None
    segments: Sequence[Row]
    checkpoints: Sequence[Row]

    @property
    def records(self) -> Sequence[str]:
        """Tables of records that may be new."""
        return ("coordinator_events",) if self.topics else ("coordinator_events", "group_events")

    what = "segments"
    beside = ("aborted", "snapshots")
    now = ("segments", "checkpoints", "partitions", "producers", "transactions", "answers")

    @property
    def may_go_on(self) -> bool:
        """Unless they are said to be at rest."""
        return not self.at_rest

    @property
    def listed(self) -> int:
        """How many segments there are."""
        return len(self.segments)

    @property
    def bytes_listed(self) -> int:
        """How large they are."""
        return sum(row["size"] or 0 for row in self.segments)

    @property
    def signature(self) -> str:
        """Another one once a segment or a checkpoint has changed, or something else is asked."""
        told = [str(tuple(row.values())) for row in (*self.segments, *self.checkpoints)]
        return digest([self.paths, self.topics, self.at_rest, self.txn_state_partitions, sorted(told)])

    def intakes(self, ledger: Ledger) -> list[Intake]:
        """What is to be done about each log."""
        marks = log_marks(self.checkpoints, self.segments)
        known = ledger.logs()
        by_log: dict[str, list[Row]] = defaultdict(list)
        for row in self.segments:
            if not _is_of_text(row):
                by_log[log_id(row)].append(row)
        found = [plan_log(rows, known.get(log, []), marks[log]) for log, rows in sorted(by_log.items())]
        return [*found, Intake(read=[part for part in self._texts() if part.given != _given(ledger, part)])]

    def rows(self, table: str, bronze: Bronze, *, are_segments: bool) -> DataFrame:
        """Rows of batches or of records: those of the new parts that are segments, or those of texts, and others."""
        if are_segments:
            return self._load(table, self._paths_of(bronze))
        return self._of_texts(self._load(table, self.paths))

    def rows_beside(self, table: str, bronze: Bronze) -> DataFrame:
        """Rows of the files that stand beside segments, those of new ones; with their units."""
        columns = [sf.col(name) for name in ("topic", "partition", "broker_id", "file")]
        as_they_lie = bronze.is_first or table == "snapshots" or any(part.segment in ODD for part in bronze.parts)
        folders = sorted({folder_of(part.file) for part in bronze.parts if part.file is not None})
        rows = self._load(table, self.paths if as_they_lie else folders).select(
            "*", log_column(*columns).alias(LOG), segment_column(columns[-1]).alias(SEGMENT)
        )
        if bronze.is_first:
            return rows
        if table == "snapshots":
            have = stored(bronze.store, table).select(*PART).distinct()
            new = chosen(rows, LOG, {part.log for part in bronze.parts})
            return rows.join(have, list(PART), "left_anti").unionByName(new.join(have, list(PART), "left_semi"))
        units = {(part.log, part_id(part.base_offset)) for part in bronze.parts if part.base_offset is not None}
        wanted = self.spark.createDataFrame(sorted(units), "log string, segment string")
        found = rows.join(sf.broadcast(wanted), list(PART), "left_semi")
        if any(part.segment == TEXT for part in bronze.parts):
            found = found.unionByName(self._of_texts(rows))
        return found

    def answers(self, table: str, ledger: Ledger) -> DataFrame:
        """Rows that tell of now; of segments also those that are gone, as they were last."""
        if table == "segments":
            return self.spark.createDataFrame(spark_table(SEGMENTS.arrow([*self.segments, *self._gone(ledger)])))
        if table == "checkpoints":
            return self.spark.createDataFrame(spark_table(CHECKPOINTS.arrow(self.checkpoints)))
        options = {"at_rest": "true"} if table == "answers" and self.at_rest else {}
        if table in {"answers", "transactions"} and self.txn_state_partitions is not None:
            options["txn_state_partitions"] = str(self.txn_state_partitions)
        return self._load("findings" if table == "answers" else table, self.paths, **options)

    def _gone(self, ledger: Ledger) -> list[Row]:
        """Segments that were read once and are there no more, as they were last."""
        names = ("topic", "partition", "base_offset", "size", "modified", "broker_id", "file")
        there = {row["file"] for row in self.segments}
        gone = {part.file: part for part in ledger.parts.values() if part.file is not None and part.file not in there}
        return [{name: getattr(part, name) for name in names} for part in gone.values()]

    def _paths_of(self, bronze: Bronze) -> Sequence[str]:
        """Where the new segments are; all paths, where that is no more."""
        new = {part.file for part in bronze.parts}
        there = {row["file"]: folder_of(row["file"]) for row in self.segments if not _is_of_text(row)}
        if new >= there.keys() or any(part.segment == UNREAD for part in bronze.parts):
            return self.paths
        whole = set(there.values()) - {folder for file, folder in there.items() if file not in new}
        files = [file for file in there if file in new and there[file] not in whole]
        return [*sorted(whole), *files, *bronze.beside]

    def _of_texts(self, rows: DataFrame) -> DataFrame:
        folders = {folder_of(row["file"]) for row in self.segments if not _is_of_text(row)}
        return rows.where(~folder_column(sf.col("file")).isin(sorted(folders))) if folders else rows

    def _texts(self) -> Iterator[Part]:
        by_partition: dict[tuple[str | None, int | None], list[Row]] = defaultdict(list)
        for row in self.segments:
            if _is_of_text(row):
                by_partition[row["topic"], row["partition"]].append(row)
        for (topic, partition), rows in by_partition.items():
            yield Part(
                log=f"{partition_id(topic, partition)}@{TEXT}",
                segment=TEXT,
                topic=topic,
                partition=partition,
                from_offset=-1,
                given=digest([[row["file"], row["base_offset"], row["size"]] for row in rows]),
            )

    def _load(self, table: str, paths: Sequence[str], **options: str) -> DataFrame:
        if self.topics is not None and table in BY_TOPIC and paths is self.paths:
            is_raw = KEPT[table].units == PART
            options["topics"] = json.dumps([*self.topics, *self._internal()] if is_raw else self.topics)
        return load(self.spark, table, paths, **options)

    def _internal(self) -> list[str]:
        return sorted({STATE_TOPIC} & {row["topic"] for row in self.segments} - set(self.topics or ()))


def list_files(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    at_rest: bool = False,
    txn_state_partitions: int | None = None,
) -> LogFiles:
    """List log directories.

    Raises
    ------
    NotFound
        If the files hold nothing of a topic.
    """
    segments = _rows(load(spark, "segments", paths))
    if topics is not None:
        if missing := sorted(set(topics) - {row["topic"] for row in segments}):
            raise NotFound(f"The files hold nothing of topic {missing[0]!r}.")
        segments = [row for row in segments if row["topic"] in {*topics, STATE_TOPIC}]
    return LogFiles(
        spark=spark,
        paths=paths,
        topics=topics,
        at_rest=at_rest,
        txn_state_partitions=txn_state_partitions,
        segments=segments,
        checkpoints=_rows(load(spark, "checkpoints", paths)),
    )


def load(spark: SparkSession, table: str, paths: Sequence[str], **options: str) -> DataFrame:
    """A table of ``kafka_log``, listed anew."""
    reader = spark.read.format("kafka_log").option("table", table).options(**options)
    return reader.option("paths", json.dumps(list(paths))).load()


def _rows(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def _is_of_text(row: Row) -> bool:
    """A segment as it was printed: when it was written is not known."""
    return row["modified"] is None and row["base_offset"] is not None


def _given(ledger: Ledger, part: Part) -> str | None:
    before = ledger.parts.get(part.key)
    return before.given if before and before.state == "stored" else None
