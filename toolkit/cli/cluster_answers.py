"""An answer of the source that the options name, or of each cluster of the file; once, or again and again."""

from __future__ import annotations

import csv
import io
import json
import sys
import threading
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from time import sleep
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from toolkit.cli.options import SourceOptions, duration_option
from toolkit.cli.output import CLUSTER_NAME, INCOMPLETE, NOT_FOUND, Format, answer_json, remark, show
from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.schema.table import utc_now

PARALLEL = 8  # clusters that are read at a time
SCHEMA, VERSION = "clusters", 1  # of `ClusterRow` in JSON; the version is raised when a field of it changes
WATCH_INTERVAL = "10s"
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
CLEAR = "nothing to do"
CODES = {1: "something to do", INCOMPLETE: "not known", NOT_FOUND: "not found"}

Watch = Annotated[
    float | None,
    duration_option(
        "--watch",
        f"Look again and again, this long after each look; --watch alone: {WATCH_INTERVAL}. A terminal shows the last "
        "look, a pipe a block for each change. Ctrl-C ends it with the exit code of the last look.",
        at_least=1,
    ),
]


class Answer(NamedTuple):
    """What was read, to be written.

    `write`: writes it and returns the exit code. `key`: what differs where something has changed, apart from ages.
    """

    write: Callable[[], int]
    key: Hashable = None


Read = Callable[[SourceOptions], Answer]


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
    if source_options.all_clusters:
        each_cluster = source_options.each_cluster()

        def look() -> Answer:
            return _answer_of_all(read, each_cluster, output, clear)
    else:

        def look() -> Answer:
            return read(source_options)

    code = look().write() if watch is None else _watched(look, watch, output)
    raise typer.Exit(code)


