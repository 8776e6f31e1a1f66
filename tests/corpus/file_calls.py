"""What is asked of files that brokers and the recorder wrote."""

from __future__ import annotations

import atexit
import datetime as dt
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from tests.corpus.calls import FORMATS, Call, CommandLine, figure, table, tool
from tests.corpus.conversation import FILES_SUFFIX, INPUTS
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab import samples
from toolkit.schema.live import Finding
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.sources.source import FILES, RECORDING, tables_of
from toolkit.views.plots import plot_lag, plot_overview, plot_timeline

SAMPLES = Path(samples.__file__).parent / "data"
DUMPS = Path(__file__).parents[1] / "formats" / "data"
LATER = dt.timedelta(minutes=1)
COMPLETE = "sample-late-message"
RICH = {COMPLETE, "4.3.1-lost-marker-files"}
IN_PARTS = {COMPLETE, "sample-open-young", "sample-overdue", "4.3.1-everyday-files", "4.3.1-lost-marker-files"}
OF_ID = ["--transactional-id", "payments-7"]
POSITION = "Timeout of 8000ms expired before the position for partition orders-0 could be determined"
SELECTED = {
    "start": ["batches", "--start", "15"],
    "stop": ["log_transactions", "--stop", "lso"],
    "epoch": ["log_transactions", "--producer-epoch", "9"],
    "id": ["transaction_log", "--transactional-id", "late_message-c3c29e"],
}
"""What is selected of a table."""
WRONG = {
    "producer-id": ["checkpoints", "--producer-id", "1"],
    "start": ["producers", "--start", "1"],
    "crc": ["log_transactions", "--crc"],
    "topic": ["log_transactions", "--topic", "no-such-topic"],
    "topic-of-the-coordinator": ["transaction_log", "--topic", "orders"],
    "offset": ["log_transactions", "--start", "yesterday"],
    "suffix": ["log_transactions", "--output", "out.xlsx"],
    "no-folder": ["log_transactions", "--output", "nowhere/out.csv"],
    "own-input": ["batches", "--output", "log-dir/out.csv"],
}
"""Invalid usage of scan: exit code 2 and one sentence."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A clock that stands."""

    at: dt.datetime

    def now(self) -> dt.datetime:
        """This machine's time."""
        return self.at

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return 0.0

    def wait(self, seconds: float) -> None:
        """Nothing moves."""


def archives() -> dict[str, Path]:
    """The archives, by the name of the input: those of the lab's samples, and copies of running brokers."""
    of_lab = {f"sample-{name}": SAMPLES / f"{name}.tar.xz" for name in samples.names()}
    own = {f"{path.name.removesuffix(FILES_SUFFIX)}-files": path for path in sorted(INPUTS.glob(f"*{FILES_SUFFIX}"))}
    return of_lab | own


@cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="kafka-txn-corpus-")
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


@cache
def unpacked(archive: Path) -> Path:
    """The folder with the files of an archive; they keep their times."""
    folder = _temporary() / archive.name
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def clock_of(folder: Path) -> Stopped:
    """A minute after the newest file was written."""
    newest = max(each.stat().st_mtime for each in folder.rglob("*") if each.is_file())
    return Stopped(dt.datetime.fromtimestamp(int(newest), dt.UTC) + LATER)


