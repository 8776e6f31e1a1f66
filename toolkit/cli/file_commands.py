"""Commands that read files: tables of what logs hold, figures of transactions, the line that would abort one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.options import (
    UTC,
    AsOf,
    BrokerLog,
    BrokerLogTimeZone,
    ConsistentCopy,
    Output,
    Partitions,
    Topics,
    TxnStatePartitions,
    check_output_path,
    check_time_zone,
    offset_spec,
    open_files,
    option,
    partition_options,
    time_option,
)
from toolkit.cli.output import INCOMPLETE, Answer, Format, progress, remark, show, width
from toolkit.command_line import command_line
from toolkit.errors import UsageError
from toolkit.schema import STATISTICS, TABLES
from toolkit.sources.source import FILES, STREAMED, TableArguments, tables_of
from toolkit.views.row_formats import size_text

if TYPE_CHECKING:
    import pyarrow as pa

    from toolkit.sources.logdir import LogDir


TABLE_NAMES = tables_of(FILES)

PATHS = (
    "Log directories, partition folders, segments, snapshots, or texts of kafka-dump-log.sh; also s3://, gs:// and "
    "abfss://; or a recorded sample, sample:late-message."
)
Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help=PATHS, show_default=False)]
OptionalPaths = Annotated[
    list[str] | None, typer.Argument(metavar="PATH...", help=f"{PATHS} Optional with --broker-log.", show_default=False)
]
Start = Annotated[
    str | None,
    option(
        "--start OFFSET|TIME",
        "First offset: a number, a time with its zone (2026-11-21T12:00:00Z), log_start, lso or high_watermark.",
    ),
]
Stop = Annotated[str | None, option("--stop OFFSET|TIME", "First offset to leave out; as --start.")]
ProducerId = Annotated[int | None, option("--producer-id ID", "Only this producer id.")]
ProducerEpoch = Annotated[int | None, option("--producer-epoch N", "Only this producer epoch.")]
OF_BROKER_LOGS = ("cluster_events", "findings", "transaction_history")  # tables that read brokers' own logs, too
OF_IDS = {"transactions", "transaction_history"}  # tables with an error for an id of which nothing could be read


def scan(
    *,
    paths: OptionalPaths = None,
    table: Annotated[str, option("--table NAME", f"One of {', '.join(TABLE_NAMES)}.")],
    topic: Topics = None,
    partition: Partitions = None,
    producer_id: ProducerId = None,
    producer_epoch: ProducerEpoch = None,
    transactional_id: Annotated[str | None, option("--transactional-id ID", "Only this transactional id.")] = None,
    start: Start = None,
    stop: Stop = None,
    crc: Annotated[bool, option("--crc", "Check the checksum of every batch.")] = False,
    broker_log: BrokerLog = None,
    broker_log_time_zone: BrokerLogTimeZone = UTC,
    file: Annotated[
        Path | None, option("--output FILE", "Write to this .parquet, .csv or .json file instead of the terminal.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Read a table from log directories, copied files or the output of kafka-dump-log.sh.

    Nothing is written to their folders. Bytes that cannot be read are rows with their position and the reason.
    """
    if table not in TABLE_NAMES:
        raise UsageError(f"{table!r} is not one of the tables of files.", do=f"Use {', '.join(TABLE_NAMES)}.")
    partition_options(topic, partition)
    if broker_log and table not in OF_BROKER_LOGS:
        raise _not_of(table, "--broker-log")
    check_time_zone(broker_log_time_zone, broker_log)
    declared = TABLES[table]
    ids = {"producer_id": producer_id, "producer_epoch": producer_epoch, "transactional_id": transactional_id}
    wanted = {name: value for name, value in ids.items() if value is not None}
    if unknown := wanted.keys() - set(declared.names):
        raise _not_of(table, f"--{min(unknown).replace('_', '-')}")
    arguments = TableArguments.of(
        topics=topic,
        partitions=partition,
        start=_bound(start),
        stop=_bound(stop),
        crc=crc,
        transactional_ids=[transactional_id] if transactional_id is not None and table in OF_IDS else None,
    )
    files = open_files(paths or (), broker_log=broker_log, broker_log_time_zone=broker_log_time_zone)
    found = _matching(_tables(files, table, arguments), wanted)
    if file is not None:
        from toolkit.views.row_formats import write_file

        check_output_path(file, [*(paths or ()), *map(str, broker_log or ())])
        written = write_file(file, declared, found)
        remark(f"{file}: {written.rows:,} rows of {table}")
        raise typer.Exit(INCOMPLETE if written.errors else 0)
    rows = [row for each in found for row in each.to_pylist()]
    raise typer.Exit(Answer(table=declared, rows=rows, source=files, without=("broker_id", "file")).write(output))


def txn_stat(
    *,
    paths: Paths,
    topic: Topics = None,
    partition: Partitions = None,
    start: Start = None,
    stop: Stop = None,
    output: Output = Format.TABLE,
) -> None:
    """Summarize the transactions in files: committed, aborted, empty, open; sizes and durations.

    Markers are paired to data by producer id, as transaction version 2 requires: its markers carry the next epoch.
    """
    from toolkit.analysis.log.log_transactions import open_rows
    from toolkit.sources.logdir.log_dir import statistic_rows
    from toolkit.views.show_table import statistic_sections

    partition_options(topic, partition)
    files = open_files(paths)
    found = files.figures(topics=topic, partitions=partition, start=_bound(start), stop=_bound(stop))
    records = list(statistic_rows(found))
    opened = [txn for one in found for txn in open_rows(one.found, one.where)]
    answer = Answer(
        table=STATISTICS,
        rows=[each.row() for each in records],
        source=files,
        parts=partial(statistic_sections, records, opened=opened),
    )
    raise typer.Exit(answer.write(output))


