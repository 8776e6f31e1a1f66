"""The options of commands, spelled as Kafka's own tools spell them: those that select a source, and what many share."""

from __future__ import annotations

import datetime as dt
import errno
import inspect
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from toolkit.cli.output import SOURCE, Format, progress, remark
from toolkit.command_line import command_line
from toolkit.errors import UsageError
from toolkit.schema.coerce import in_utc
from toolkit.schema.durations import duration_s
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.config import ClientConfig
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording
    from toolkit.views.document import Connection

UTC = "+00:00"
SAMPLE = "sample:"  # as of `toolkit.connect`


def option(flag: str, text: str, *, panel: str | None = None, **more: Any) -> Any:
    """An option as its help has it: its flag and the name of its value, ``--topic TOPIC``, and a text."""
    name, _, value = flag.partition(" ")
    return typer.Option(name, metavar=value or None, help=text, rich_help_panel=panel, **more)


def duration_option(
    flag: str,
    text: str,
    *,
    default: str | None = None,
    unit: str = "s",
    at_least: float = 0,
    unlimited: str | None = None,
    panel: str | None = None,
) -> Any:
    """An option that takes a duration, ``30s``, ``15m`` or ``2h``, and gives seconds.

    `default`: how the help shows the default, such as ``15m``.
    `unit`: unit of a bare number.
    `at_least`: the shortest one, in seconds.
    `unlimited`: the value for no limit, which gives infinity.
    """

    def seconds(value: str | float) -> float:
        if not isinstance(value, str):
            return value  # the default
        if value == unlimited:
            return math.inf
        try:
            found = duration_s(value, unit=unit)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not a duration. Use 30s, 15m or 2h.") from None
        if found < at_least:
            raise typer.BadParameter(f"{value!r} is too short. Use {at_least:g}s or more.")
        return found

    return option(f"{flag} DURATION", text, panel=panel, parser=seconds, show_default=default or False)


Output = Annotated[Format, option("--format", "table for people; json and csv for programs, with every column.")]
Verdicts = Annotated[
    list[Verdict] | None,
    option(
        "--verdict VERDICT",
        f"Show only findings with this verdict ({', '.join(Verdict)}); may be repeated. The exit code and the sum "
        "are of all findings.",
    ),
]
Short = Annotated[
    bool,
    option(
        "--short", "A line each, the most urgent first: partition, offset, verdict, id, how long, action; then the sum."
    ),
]
WATCH_INTERVAL = "10s"
Watch = Annotated[
    float | None,
    duration_option(
        "--watch",
        f"Look again and again, this long after each look; --watch alone: {WATCH_INTERVAL}. A terminal shows the last "
        "look, a pipe a block for each change. Ctrl-C ends it with the exit code of the last look.",
        at_least=1,
    ),
]
Topic = Annotated[str, option("--topic TOPIC", "Topic.")]
Topics = Annotated[
    list[str] | None,
    option("--topic TOPIC", "Only this topic. May be repeated. Default: all, internal topics included."),
]
Partition = Annotated[int, option("--partition N", "Partition number.", min=0)]
Partitions = Annotated[
    list[int] | None, option("--partition N", "Only this partition. May be repeated. Needs --topic.", min=0)
]
Brokers = Annotated[int | None, option("--broker-id ID", "Broker id.")]
RecheckAfter = Annotated[
    float, duration_option("--recheck-after", "Delay before the confirming second check; 0 disables it.", default="5s")
]
LogEvidence = Annotated[
    bool,
    option(
        "--log-evidence/--no-log-evidence",
        "Read the log around a held LSO for its cause and impact: a few megabytes, nothing if no LSO is held.",
    ),
]
MaxTransactionTimeout = Annotated[
    float,
    duration_option(
        "--max-transaction-timeout",
        "Treat older live transactions as `long`. A bare number is minutes, as in kafka-transactions.sh.",
        default="15m",
        unit="m",
    ),
]


def flag(name: str) -> str:
    """The flag of an option."""
    return f"--{name.replace('_', '-')}"


def time_option(text: str | None) -> dt.datetime | None:
    """Return the time of an option. Raises UsageError if it is none, or has no zone."""
    return None if text is None else in_utc(text)


def offset_spec(text: str) -> int | str:
    """Return an offset, or the text of a time or a named offset, which is checked where it is used."""
    return int(text) if text.isdecimal() else text