def file_calls(name: str, folder: Path) -> Iterator[Call]:
    """Every call on the files of an input."""
    log_dirs = sorted(each.name for each in folder.glob("log-dir*"))
    source = [option for each in log_dirs for option in ("--log-dir", each)]
    asserted = [*source, "--consistent-copy"] if name.startswith("sample-") else source
    line = CommandLine(source=asserted, around=folder)
    logs = [option for each in sorted(folder.glob("server-*.log")) for option in ("--broker-log", each.name)]
    read = partial(LogDir, *log_dirs, consistent_copy=asserted is not source)
    yield line("diagnose", name="diagnose")
    yield line("diagnose", "--format", "json", name="diagnose-json")
    yield line("diagnose", "--short", name="diagnose-short")
    yield CommandLine(source=source, around=folder)("diagnose", *logs, name="diagnose-as-found")
    yield line("report", "--min-held", "0s", "--output", "report.md", name="report")
    if (folder / "audit.jsonl").exists():
        trail = ["--min-held", "10s", "--audit-file", "audit.jsonl"]
        yield line("report", *trail, "--output", "report.md", name="report-with-actions")
    if name in IN_PARTS:
        yield from _parts(folder, log_dirs)
    if name == COMPLETE:
        yield from _complete(folder, asserted)
    if name in RICH:
        found = LogDir(*[folder / each for each in log_dirs], consistent_copy=True).records(Finding)
        yield from _everything(CommandLine(source=source, around=folder), line, log_dirs, found, logs)
        for of_table in tables_of(FILES):
            yield table(read, FILES, of_table, around=folder)
        held = next(each for each in found if each.start_offset is not None)
        yield from _tools(read, folder, held)
        yield from _plots(read, folder, held)
    if (folder / "dump.txt").exists():
        yield from _dump(folder)
    if (folder / "recording").exists():
        yield from _recording(folder)


def _everything(
    line: CommandLine, proven: CommandLine, log_dirs: Sequence[str], found: Sequence[Finding], logs: Sequence[str]
) -> Iterator[Call]:
    """Each command that reads files, in each format."""
    first = next(each for each in found if each.verdict in {"hanging", "stuck_ending"})
    where = f"{first.topic}-{first.partition}"
    options = ["--topic", str(first.topic), "--partition", str(first.partition)]
    ids = [name for each in found if each.transactional_id for name in ("--transactional-id", each.transactional_id)][
        :4
    ]
    paths = CommandLine(around=line.around)
    for output in FORMATS:
        written = ["--format", output]
        yield proven("find-hanging", *written, name=f"find-hanging-{output}")
        yield line("history", *ids, *logs, *written, name=f"history-{output}")
        yield line("lag", *written, name=f"lag-{output}")
        yield line("exposure", *written, name=f"exposure-{output}")
        yield line("coordinator", *ids, "--group", "billing", *written, name=f"coordinator-{output}")
        yield line("why", f"{where}@{first.start_offset}", *written, name=f"why-{output}")
        yield line("gaps", where, *written, name=f"gaps-{output}")
        yield proven("explain", f"transactionalId={first.transactional_id} was fenced: ProducerFencedException",
                     *options, *written, name=f"explain-{output}")  # fmt: skip
        yield paths("scan", *log_dirs, "--table", "log_transactions", *options, *written, name=f"scan-{output}")
        yield paths("txn-stat", *log_dirs, *options, *written, name=f"txn-stat-{output}")
    yield paths("scan", *log_dirs, "--table", "batches", "--producer-id", str(first.producer_id), "--crc",
                name="scan-of-producer")  # fmt: skip
    yield paths("scan", *log_dirs, "--table", "log_transactions", "--output", "found.csv", name="scan-to-file")
    if logs:
        yield paths("scan", *log_dirs, *logs, "--table", "cluster_events", name="scan-cluster-events")
    producer = ["--producer-id", str(first.producer_id), "--producer-epoch", str(first.producer_epoch)]
    yield paths("abort-command", *log_dirs, *producer, name="abort-command")
    yield paths("abort-command", *log_dirs, *producer, *options, "--consistent-copy", name="abort-command-proven")
    yield paths("copy", log_dirs[0], "copied", "--topic", str(first.topic), name="copy")
    yield proven("diagnose", *options, "--no-log-evidence", name="diagnose-no-log-evidence")
    yield proven("report", "--redact", "--min-held", "0s", "--output", "report.md", name="report-redacted")


