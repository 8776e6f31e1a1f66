"""An answer of the source that the options name, or of each cluster of the file; once, or again and again."""

from __future__ import annotations

import csv
import json
import sys
import threading
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import sleep
from typing import Any, NoReturn, TypeVar

import typer

from toolkit.cli.options import SourceOptions
from toolkit.cli.output import CLUSTER_NAME, INCOMPLETE, NOT_FOUND, Answer, Format, answer_json, remark, show
from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.schema.table import utc_now
from toolkit.views.document import NOWHERE
from toolkit.views.row_formats import json_default

T = TypeVar("T")

PARALLEL = 8  # clusters that are read at a time
SCHEMA, VERSION = "clusters", 1  # of `ClusterRow` in JSON; the version is raised when a field of it changes
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
CLEAR = "nothing to do"
CODES = {1: "something to do", INCOMPLETE: "not known", NOT_FOUND: "not found"}


Read = Callable[[SourceOptions], Answer]
Look = Callable[[], "Answer | ClusterAnswers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """The answer of one cluster as data."""

    cluster: str
    exit_code: int
    error: str | None  # why there is no answer: then nothing is known of this cluster
    answer: Mapping[str, Any] | None  # that of the same command with --cluster


def answer_sources(
    read: Read, source_options: SourceOptions, output: Format, *, watch: float | None = None, clear: str = CLEAR
) -> NoReturn:
    """Write what is read of the source, or of each cluster.

    `watch`: seconds between two looks; null for one. `clear`: what exit code 0 means of a cluster.
    Raises typer.Exit with the exit code; of several clusters the most severe one.
    """
    if watch is not None and source_options.log_dir:
        raise UsageError("--watch needs a cluster or a recording: files are copied once.", do="Leave it out.")
    look: Look = partial(read, source_options)
    if source_options.all_clusters:
        look = partial(_look_at_all, read, source_options.each_cluster(), clear)
    code = look().write(output) if watch is None else _watched(look, watch, output)
    raise typer.Exit(code)


def _watched(look: Look, interval: float, output: Format) -> int:
    """The exit code of the last look, at findings, when Ctrl-C ends it. One that fails is shown; the first one ends it.

    As csv, a look that found nothing is a row with its time only, and one that failed a row with its error; as JSON,
    that is a finding about the cluster.
    """
    code: int | None = None
    columns: list[str] = []
    key: Hashable = object()
    try:
        while True:
            try:
                answer = look()
            except UsageError:
                raise
            except ToolkitError as error:
                if code is None:
                    raise
                answer = _failed(error, "kafka-txn")
                if output is Format.JSON:
                    answer = _failed_finding(answer)
            if is_terminal := sys.stdout.isatty() and output is not Format.CSV:
                text = f"{utc_now():%Y-%m-%d %H:%M:%S} UTC; again every {interval:g} s, Ctrl-C ends it."
                sys.stdout.write(CLEAR_SCREEN)
                show([text, ""])
            elif answer.key != key and output is Format.TABLE:
                show([*([] if code is None else [""]), f"{utc_now():%Y-%m-%d %H:%M:%S} UTC"])
            if is_terminal or answer.key != key:
                if output is Format.CSV:
                    new_columns, *rows = csv_lines(answer, columns)
                    header = [["looked_at", *new_columns]] if new_columns not in (columns, []) else []
                    columns = new_columns or columns
                    _write_csv([*header, *([f"{utc_now():%Y-%m-%dT%H:%M:%SZ}", *row] for row in rows or [[]])])
                    code = answer.end()
                else:
                    code = answer.write(output)
                key = answer.key
                sys.stdout.flush()
            sleep(interval)
    except KeyboardInterrupt:
        if code is None:
            raise
        return code


def csv_lines(answer: Answer | ClusterAnswers, columns: Sequence[str] = ()) -> list[list[Any]]:
    """Its columns, and its rows as cells of CSV; without a table only a row with its error, below `columns`."""
    from toolkit.views.row_formats import csv_cells

    if isinstance(answer, ClusterAnswers):
        return answer.csv_lines()
    table = answer.table
    if table is None:
        return [[], [answer.error if column == "error" else "" for column in columns]]
    return [list(table.names), *(csv_cells(table, row) for row in answer.rows)]


def _write_csv(rows: Iterable[Sequence[str]]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


@dataclass(frozen=True, slots=True)
class ClusterAnswers:
    """The answers of all clusters; `clear`: what exit code 0 means of one."""

    found: Mapping[str, Answer]
    clear: str

    @property
    def key(self) -> Hashable:
        """As of an answer."""
        return tuple(each.key for each in self.found.values())

    def write(self, output: Format) -> int:
        """Write one after another; return the exit code."""
        if output is Format.CSV:
            _write_csv(self.csv_lines())
            return self.end()
        codes: dict[str, int] = {}
        rows: list[ClusterRow] = []
        for name, each in self.found.items():
            if output is Format.JSON:
                answer = each.json_value()
                codes[name] = self._end(name) if answer else each.code or INCOMPLETE
                rows.append(ClusterRow(cluster=name, exit_code=codes[name], error=each.error, answer=answer))
                continue
            show([f"Cluster {name}:"])
            if each.error is None:
                codes[name] = _named(name, each.write, output)
            else:
                codes[name] = each.code or INCOMPLETE
                show([f"{CODES[codes[name]].capitalize()}: {each.error}"])
            show([""])
        if output is Format.JSON:
            pieces = json.dumps([asdict(row) for row in rows], indent=1, default=json_default)
            answer_json(SCHEMA, VERSION, [f"{pieces}\n"], source=None, scope=None)
        else:
            show([_sum(codes, self.clear)])
        return _worst(codes)

    def csv_lines(self) -> list[list[Any]]:
        """The rows of all below one header; a cluster without an answer is a row with its error."""
        tables = {name: csv_lines(each) for name, each in self.found.items() if each.table}
        columns = next((columns for columns, *_ in tables.values()), ["error"])
        lines = [["cluster", *columns]]
        for name, each in self.found.items():
            failed = [[each.error if column == "error" else "" for column in columns]]
            lines += ([name, *row] for row in (tables[name][1:] if each.table else failed))
        return lines

    def end(self) -> int:
        """Say the remarks of each; return the exit code."""
        return _worst({name: self._end(name) for name in self.found})

    def _end(self, name: str) -> int:
        return _named(name if self.found[name].table else "", self.found[name].end)


def _look_at_all(read: Read, each_cluster: Sequence[SourceOptions], clear: str) -> ClusterAnswers:
    """The answers of all clusters, which are read side by side."""
    found: dict[str, Answer] = {}
    slots = threading.BoundedSemaphore(PARALLEL)

    def read_one(options: SourceOptions) -> None:
        name = options.cluster_name or ""
        CLUSTER_NAME.set(name)
        try:
            with slots:
                found[name] = read(options)
        except Exception as error:  # noqa: BLE001 - the others have an answer; of this one nothing is known
            if not isinstance(error, ToolkitError):
                remark(traceback.format_exc())
            found[name] = _failed(error, f"Cluster {name}")

    # Ctrl-C does not wait for them, as it would for those of an executor.
    threads = [threading.Thread(target=read_one, args=(each,), daemon=True) for each in each_cluster]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [each.cluster_name or "" for each in each_cluster]
    ended = RuntimeError("it ended without an answer")
    return ClusterAnswers({name: found.get(name) or _failed(ended, f"Cluster {name}") for name in names}, clear)


def _failed(error: Exception, who: str) -> Answer:
    """Why there is no answer."""
    text = str(error) if isinstance(error, ToolkitError) else f"a defect of kafka-txn: {type(error).__name__}"
    code = NOT_FOUND if isinstance(error, NotFound) else INCOMPLETE
    return Answer(error=text, remarks=[f"{who}: {text}"], code=code, key=text)


def _failed_finding(answer: Answer) -> Answer:
    """Findings of which nothing is known, for programs: without an answer the one before would seem to hold."""
    from toolkit.analysis.diagnosis.decision import decide_unknown
    from toolkit.views.finding_document import LINKED_FINDINGS, linked_row

    error = answer.error or ""
    decided = decide_unknown(
        "The cluster could not be looked at.",
        remedy="Get what is missing, and diagnose again.",
        missing=(error,),
        is_open=False,
    )
    finding = replace(decided.finding(observed_at=utc_now()), error=error)
    return replace(answer, table=LINKED_FINDINGS, rows=[linked_row(finding, NOWHERE)])


def _named(name: str, function: Callable[..., T], *arguments: object) -> T:
    """What a function returns; its remarks on stderr name the cluster."""
    before = CLUSTER_NAME.set(name)
    try:
        return function(*arguments)
    finally:
        CLUSTER_NAME.reset(before)


def _worst(codes: Mapping[str, int]) -> int:
    return min({*codes.values()} - {0}, default=0)


def _sum(codes: Mapping[str, int], clear: str) -> str:
    """``3 clusters: 1 something to do (prod-eu), 1 not known (prod-us), 1 nothing to do``."""
    parts = []
    for code, text in (*CODES.items(), (0, clear)):
        if names := [name for name, each in codes.items() if each == code]:
            parts.append(f"{len(names)} {text}" + (f" ({', '.join(names)})" if code else ""))
    return f"{len(codes)} cluster{'' if len(codes) == 1 else 's'}: {', '.join(parts)}."