def key_values(option: str, pairs: list[str] | None) -> dict[str, str]:
    """Return the settings of an option that may be repeated, each ``KEY=VALUE``.

    Raises UsageError if one has no value.
    """
    if wrong := [pair for pair in pairs or () if "=" not in pair]:
        raise UsageError(f"{option} {wrong[0]} is not KEY=VALUE.", do=f"Write {option} {wrong[0]}=VALUE.")
    return dict(pair.split("=", 1) for pair in pairs or ())


def check_output_path(output: Path, read_only: Iterable[str]) -> None:
    """Refuse, before anything is read, an output that cannot be written, or that is where files are only read.

    Raises UsageError if the output is in one of these folders, is a folder, or no file can be made beside it.
    """
    for path in read_only:
        if Path(path).resolve() in output.resolve().parents:
            raise UsageError(f"{output} is in {path}, which is never written to.", do="Write to another folder.")
    try:
        if output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror}.", do="Name a file in a folder that you may write to."
        ) from None


def check_time_zone(zone: str, broker_log: Sequence[Path] | None) -> None:
    """Raise UsageError for a zone of brokers' logs if there are none."""
    if zone != UTC and not broker_log:
        raise UsageError("--broker-log-time-zone applies to brokers' logs.", do="Add --broker-log PATH.")


def open_files(
    paths: Sequence[str], *, broker_log: Sequence[Path] | None = None, broker_log_time_zone: str = UTC, **options: Any
) -> LogDir:
    """The log directories and files at these paths, or a recorded sample. `options`: as of `toolkit.LogDir`.

    Raises UsageError for a sample beside other files, or with options; of brokers' logs as `BrokerLogs`.
    """
    if broker_log:
        from toolkit.formats.broker_logs import BrokerLogs

        options["broker_logs"] = BrokerLogs(*broker_log, time_zone=broker_log_time_zone)
    samples = [path.removeprefix(SAMPLE) for path in paths if path.startswith(SAMPLE)]
    if not samples:
        from toolkit.sources.logdir import LogDir

        return LogDir(*paths, **options)
    from toolkit.lab.samples import load

    if len(paths) > 1 or any(options.values()):
        raise UsageError(f"{SAMPLE}{samples[0]} is read alone.", do="Leave all other files and options of files out.")
    return load(samples[0]).log_dir()


def partition_options(topics: list[str] | None, partitions: list[int] | None) -> None:
    """Refuse partition numbers of no topic. Raises UsageError if there are `partitions` without `topics`."""
    if partitions and not topics:
        raise UsageError("--partition is a number within a topic.", do="Add --topic TOPIC.")


AnySource: TypeAlias = "Cluster | LogDir | Recording"

CONNECTION, FILES = "Connection", "Files"
ASSERTIONS = ("consistent_copy", "as_of", "txn_state_partitions")
FILE_OPTIONS = ("log_dir", *ASSERTIONS, "broker_log", "broker_log_time_zone")
CLUSTER_OPTIONS = ("bootstrap_server", "command_config", "cluster_name", "timeout")
WAITS = ("timeout", "recheck_after")  # for a cluster; a default is no error with files
TIMEOUT_S = 30.0
SERVER_FLAG = "--bootstrap-server HOST:PORT"
SERVER_VARIABLE, CONFIG_VARIABLE = "KAFKA_TXN_BOOTSTRAP_SERVER", "KAFKA_TXN_COMMAND_CONFIG"


def _cluster_names(incomplete: str) -> list[str]:
    from toolkit.config.clusters import named_clusters

    try:
        return [name for name in named_clusters() if name.startswith(incomplete)]
    except UsageError:
        return []


def _samples(incomplete: str) -> list[str]:
    from toolkit.lab.samples import names

    return [name for each in names() if (name := f"{SAMPLE}{each}").startswith(incomplete)]