def _complete(folder: Path, source: Sequence[str]) -> Iterator[Call]:
    """What is selected, what is refused, and what a damaged or a partial copy shows."""
    line = CommandLine(around=folder)
    for name, options in SELECTED.items():
        yield line("scan", "log-dir", "--table", *options, name=f"scan-selected-{name}")
    for name, options in WRONG.items():
        yield line("scan", "log-dir", "--table", *options, name=f"wrong-scan-{name}")
    yield line("history", "--log-dir", "log-dir", *OF_ID, name="history-unknown")
    yield line("explain", POSITION, *source, name="explain-position")
    yield line("explain", "nothing known", *source, name="explain-unknown")
    yield line("report", *source, "--output", "log-dir/report.md", name="wrong-report-own-input")
    yield line("report", *source, "--output", "report.md", "--audit-file", "no.jsonl", name="wrong-report-audit-file")
    for name, epoch in (("epoch", ["1", "--producer-epoch", "7"]), ("producer", ["42", "--producer-epoch", "0"])):
        yield line("abort-command", "log-dir", "--consistent-copy", "--producer-id", *epoch,
                   name=f"abort-command-another-{name}")  # fmt: skip
    yield figure(
        partial(LogDir, "log-dir"), lambda files: plot_lag(files.group_lag("billing")), around=folder, name="lag"
    )
    alone = CommandLine(around=folder / "log-dir")
    yield alone("diagnose", "--log-dir", "orders-0", "--consistent-copy", name="diagnose-partition-alone")
    (segment,) = (folder / "log-dir" / "orders-0").glob("*.log")
    torn = CommandLine(files={f"orders-0/{segment.name}": segment.read_bytes()[:-3]})
    yield torn("scan", "orders-0", "--table", "batches", name="scan-torn")
    yield torn("txn-stat", "orders-0", name="txn-stat-torn")
    names = {each.name for each in (folder / "log-dir").iterdir() if each.is_dir()}
    of_data = sorted(each for each in names if not each.startswith("__"))
    data = CommandLine(around=_linked(folder / "log-dir", "data", tuple(of_data)))
    yield data("history", "--log-dir", "data", *OF_ID, name="history-without-state")
    yield data("scan", "data", "--table", "transaction_history", *OF_ID, name="scan-without-state")
    yield data("lag", "--log-dir", "data", "--group", "billing", name="lag-without-offsets")
    yield data("explain", POSITION, "--log-dir", "data", name="explain-without-offsets")
    coordinators = CommandLine(around=_linked(folder / "log-dir", "coordinators", tuple(sorted(names - {*of_data}))))
    for name, group in (("group", ["--group", "billing"]), ("all", [])):
        yield coordinators("lag", "--log-dir", "coordinators", *group, "--format", "json",
                           name=f"lag-without-logs-{name}")  # fmt: skip


def _tools(read: Callable[[], LogDir], folder: Path, first: Finding) -> Iterator[Call]:
    place: dict[str, Any] = {"topic": first.topic, "partition": first.partition}
    yield tool(read, "diagnose", around=folder, **place)
    yield tool(read, "explain", around=folder, text=f"ProducerFencedException: {first.transactional_id}")
    yield tool(read, "why", around=folder, **place, offset=first.start_offset)
    yield tool(read, "history", around=folder, transactional_id=first.transactional_id or "nobody")
    yield tool(read, "lag", around=folder, group="billing")
    yield tool(read, "report", around=folder, **place)
    yield tool(read, "plan_abort", around=folder, **place, start_offset=first.start_offset)


def _plots(read: Callable[[], LogDir], folder: Path, held: Finding) -> Iterator[Call]:
    where: dict[str, Any] = {"topics": [held.topic], "partitions": [held.partition]}

    def timeline(files: LogDir) -> go.Figure:
        return plot_timeline(
            files.log_transactions(**where),
            lso_timeline=files.lso_timeline(**where),
            partitions=files.partitions(**where),
            findings=files.findings(**where),
            transaction_history=files.transaction_history(),
            cluster_events=files.cluster_events(),
        )

    def overview(files: LogDir) -> go.Figure:
        return plot_overview(files.findings(), partitions=files.partitions())

    for plot in (timeline, overview):
        yield figure(read, plot, around=folder, name=plot.__name__)