def abort_command(
    *,
    paths: Paths,
    producer_id: Annotated[int, option("--producer-id ID", "Producer of the transaction.")],
    producer_epoch: Annotated[int, option("--producer-epoch N", "Its epoch on the partition.")],
    topic: Topics = None,
    partition: Partitions = None,
    consistent_copy: ConsistentCopy = False,
    as_of: AsOf = None,
    txn_state_partitions: TxnStatePartitions = None,
    bootstrap_server: Annotated[
        str, option("--bootstrap-server HOST:PORT", "Broker to name in the command.")
    ] = "HOST:PORT",
) -> None:
    """Print the kafka-transactions.sh command that would abort a transaction found open in files.

    It is commented out unless the files prove that the transaction hangs. On a live cluster use abort, which asks the
    cluster itself before it writes.
    """
    from toolkit.views.action_document import abort_advice
    from toolkit.views.row_formats import wrap

    partition_options(topic, partition)
    files = open_files(
        paths, consistent_copy=consistent_copy, as_of=time_option(as_of), txn_state_partitions=txn_state_partitions
    )
    advice = abort_advice(
        files,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=topic,
        partitions=partition,
        bootstrap_server=bootstrap_server,
    )
    for one in advice:
        for title, texts in (("for", one.speaks_for), ("against", one.speaks_against)):
            for text in texts:
                for line in wrap(text, before=f"{one.target}  {title:<7}  ", width=width()):
                    remark(line)
        if one.proven:
            remark(f"{one.target}  before Kafka 2.8, whose brokers lack DescribeProducers:")
            remark(command_line(one.old_command))
        show([one.line])
    raise typer.Exit(0 if all(one.proven for one in advice) else 3)


def copy(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="An entry of log.dirs; also s3://, gs:// and abfss://.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A folder that is empty or new, or has the same copy, unfinished.")
    ],
    *,
    topic: Topics = None,
) -> None:
    """Copy the log directory of a running broker, on its machine, so that a diagnosis of the copy can prove something.

    __transaction_state, the metadata log and the checkpoints are always copied. The manifest kafka-txn-copy.json says
    when it was made; diagnose, report and the pipeline read it. Run again, an interrupted copy continues.
    """
    from toolkit.formats.log_dir_files import MANIFEST
    from toolkit.sources.logdir.log_dir_copy import copy_log_dir
    from toolkit.views.row_formats import wrap

    done = copy_log_dir(source, target, topics=topic, progress=lambda folder: progress(f"Copying {folder} ..."))
    size = size_text(sum(file.size for file in done.files.values()))
    changed = f"{len(done.changed)} partitions changed meanwhile" if done.changed else "nothing changed meanwhile"
    text = f"{target}: {len(done.files):,} files, {size}, at {done.moment:%Y-%m-%d %H:%M:%S} UTC; {changed}"
    show(wrap(text, before="", width=width()))
    show(["Diagnose it:", command_line(("kafka-txn", "diagnose", "--log-dir", str(target)))])
    if not done.is_running:
        remark(f"No broker of this machine ran on {source}, so the manifest proves nothing of when its files are from.")
    for folder in done.incomplete:
        remark(f"{folder} changed faster than it was copied; {MANIFEST} proves nothing about it. Copy it again.")
    raise typer.Exit(INCOMPLETE if done.incomplete else 0)


def _bound(text: str | None) -> int | dt.datetime | str | None:
    return None if text is None else offset_spec(text)


def _not_of(table: str, flag: str) -> UsageError:
    return UsageError(f"The table {table} takes no {flag}.", do=f"Leave {flag} out.")


def _tables(files: LogDir, table: str, arguments: TableArguments) -> Iterator[pa.Table]:
    """A large table in parts; another one whole and sorted."""
    function = files.functions[table]
    if function.takes.isdisjoint({"topics"}) and function.takes >= {"partitions"}:  # it is about one topic
        if arguments.topics not in (None, function.topics):
            raise UsageError(f"The table {table} is read from {function.topics[0]}.", do="Leave --topic out.")
        arguments = replace(arguments, topics=None)
    for argument in arguments.not_default:
        if argument not in function.takes:
            raise _not_of(table, f"--{argument.removesuffix('s')}")
    found = files.read(table, arguments)
    if table in STREAMED:
        yield from found
        return
    import pyarrow as pa

    declared = TABLES[table]
    yield pa.Table.from_pandas(declared.frame(found), schema=declared.arrow_schema, preserve_index=False)


def _matching(tables: Iterator[pa.Table], wanted: Mapping[str, object]) -> Iterator[pa.Table]:
    """Rows with these values; and what could not be read, which may be one of them."""
    import pyarrow.compute as pc

    for table in tables:
        for name, value in wanted.items():
            same = pc.fill_null(pc.equal(table[name], value), fill_value=False)
            if "error" in table.column_names:
                same = pc.or_(same, pc.and_(pc.is_null(table[name]), pc.is_valid(table["error"])))
            table = table.filter(same)
        if table.num_rows:
            yield table