BootstrapServer = Annotated[
    str | None,
    option(
        "--bootstrap-server HOST:PORT",
        "Brokers to bootstrap from, separated by commas. Without a source: KAFKA_TXN_BOOTSTRAP_SERVER and "
        "KAFKA_TXN_COMMAND_CONFIG of the environment.",
        panel=CONNECTION,
    ),
]
CommandConfig = Annotated[
    str | None,
    option(
        "--command-config FILE",
        "Client properties, with Java's or librdkafka's keys: security.protocol, sasl.*, ssl.*.",
        panel=CONNECTION,
    ),
]
ClusterName = Annotated[
    str | None,
    option(
        "--cluster NAME",
        "A cluster of the file clusters.toml, or of KAFKA_TXN_CLUSTERS: a table each, with bootstrap-server, "
        "command-config, timeout and flink-checkpoint.",
        panel=CONNECTION,
        autocompletion=_cluster_names,
    ),
]
ConsistentCopy = Annotated[
    bool,
    option(
        "--consistent-copy",
        "Assert that this is a consistent copy: brokers shut down cleanly, replicas in sync.",
        panel=FILES,
    ),
]
AsOf = Annotated[
    str | None,
    option(
        "--as-of TIME",
        "When the files were copied, with its time zone: 2026-11-21T12:00:00Z. Ages count up to then. A manifest "
        "of kafka-txn copy says it by itself.",
        panel=FILES,
    ),
]
TxnStatePartitions = Annotated[
    int | None,
    option(
        "--txn-state-partitions N",
        "Partitions of __transaction_state, if transaction.state.log.num.partitions of the brokers is not 50.",
        panel=FILES,
        min=1,
    ),
]
BrokerLog = Annotated[
    list[Path] | None,
    option(
        "--broker-log PATH",
        "A broker's own log (server.log, controller.log, state-change.log), or a folder of them. May be repeated.",
        panel=FILES,
    ),
]
BrokerLogTimeZone = Annotated[
    str,
    option(
        "--broker-log-time-zone ZONE",
        "Zone of the times in brokers' logs that have none: +02:00, Europe/Berlin.",
        panel=FILES,
    ),
]