def _watched(look: Callable[[], Answer], interval: float, output: Format) -> int:
    """The exit code of the last look, when Ctrl-C ends it. A look that fails is shown; the first one ends it.

    As csv, a look that found nothing is a row with its time only.
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
                answer = _failure(error)
            if is_terminal := sys.stdout.isatty() and output is not Format.CSV:
                text = f"{utc_now():%Y-%m-%d %H:%M:%S} UTC; again every {interval:g} s, Ctrl-C ends it."
                sys.stdout.write(CLEAR_SCREEN)
                show([text, ""])
            elif answer.key != key and output is Format.TABLE:
                show([*([] if code is None else [""]), f"{utc_now():%Y-%m-%d %H:%M:%S} UTC"])
            if is_terminal or answer.key != key:
                if output is Format.CSV:
                    code, (new_columns, *rows) = _csv_of(answer)
                    header = [["looked_at", *new_columns]] if new_columns not in (columns, []) else []
                    columns = new_columns or columns
                    _write_csv([*header, *([f"{utc_now():%Y-%m-%dT%H:%M:%SZ}", *row] for row in rows or [[]])])
                else:
                    code = answer.write()
                key = answer.key
                sys.stdout.flush()
            sleep(interval)
    except KeyboardInterrupt:
        if code is None:
            raise
        return code


def _failure(error: ToolkitError) -> Answer:
    def write() -> int:
        remark(f"kafka-txn: {error}")
        return _code_of(error)

    return Answer(write, str(error))


def _csv_of(answer: Answer) -> tuple[int, list[list[str]]]:
    """The exit code of an answer, and what it writes as csv: its columns, which a failure has none of, and its rows."""
    csv.field_size_limit(1 << 30)  # the evidence of a finding
    with redirect_stdout(io.StringIO(newline="")) as written:
        code = answer.write()
    return code, list(csv.reader(io.StringIO(written.getvalue(), newline=""))) or [[]]


def _write_csv(rows: Iterable[Sequence[str]]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


def _code_of(error: Exception) -> int:
    return NOT_FOUND if isinstance(error, NotFound) else INCOMPLETE


def _answer_of_all(read: Read, each_cluster: Sequence[SourceOptions], output: Format, clear: str) -> Answer:
    """One answer of all clusters, which are read side by side and written one after another."""
    found: dict[str, Answer | Exception] = {}
    slots = threading.BoundedSemaphore(PARALLEL)

    def read_one(options: SourceOptions) -> None:
        name = options.cluster_name or ""
        CLUSTER_NAME.set(name)
        try:
            with slots:
                found[name] = read(options)
        except ToolkitError as error:
            found[name] = error
        except Exception as error:  # noqa: BLE001 - the others have an answer; of this one nothing is known
            remark(traceback.format_exc())
            found[name] = error

    # Ctrl-C does not wait for them, as it would for those of an executor.
    threads = [threading.Thread(target=read_one, args=(each,), daemon=True) for each in each_cluster]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [each.cluster_name or "" for each in each_cluster]
    answers = {name: found.get(name) or RuntimeError("it ended without an answer") for name in names}
    key = tuple(each.key if isinstance(each, Answer) else str(each) for each in answers.values())
    return Answer(lambda: _write_all(answers, output, clear), key)


def _write_all(answers: Mapping[str, Answer | Exception], output: Format, clear: str) -> int:
    codes: dict[str, int] = {}
    if output is Format.JSON:
        rows = list(_cluster_rows(answers))
        codes = {row.cluster: row.exit_code for row in rows}
        pieces = json.dumps([asdict(row) for row in rows], indent=1)
        answer_json(SCHEMA, VERSION, [f"{pieces}\n"], source=None, scope=None)
    elif output is Format.CSV:
        codes = _write_rows_of_all(answers)
    else:
        for name, each in answers.items():
            show([f"Cluster {name}:"])
            if isinstance(each, Answer):
                codes[name] = _written(name, each)
            else:
                codes[name] = _code_of(each)
                show([f"{CODES[codes[name]].capitalize()}: {_text(each)}"])
            show([""])
        show([_sum(codes, clear)])
    return min({*codes.values()} - {0}, default=0)


def _write_rows_of_all(answers: Mapping[str, Answer | Exception]) -> dict[str, int]:
    """The rows of all clusters below one header; a cluster without an answer is a row with its error."""
    tables: dict[str, list[list[str]]] = {}
    codes = {name: _code_of(each) for name, each in answers.items() if isinstance(each, Exception)}
    for name, each in answers.items():
        if isinstance(each, Answer):
            codes[name], tables[name] = _csv_of(Answer(partial(_written, name, each)))
    columns = next((table[0] for table in tables.values()), ["error"])
    _write_csv([["cluster", *columns]])
    for name, each in answers.items():
        if isinstance(each, Exception):
            remark(f"Cluster {name}: {_text(each)}")
            tables[name] = [[], [_text(each) if column == "error" else "" for column in columns]]
        _write_csv([name, *row] for row in tables[name][1:])
    return codes


def _cluster_rows(answers: Mapping[str, Answer | Exception]) -> Iterator[ClusterRow]:
    for name, each in answers.items():
        if isinstance(each, Answer):
            with redirect_stdout(io.StringIO()) as written:
                code = _written(name, each)
            yield ClusterRow(cluster=name, exit_code=code, error=None, answer=json.loads(written.getvalue()))
        else:
            yield ClusterRow(cluster=name, exit_code=_code_of(each), error=_text(each), answer=None)


def _written(name: str, answer: Answer) -> int:
    """The exit code of an answer, which is written; its remarks on stderr name the cluster."""
    before = CLUSTER_NAME.set(name)
    try:
        return answer.write()
    finally:
        CLUSTER_NAME.reset(before)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, ToolkitError) else f"a defect of kafka-txn: {type(error).__name__}"


def _sum(codes: Mapping[str, int], clear: str) -> str:
    """``3 clusters: 1 something to do (prod-eu), 1 not known (prod-us), 1 nothing to do``."""
    parts = []
    for code, text in (*CODES.items(), (0, clear)):
        if names := [name for name, each in codes.items() if each == code]:
            parts.append(f"{len(names)} {text}" + (f" ({', '.join(names)})" if code else ""))
    return f"{len(codes)} cluster{'' if len(codes) == 1 else 's'}: {', '.join(parts)}."
