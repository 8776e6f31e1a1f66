"""Commands that show a table, or single offsets: what one holds and who receives it, and why some are missing."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.analysis.transaction_owners import OPEN_STATES
from toolkit.cli.options import (
    Brokers,
    Output,
    Partitions,
    SourceOptions,
    Topics,
    duration_option,
    offset_spec,
    option,
    partition_options,
    takes_source,
    time_option,
)
from toolkit.cli.output import INCOMPLETE, Answer, Format, answer_sources, missing_rights, remark
from toolkit.command_line import command_line
from toolkit.errors import BrokerError, ConnectionFailed, NotFound, UsageError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC
from toolkit.schema import (
    COORDINATORS,
    EXPOSURE,
    GROUP_LAG,
    MISSING_OFFSETS,
    OFFSET_VISIBILITY,
    PARTITIONS,
    PRODUCERS,
    TRANSACTION_HISTORY,
    TRANSACTIONS,
    Row,
)
from toolkit.views.document import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir

# What a person reads a history for is who, when, how and why; JSON and CSV have all.
DETAILS = (
    *("txn_state_partition", "broker_id", "state", "decided_at", "timeout_ms", "client_transaction_version"),
    *("previous_producer_id", "records", "first_offset", "last_offset", "truncated"),
)

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"

OneTopic = Annotated[str | None, option("--topic TOPIC", "Topic.")]
OnePartition = Annotated[int | None, option("--partition N", "Partition number.", min=0)]
TransactionalIds = Annotated[list[str] | None, option("--transactional-id ID", "Transactional id; may be repeated.")]


class IsolationLevel(StrEnum):
    """What a consumer reads (``isolation.level``)."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@takes_source("all_clusters")