FlinkCheckpoint = Annotated[
    list[Path] | None,
    option(
        "--flink-checkpoint PATH",
        "Last completed checkpoint of a Flink job (the folder of the job, or chk-N in it): what it is to commit "
        "is never aborted or fenced. May be repeated.",
        panel=CONNECTION,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The source that a command reads; each field is an option, in the order of the help."""

    bootstrap_server: BootstrapServer = None
    command_config: CommandConfig = None
    cluster_name: ClusterName = None
    all_clusters: Annotated[
        bool,
        option(
            "--all-clusters",
            "Each cluster of that file, some at a time, in one answer by cluster. A cluster that cannot be read "
            "is not known; the exit code is the most severe one.",
            panel=CONNECTION,
        ),
    ] = False
    timeout: Annotated[
        float | None,
        duration_option(
            "--timeout", "How long to wait for the cluster.", default="30s", at_least=0.1, panel=CONNECTION
        ),
    ] = None
    log_dir: Annotated[
        list[str] | None,
        option(
            "--log-dir PATH",
            "Read files instead of a cluster: log directories, partition folders, segments, dumps; also "
            "s3://, gs:// and abfss://; or a recorded sample, sample:late-message. May be repeated.",
            panel=FILES,
            autocompletion=_samples,
        ),
    ] = None
    consistent_copy: ConsistentCopy = False
    as_of: AsOf = None
    txn_state_partitions: TxnStatePartitions = None
    broker_log: BrokerLog = None
    broker_log_time_zone: BrokerLogTimeZone = UTC
    recording: Annotated[
        Path | None,
        option(
            "--recording DIR",
            "Read a recording by kafka-txn record instead of a cluster: its newest sample, or that of --at.",
            panel=FILES,
        ),
    ] = None
    at: Annotated[
        str | None,
        option(
            "--at TIME", "Newest sample at or before this time, with its time zone: 2026-11-21T12:00:00Z.", panel=FILES
        ),
    ] = None

    flink_checkpoint: FlinkCheckpoint = None

    @property
    def names_cluster(self) -> bool:
        """Whether an option names a cluster."""
        return bool(self.bootstrap_server or self.command_config or self.cluster_name or self.all_clusters)

    @property
    def paths(self) -> list[str]:
        """The files to read, which nothing is written to; none of a cluster."""
        broker_logs = map(str, self.broker_log or ())
        return [*(self.log_dir or ()), *broker_logs, *([str(self.recording)] if self.recording else ())]

    @property
    def assertions(self) -> dict[str, Any]:
        """What is asserted of the files, as `toolkit.LogDir` takes it."""
        return {name: getattr(self, name) for name in ASSERTIONS} | {"as_of": time_option(self.as_of)}

    @property
    def connection(self) -> Connection:
        """What the commands of an answer need to reach the source."""
        from toolkit.views.document import Connection

        checkpoints = tuple(map(str, self.flink_checkpoint or ()))
        # Of a named cluster Kafka's own tools need the servers, which only its file of properties may have.
        servers = ",".join(self._config().bootstrap_servers) if self.cluster_name and not self.bootstrap_server else ""
        return Connection(
            server=self.bootstrap_server or servers,
            config=self.command_config or "",
            cluster=self.cluster_name or "",
            checkpoints=checkpoints,
            log_dirs=tuple(self.log_dir or ()),
        )

    def named(self) -> SourceOptions:
        """These options, with those of their cluster in the file of clusters: an option that is given comes first.

        Raises UsageError if the file has no such cluster.
        """
        if not self.cluster_name:
            return self
        from toolkit.config.clusters import named_cluster

        cluster = named_cluster(self.cluster_name)
        return replace(
            self,
            bootstrap_server=cluster.bootstrap_server,
            command_config=cluster.command_config,
            timeout=self.timeout or cluster.timeout,
            flink_checkpoint=[*dict.fromkeys([*cluster.flink_checkpoints, *(self.flink_checkpoint or ())])] or None,
        )

    def each_cluster(self) -> list[SourceOptions]:
        """These options for each cluster of the file. Raises UsageError as `named`, also for files beside it."""
        from toolkit.config.clusters import named_clusters

        if self.paths:
            raise UsageError("--all-clusters reads clusters, no files.", do="Leave one of them out.")
        return [replace(self, all_clusters=False, cluster_name=name).named() for name in named_clusters()]

    def or_environment(self) -> SourceOptions:
        """These options; if they name no source, the cluster that the environment names, which is said on stderr."""
        server, config = os.environ.get(SERVER_VARIABLE), os.environ.get(CONFIG_VARIABLE)
        if self.names_cluster or self.paths or not (server or config):
            return self
        named = replace(self, bootstrap_server=server or None, command_config=config or None)
        address = {"--bootstrap-server": server, "--command-config": config}
        options = command_line(word for option, value in address.items() if value for word in (option, value))
        remark(f"Cluster of the environment: {options}")
        return named

    def check(self) -> None:
        """Check that the options name one source: a cluster, log directories or a recording.

        Raises UsageError if they name none or several, or one of them applies to another source.
        """
        if self.at and not self.recording:
            raise UsageError("--at is a time of a recording.", do="Add --recording DIR.")
        if self.recording and (self.names_cluster or self.log_dir):
            raise UsageError("--recording cannot be combined with a cluster or --log-dir.", do="Use one of them.")
        of_files = {f"{flag(name)} applies to": getattr(self, name) for name in ASSERTIONS}
        of_files["--broker-log is read beside"] = self.broker_log
        check_time_zone(self.broker_log_time_zone, self.broker_log)
        if (wrong := [what for what, is_set in of_files.items() if is_set]) and not self.log_dir:
            raise UsageError(f"{wrong[0]} files.", do="Add --log-dir PATH.")
        if self.names_cluster and self.log_dir:
            raise UsageError("--bootstrap-server names a cluster, --log-dir names files.", do="Use one of them.")
        if self.flink_checkpoint and not self.names_cluster:
            raise UsageError("--flink-checkpoint applies to a cluster.", do=f"Add {SERVER_FLAG}.")
        if not (self.names_cluster or self.log_dir or self.recording):
            raise UsageError(
                "No cluster is named.",
                do=f"Add {SERVER_FLAG} or set {SERVER_VARIABLE}; a command that reads files also takes --log-dir PATH.",
            )

    def open(self) -> AnySource:
        """Return the source that the options name. Raises UsageError as `check`."""
        if not self.recording:
            return self.open_logs()
        self.check()
        from toolkit.sources.recording import Recording

        return Recording(self.recording)

    def open_incident(self) -> list[AnySource]:
        """Return what the options name: one source, or a recording and what shows more of the same incident.

        Raises UsageError as `check` of each of them.
        """
        if not self.recording or not (self.names_cluster or self.log_dir):
            return [self.open()]
        if self.at:
            raise UsageError("--at selects a sample of a recording alone.", do="Leave it out.")
        return [replace(self, recording=None).open_logs(), SourceOptions(recording=self.recording).open()]

    def open_logs(self) -> Cluster | LogDir:
        """Return the cluster or the log directories that the options name, for tables that a recording does not have.

        Raises UsageError as `check`.
        """
        if not self.log_dir:
            return self.connect()
        self.check()
        return open_files(
            self.log_dir, broker_log=self.broker_log, broker_log_time_zone=self.broker_log_time_zone, **self.assertions
        )

    def connect(self) -> Cluster:
        """As `cluster`, and a person at a terminal sees what is waited for."""
        self.check()
        progress(f"Connecting to {self.bootstrap_server or f'the cluster of {self.command_config}'} ...")
        return self.cluster()

    def cluster(self) -> Cluster:
        """Return the cluster that the options name. Raises UsageError as `check`."""
        self.check()
        from toolkit.formats.flink_checkpoint import FlinkCheckpoints
        from toolkit.sources.live.cluster import Cluster

        checkpoints = FlinkCheckpoints(*(self.flink_checkpoint or ()))
        cluster = Cluster(self._config(), timeout=self.timeout or TIMEOUT_S, flink_checkpoints=checkpoints)
        cluster.on_clock_warning = remark
        return cluster

    @property
    def cluster_label(self) -> str:
        """The name of the cluster in metrics: that of the file of clusters, else its bootstrap servers."""
        return self.cluster_name or ",".join(self._config().bootstrap_servers)

    def _config(self) -> ClientConfig:
        from toolkit.config import ClientConfig

        return ClientConfig.of(self.bootstrap_server, self.command_config)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingOptions:
    """How a source is diagnosed, and its findings are shown; each field is an option, in the order of the help."""

    topic: Topics = None
    partition: Partitions = None
    recheck_after: RecheckAfter = 5
    max_transaction_timeout: MaxTransactionTimeout = 900
    log_evidence: LogEvidence = True
    verdict: Verdicts = None
    short: Short = False
    watch: Watch = None
    output: Output = Format.TABLE

    def __post_init__(self) -> None:
        """Check it. Raises UsageError for partitions of no topic, and for lines that no program reads."""
        if self.short and self.output is not Format.TABLE:
            raise UsageError(
                f"--short is for people, --format {self.output} has every column.", do="Leave one of them out."
            )
        partition_options(self.topic, self.partition)


def takes_source(*options: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a cluster, and these besides; it receives them as its `source_options`.

    A command with `finding_options` has those, too. Options that precede the command, where ``kafka-transactions.sh``
    has them, are its defaults.

    `*options`: fields of `SourceOptions`.
    """
    names = (*CLUSTER_OPTIONS, *options)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(ctx: typer.Context, **values: Any) -> None:
            selected = SourceOptions(**{name: values.pop(name) for name in names})
            leading: SourceOptions = ctx.obj
            source_options = replace(
                selected,
                bootstrap_server=selected.bootstrap_server or leading.bootstrap_server,
                command_config=selected.command_config or leading.command_config,
                cluster_name=selected.cluster_name or leading.cluster_name,
            )
            ways = {
                "--bootstrap-server or --command-config": source_options.bootstrap_server
                or source_options.command_config,
                "--cluster": source_options.cluster_name,
                "--all-clusters": source_options.all_clusters,
            }
            if len(used := [way for way, is_used in ways.items() if is_used]) > 1:
                raise UsageError(f"{used[0]} names a cluster, and {used[1]} does.", do="Use one of them.")
            source_options = source_options.named()
            if not (values.get("inputs") or values.get("more")):  # files that `pipeline` reads
                source_options = source_options.or_environment()
            SOURCE.set(source_options)
            for name in WAITS:
                source = ctx.get_parameter_source(name)
                if source is not None and source.name == "COMMANDLINE" and not source_options.names_cluster:
                    raise UsageError(f"{flag(name)} applies to a cluster.", do=f"Leave it out, or add {SERVER_FLAG}.")
            if has_findings:
                values["finding_options"] = FindingOptions(**{name: values.pop(name) for name in of_findings})
            command(**values, source_options=source_options)

        # Typer reads from the signature what a command accepts.
        declared = inspect.signature(SourceOptions, eval_str=True).parameters
        of_findings = inspect.signature(FindingOptions, eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters
        has_findings = "finding_options" in own
        groups = {"source_options": [declared[option] for option in names], "finding_options": [*of_findings.values()]}
        parameters = [inspect.signature(run, eval_str=True).parameters["ctx"]]
        for name, parameter in own.items():
            parameters += groups.get(name, [parameter])
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__ = command.__doc__
        return run

    return decorate