def _parts(folder: Path, log_dirs: Sequence[str]) -> Iterator[Call]:
    """What parts of a log directory prove."""
    names = sorted(each.name for each in (folder / log_dirs[0]).iterdir() if each.is_dir())
    state = [each for each in names if each.startswith(STATE_TOPIC)]
    parts = {
        "without-state": [each for each in names if each not in state],
        "state-alone": state,
        "half-of-state": [each for each in names if each not in state[::2]],
    }
    for part, folders in parts.items():
        partial_copy = CommandLine(around=_linked(folder / log_dirs[0], part, tuple(folders)))
        yield partial_copy("diagnose", "--log-dir", part, "--consistent-copy", name=f"diagnose-{part}")
    alone = CommandLine(around=_linked(folder / log_dirs[0], "state-alone", tuple(state)))
    yield alone("scan", "state-alone", "--table", "transaction_history", name="scan-state-alone")


@cache
def _linked(log_dir: Path, part: str, folders: tuple[str, ...]) -> Path:
    """A folder with a part of a log directory."""
    around = Path(tempfile.mkdtemp(dir=_temporary()))
    (around / part).mkdir()
    for each in folders:
        (around / part / each).symlink_to(log_dir / each)
    return around


def _dump(folder: Path) -> Iterator[Call]:
    """The text of kafka-dump-log.sh."""
    line = CommandLine(around=folder)
    yield line("diagnose", "--log-dir", "dump.txt", name="diagnose-dump")
    yield line("scan", "dump.txt", "--table", "batches", name="scan-dump")
    yield line("txn-stat", "dump.txt", name="txn-stat-dump")


def _recording(folder: Path) -> Iterator[Call]:
    """The samples of the recorder."""
    line = CommandLine(source=["--recording", "recording"], around=folder)
    read = partial(Recording, "recording")
    for each in FORMATS:
        yield line("diagnose", "--format", each, name=f"diagnose-recording-{each}")
    at = ["--at", samples.load("flight-recording").at.isoformat()]  # type: ignore[union-attr]
    yield line("diagnose", *at, name="diagnose-recording-at")
    yield line("find-hanging", *at, name="find-hanging-recording-at")
    yield line("why", "orders-0@15", *at, name="why-recording-at")
    yield line("report", *at, "--output", "report.md", name="report-recording-at")
    yield line("report", "--audit-file", "audit.jsonl", "--output", "report.md", name="report-recording")
    yield line("report", "--log-dir", "log-dir", "--consistent-copy", "--output", "report.md", name="report-both")
    wrong = {"topic": ["--topic", "nowhere"], "time": ["--at", "yesterday"], "at": ["--at", "2020-01-01T00:00:00Z"]}
    for name, options in wrong.items():
        yield line("find-hanging", *options, name=f"wrong-recording-{name}")
    yield CommandLine(around=folder)("record", "--output", "recording/samples", "--bootstrap-server", "x:1",
                                     name="wrong-recording-output")  # fmt: skip
    yield line("report", "--log-dir", "log-dir", *at, "--output", "report.md", name="wrong-report-at-of-both")
    with_files = ["--log-dir", "log-dir", "--consistent-copy", "--audit-file", "audit.jsonl"]
    yield line("report", *with_files, "--redact", "--output", "report.md", name="report-both-redacted")
    for name in tables_of(RECORDING):
        yield table(read, RECORDING, name, around=folder)


def dump_calls() -> Iterator[Call]:
    """Dumps by kafka-dump-log of other versions."""
    for version in sorted(each.name for each in (DUMPS / "dumps").iterdir()):
        line = CommandLine(around=DUMPS / "dumps" / version)
        for text in sorted((DUMPS / "dumps" / version).glob("*.txt")):
            yield line("scan", text.name, "--table", "batches", name=f"scan-{version}-{text.stem}")
    wordings, logs = DUMPS / "broker-log-wordings", CommandLine(around=DUMPS / "broker-logs")
    events = ["--broker-log", "server.log", "--table", "cluster_events", "--format", "json"]
    yield CommandLine(around=wordings)("scan", *events, name="scan-broker-log-wordings")
    for log in sorted((DUMPS / "broker-logs").iterdir()):
        options = ["--broker-log-time-zone", "Europe/Berlin", "--table", "cluster_events", "--format", "json"]
        yield logs("scan", "--broker-log", log.name, *options, name=f"scan-{log.stem}")