def list_transactions(
    *,
    state: Annotated[
        list[str] | None, option("--state STATE", "Only ids in this state (Ongoing, ...); may be repeated.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, option("--producer-id ID", "Only this producer id; may be repeated.")
    ] = None,
    duration_filter: Annotated[
        float | None,
        duration_option(
            "--duration-filter", "Only transactions open for longer. A bare number is milliseconds.", unit="ms"
        ),
    ] = None,
    transactional_id_pattern: Annotated[
        str | None, option("--transactional-id-pattern REGEX", "Only ids that this expression matches as a whole.")
    ] = None,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """List the transactional ids of all coordinators, with their state."""

    def read(options: SourceOptions) -> Answer:
        with options.connect() as cluster:
            rows = cluster.transaction_rows(
                states=state,
                producer_ids=producer_id,
                min_duration_ms=None if duration_filter is None else round(duration_filter * 1000),
                transactional_id_pattern=transactional_id_pattern,
            )
            hidden = _hidden_partitions(cluster, rows)
        return Answer(table=TRANSACTIONS, rows=rows, source=cluster, missing=hidden, without=("source", "broker_id"))

    answer_sources(read, source_options, output, clear="read")


@takes_source()
def describe(
    *, transactional_id: TransactionalIds = None, output: Output = Format.TABLE, source_options: SourceOptions
) -> None:
    """Describe transactional ids: state, timeout, start, partitions."""
    if not transactional_id:
        raise UsageError("describe needs an id.", do="Add --transactional-id ID.")
    with source_options.connect() as cluster:
        rows = cluster.transaction_rows(transactional_ids=transactional_id)
        hidden = _hidden_partitions(cluster, rows)
    if all((row["error"] or "").startswith("TRANSACTIONAL_ID_NOT_FOUND") for row in rows):
        raise NotFound(
            f"The cluster has no transactional id {', '.join(map(repr, transactional_id))}.",
            do="kafka-txn list shows those that are there; kafka-txn history those that have expired.",
        )
    without = ("source", "broker_id")
    answer = Answer(table=TRANSACTIONS, rows=rows, source=cluster, missing=hidden, without=without)
    raise typer.Exit(answer.write(output))


@takes_source()
def describe_producers(
    *,
    topic: Topics = None,
    partition: Partitions = None,
    broker_id: Brokers = None,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Show producer state of partitions on their leaders, or on the replicas of --broker-id."""
    partition_options(topic, partition)
    with source_options.connect() as cluster:
        rows = cluster.producer_rows(topics=topic, partitions=partition, broker_id=broker_id)
        hidden = [] if topic else _hidden_topics(cluster)
    raise typer.Exit(Answer(table=PRODUCERS, rows=rows, source=cluster, missing=hidden).write(output))


@takes_source()
def partitions(
    *, topic: Topics = None, partition: Partitions = None, output: Output = Format.TABLE, source_options: SourceOptions
) -> None:
    """Show the offsets of partitions: log start, LSO, high watermark, log end."""
    partition_options(topic, partition)
    with source_options.connect() as cluster:
        rows = cluster.partition_rows(topics=topic, partitions=partition)
        hidden = [] if topic else _hidden_topics(cluster)
    answer = Answer(table=PARTITIONS, rows=rows, source=cluster, missing=hidden, without=("broker_id",))
    raise typer.Exit(answer.write(output))


@takes_source("log_dir", "txn_state_partitions")
def coordinator(
    *,
    transactional_id: TransactionalIds = None,
    group: Annotated[list[str] | None, option("--group GROUP", "Consumer group; may be repeated.")] = None,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Show the coordinator of an id or group: by hash and by FindCoordinator.

    Files only give the partition, by hash. kafka-txn history shows the transactions of an id.
    """
    if not transactional_id and not group:
        raise UsageError("coordinator needs an id or a group.", do="Add --transactional-id ID or --group GROUP.")
    with source_options.open_logs() as source:
        rows = source.coordinator_rows(transactional_ids=transactional_id or (), groups=group or ())
    raise typer.Exit(Answer(table=COORDINATORS, rows=rows, source=source).write(output))


@takes_source("log_dir", "broker_log", "broker_log_time_zone")
def history(
    *, transactional_id: TransactionalIds = None, output: Output = Format.TABLE, source_options: SourceOptions
) -> None:
    """Show the history of transactional ids: transactions and how they ended, new producer ids and epochs, expiry.

    Read from __transaction_state, as far back as compaction has left it: of a cluster that needs READ on that topic.
    """
    if not transactional_id:
        raise UsageError("history needs an id.", do="Add --transactional-id ID.")
    with source_options.open_logs() as source:
        rows = source.transaction_history_rows(transactional_ids=transactional_id)
    if not rows:
        raise NotFound(
            f"__transaction_state has no record of {', '.join(map(repr, transactional_id))}.",
            do="kafka-txn list shows the ids that coordinators have.",
        )
    found = {row["transactional_id"] for row in rows}
    absent = ", ".join(repr(each) for each in transactional_id if each not in found)
    missing = [f"__transaction_state has no record of {absent}."] if absent else []
    answer = Answer(table=TRANSACTION_HISTORY, rows=rows, source=source, without=DETAILS, missing=missing)
    raise typer.Exit(answer.write(output))


@takes_source("log_dir")
def exposure(
    *,
    output: Output = Format.TABLE,
    kafka_version: Annotated[
        str | None,
        typer.Option(help="Release of the brokers, as 4.2.1. They show 4.2 only, and some bugs need the rest."),
    ] = None,
    source_options: SourceOptions,
) -> None:
    """Show how far this cluster is protected from hanging transactions (KIP-890), and which clients are not.

    With the known bugs of the brokers that touch transactions, by the release that they answer like, or registered in
    the metadata log of a log directory.
    """
    from toolkit.views.show_table import exposure_parts

    with source_options.open_logs() as source:
        rows = source.exposure_rows(kafka_version=kafka_version)
    answer = Answer(table=EXPOSURE, rows=rows, source=source, parts=partial(exposure_parts, rows))
    raise typer.Exit(answer.write(output))


@takes_source("all_clusters", "log_dir")
def lag(
    *,
    group: Annotated[
        list[str] | None, option("--group GROUP", "Only this group; may be repeated. Default: all groups.")
    ] = None,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Show how far groups are behind, and why: records to read now, records held behind the LSO, markers.

    A read_committed client measures its lag to the LSO: a lag of 0 can hide held records. Kafka's tool measures to the
    high watermark: a lag that stays can be nothing but markers.
    """
    from toolkit.cli.diagnose_commands import beyond_end_exit_code
    from toolkit.schema.coerce import records_of
    from toolkit.schema.live import GroupLag
    from toolkit.views.row_formats import table_grid
    from toolkit.views.show_table import lag_parts

    def read(options: SourceOptions) -> Answer:
        with options.open_logs() as source:
            groups, hidden = (group, []) if group else _all_groups(source)
            rows, failed = _lag_of(source, groups)
        lags, remarks = records_of(rows, GroupLag), []
        without = ["reason", "broker_id", *([] if any(lag.beyond_end for lag in lags) else ["beyond_end"])]
        code = beyond_end_exit_code(lags, source) or None
        if unstable := sorted({row["group_id"] for row in rows if (row["error"] or "").startswith(UNSTABLE)}):
            remarks = [
                f"Offsets of {', '.join(map(repr, unstable))} are part of an open transaction. To see which:",
                command_line(options.connection.argv(Command(("kafka-txn", "diagnose", "--topic", OFFSETS_TOPIC)))),
            ]
        return Answer(
            table=GROUP_LAG,
            rows=rows,
            source=source,
            parts=lambda: [table_grid(GROUP_LAG, rows, without=without), *lag_parts(rows)],
            connection=options.connection,
            missing=[*failed, *hidden],
            remarks=[*remarks, *(missing_rights(rows) if code else ())],
            code=code,
        )

    answer_sources(read, source_options, output, clear="read")


@takes_source("log_dir", "recording", "at")
def why(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC-PARTITION@OFFSET", help="The offset, as in orders-0@4711; or by the options."),
    ] = None,
    *,
    topic: OneTopic = None,
    partition: OnePartition = None,
    offset: Annotated[int | None, option("--offset OFFSET", "Offset.", min=0)] = None,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Show what an offset holds, whose it is, and why read_committed consumers receive it or not.

    A record with its transaction, transactional id and marker; or a marker, an aborted record, an offset that
    compaction or retention took, or one beyond the LSO, the high watermark or the log end.
    """
    from toolkit.views.show_table import visibility_section

    if name is not None and offset is None:
        name, _, number = name.rpartition("@")
        if not number.isdecimal():
            raise UsageError("why needs TOPIC-PARTITION@OFFSET.", do="For example orders-0@4711.")
        offset = int(number)
    topic, partition = topic_partition(name, topic, partition)
    if offset is None:
        raise UsageError("why needs an offset.", do="Add --offset OFFSET.")
    options = {"at": time_option(source_options.at)} if source_options.recording else {}
    with source_options.open() as source:
        rows = source.offset_visibility_rows(topic, partition, offset, **options)
    answer = Answer(
        table=OFFSET_VISIBILITY,
        rows=rows,
        source=source,
        parts=lambda: map(visibility_section, rows),
        connection=source_options.connection,
    )
    raise typer.Exit(answer.write(output))


@takes_source("log_dir")
def gaps(
    name: Annotated[
        str | None, typer.Argument(metavar="TOPIC-PARTITION", help="The partition, as in orders-0; or by the options.")
    ] = None,
    *,
    topic: OneTopic = None,
    partition: OnePartition = None,
    start_offset: Annotated[
        str,
        option(
            "--start-offset OFFSET|TIME",
            "First offset: a number, a time with its zone (2026-11-21T12:00:00Z), log_start, lso or high_watermark.",
        ),
    ] = "log_start",
    stop_offset: Annotated[
        str, option("--stop-offset OFFSET|TIME", "First offset to leave out; as --start-offset.")
    ] = "high_watermark",
    isolation_level: Annotated[
        IsolationLevel, option("--isolation-level", "Of the consumer that misses them.")
    ] = IsolationLevel.READ_COMMITTED,
    output: Output = Format.TABLE,
    source_options: SourceOptions,
) -> None:
    """Account for every offset of a range that a consumer does not receive: markers, aborted records, compaction, ...

    For an alarm of lost records, as "Failed to get records ... after polling" of Spark. Exit code 3 if an offset is
    unexplained or could not be read.
    """
    topic, partition = topic_partition(name, topic, partition)
    start, stop = offset_spec(start_offset), offset_spec(stop_offset)
    read_committed = isolation_level is IsolationLevel.READ_COMMITTED
    with source_options.open_logs() as source:
        rows = source.missing_offset_rows(topic, partition, start=start, stop=stop, read_committed=read_committed)
    without = ("topic", "partition", "isolation_level", "broker_id")
    code = INCOMPLETE if any(row["status"] == "unexplained" for row in rows) else None
    answer = Answer(table=MISSING_OFFSETS, rows=rows, source=source, without=without, code=code)
    raise typer.Exit(answer.write(output))


def topic_partition(name: str | None, topic: str | None, partition: int | None) -> tuple[str, int]:
    """Return the topic and partition that ``orders-0`` names, or two options.

    Raises UsageError if they name none, or both do.
    """
    if name is None:
        if topic is None or partition is None:
            raise UsageError("No partition is named.", do="Add --topic TOPIC and --partition N.")
        return topic, partition
    if topic is not None or partition is not None:
        raise UsageError(f"{name!r} and --topic or --partition name a partition.", do="Use one of them.")
    named, _, number = name.rpartition("-")
    if not named or not number.isdecimal():
        raise UsageError(f"{name!r} is not TOPIC-PARTITION.", do="For example orders-0.")
    return named, int(number)


def _all_groups(source: Cluster | LogDir) -> tuple[list[str], list[str]]:
    """The groups of a source that commit offsets, and sentences about groups that may be hidden."""
    from toolkit.sources.logdir import LogDir

    if isinstance(source, LogDir):
        from toolkit.sources.logdir.coordinator_state import groups_in_files

        return groups_in_files(source)
    from toolkit.sources.live.group_offsets import groups_with_offsets

    groups, gaps = groups_with_offsets(source.client)
    return groups, [f"Groups may be hidden; missing: {gap}." for gap in gaps]


def _lag_of(source: Cluster | LogDir, groups: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The lag of each group, and a sentence about each that could not be read, if there are several."""
    rows: list[Row] = []
    failed: list[str] = []
    for group in groups:
        try:
            found = source.group_lag_rows(group)
        except (BrokerError, ConnectionFailed, NotFound) as error:  # one may be gone since they were listed
            if len(groups) == 1:
                raise
            failed.append(str(error))
            continue
        rows += found
        if not found:
            remark(f"The group {group!r} has no committed offset, and none is pending.")
    return rows, failed


def _hidden_topics(cluster: Cluster) -> list[str]:
    """Sentences about topics that Kafka omits without an error."""
    return [f"Topics may be hidden; missing: {gap}." for gap in cluster.topic_gaps()]


def _hidden_partitions(cluster: Cluster, transactions: Sequence[Row]) -> list[str]:
    """Sentences about partitions of open transactions that Kafka omits without an error."""
    if not any(row["state"] in OPEN_STATES and not row["error"] for row in transactions):
        return []
    return [f"Partitions of a transaction may be hidden; missing: {gap}." for gap in cluster.topic_gaps()]
