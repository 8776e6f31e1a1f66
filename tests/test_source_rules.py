"""Rules of the toolkit's source that no linter knows.

First: no argument is lost on its way. Each parameter is read, and passed to a callee that takes it by the same name.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent / "toolkit"
Function = ast.FunctionDef | ast.Lambda

UNUSED = {  # functions whose callers decide what they take
    "_repr_mimebundle_": "IPython",
    "kafka_txn": "--version is read by its callback",
    "offsets_log_in": "ReplicaLog",
    "on_sample": "RecorderListener",
    "parts_near": "ReplicaLog",
}
NOT_PASSED = {  # caller and callee: why an optional argument of the same name is another one, or is left out
    ("at_missing_offsets", "LogChunk"): "an end of bytes",
    ("_first_batch", "read_header"): "of the bytes that were fetched",
    ("_decided", "record_entry"): "a name of our own",
    ("_open", "init"): "only where it is set",
    ("commit_offset", "coordinator"): "of the id",
    ("transaction_history", "only"): "its rows are filtered by it, not its records",
    ("clocks_apart", "BrokersTime"): "a time that nothing proves",
    ("leads_all", "send_one"): "any broker knows the leaders",
    ("listed", "replica_logs"): "an all-clear needs the other logs, too",
    ("lso_timeline_tables", "LogFold"): "the log end is known once it is read",
    ("own_findings", "sample_row"): "the newest sample, as at is null",
    ("read", "until"): "each poll has its own time",
    ("read_window", "known_before"): "nothing is read before the first segment",
    ("register", "register"): "of Spark",
    ("show", "one_table"): "known only once its columns are",
    ("transaction_history", "HistoryState"): "it collects the events",
    ("advance", "HistoryState"): "the next records are those of the next state",
}


NAMED_OTHERWISE = {  # arguments that are named like another parameter of their callee, and right
    "Coordinator(broker_id=coordinator_id)", "Observation(partitions_after=partitions)",
    "Observation(producers_after=producers)", "OffsetsLogRecord(group_partition=partition)", "Outcome(reason=missing)",
    "Partition(broker_id=leader)", "TableCell(key=verdict)", "Transaction(coordinator_id=broker_id)",
    "_of_record(written=response)", "_read_headers(end=at)", "answer_parts(of=findings)", "body_html(below=headings)",
    "class_archive_options(new=archive)", "decide_open_after_marker(marker_time=end)", "decompress(codec=data)",
    "is_contiguous(stop=start)", "of_topic(name=topic)", "ticks_of(settings=axis)",
}  # fmt: skip


class Parameters(NamedTuple):
    """What a function or a class takes."""

    positional: list[str]
    optional: set[str]


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(ROOT.rglob("*.py"))]


@cache
def definitions() -> dict[str, list[Parameters]]:
    """The functions and classes of the toolkit by their name."""
    found = defaultdict(list)
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name != "__new__":  # str has one, too
                found[node.name].append(parameters(node.args))
            elif isinstance(node, ast.ClassDef):
                made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
                if made:
                    found[node.name].append(parameters(made[0].args))
                elif any("dataclass" in ast.dump(each) for each in node.decorator_list):
                    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                    by_name = {each.target.id: each.value for each in fields if isinstance(each.target, ast.Name)}
                    optional = {name for name, default in by_name.items() if default is not None}
                    found[node.name].append(Parameters([*by_name], optional))
    return found


def parameters(arguments: ast.arguments) -> Parameters:
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    optional = {*positional[len(positional) - len(arguments.defaults) :]} if arguments.defaults else set()
    optional |= {each.arg for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default}
    return Parameters([each for each in positional if each not in {"self", "cls"}], optional)


def callee_of(call: ast.Call) -> str:
    return str(getattr(call.func, "id", None) or getattr(call.func, "attr", ""))


def names(arguments: ast.arguments) -> set[str]:
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return {each.arg for each in every if each} - {"self", "cls"}


def of_options(function: Function) -> set[str]:
    """What a function reads of options or arguments that it gets as an object."""
    attributes = [each for each in ast.walk(function) if isinstance(each, ast.Attribute)]
    return {each.attr for each in attributes if (_name(each.value) or "").endswith(("options", "arguments"))}


def is_constant(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Tuple) and not value.elts)


def left_out(node: ast.AST, own: frozenset[str], function: str) -> Iterator[tuple[str, str, str, int]]:
    """Caller, callee, argument and line where a parameter of the caller is not passed to a callee that takes it."""
    outside = own
    if isinstance(node, Function):
        own = own | names(node.args) | of_options(node)
        function = getattr(node, "name", function)
    if isinstance(node, ast.Call):
        name = callee_of(node)
        passed = {each.arg for each in node.keywords if each.arg not in own or not is_constant(each.value)}
        if None not in passed and not any(isinstance(each, ast.Starred) for each in node.args):
            lacks = [
                (own & each.optional) - passed - {*each.positional[: len(node.args)]} for each in definitions()[name]
            ]
            for argument in set.intersection(*map(set, lacks)) if lacks else ():
                yield function, name, argument, node.lineno
    for child in ast.iter_child_nodes(node):
        is_inside = child not in getattr(node, "decorator_list", ())
        yield from left_out(child, own if is_inside else outside, function)


def test_each_optional_argument_is_passed_on() -> None:
    found = [(path, *each) for path, tree in trees() for each in left_out(tree, frozenset(), "")]
    wrong = [f"{path}:{line}: {caller} does not pass {argument} to {callee}"
             for path, caller, callee, argument, line in found if (caller, callee) not in NOT_PASSED]  # fmt: skip
    assert not wrong, "\n".join(wrong)
    assert {(caller, callee) for _, caller, callee, _, _ in found} == NOT_PASSED.keys(), "explained, and gone"


def test_each_parameter_is_read() -> None:
    """But for those of functions that are passed as a value, and of methods that another class has, too."""
    nodes = [each for _, tree in trees() for each in ast.walk(tree)]
    called = {id(each.func) for each in nodes if isinstance(each, ast.Call)}
    values = {each.id for each in nodes if isinstance(each, ast.Name) and id(each) not in called}
    values |= {each.attr for each in nodes if isinstance(each, ast.Attribute) and id(each) not in called}
    unused: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name not in values and not node.name.startswith("__"):
            body = [each for each in node.body if not isinstance(each, ast.Expr | ast.Pass | ast.Raise)]
            read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            unread = [each for each in names(node.args) - read if not each.startswith("_")]
            unused[node.name] += bool(body) and len(unread)
    assert {name for name, number in unused.items() if number} == UNUSED.keys()


def test_no_argument_is_in_the_place_of_another() -> None:
    """What has the name of another parameter of the callee is most likely in the wrong place."""
    found = {}
    for path, tree in trees():
        for node in ast.walk(tree):
            callee = callee_of(node) if isinstance(node, ast.Call) else ""
            if not isinstance(node, ast.Call) or len(definitions()[callee]) != 1:
                continue
            (declared,) = definitions()[callee]
            passed = [(each.arg, each.value) for each in node.keywords if each.arg]
            passed += zip(declared.positional, node.args, strict=False)
            known = {*declared.positional, *declared.optional, *(name for name, _ in passed)}
            for name, value in passed:
                other = str(getattr(value, "id", None) or getattr(value, "attr", "")).lstrip("_")
                if other != name and other in known:
                    found[f"{callee}({name}={other})"] = f"{path}:{node.lineno}"
    assert found.keys() == NAMED_OTHERWISE, {each: found.get(each) for each in found.keys() ^ NAMED_OTHERWISE}


# One place decides: only `toolkit.analysis.diagnosis.decision` and its rules set a verdict, or change one


DECIDES = {ROOT / "analysis" / "diagnosis" / name for name in ("decision.py", "rules.py")}  # and each does
PARTS = {"verdict", "outcome", "action", "remedy", "missing"}  # of a decision, which is applied whole
MAKERS = {"Finding", "replace"}


def violations(tree: ast.AST) -> list[int]:
    """Lines that set a verdict to a literal, or make a finding with a part of a decision."""
    return sorted({line for node in ast.walk(tree) for line in _of(node)})


def _of(node: ast.AST) -> Iterator[int]:
    for name, value in _settings(node):
        if name == "verdict" and _has_text(value):
            yield value.lineno
    if isinstance(node, ast.Call) and _name(node.func) in MAKERS:
        yield from (each.value.lineno for each in node.keywords if each.arg in PARTS and _is_finding(node, each))


def _settings(node: ast.AST) -> Iterator[tuple[str | None, ast.expr]]:
    """Names with the values that they get: as an argument, an attribute, a key or an item."""
    match node:
        case ast.Call(keywords=keywords):
            yield from ((each.arg, each.value) for each in keywords)
        case ast.Dict(keys=keys, values=values):
            yield from ((_name(key), value) for key, value in zip(keys, values, strict=True) if key is not None)
        case ast.Assign(targets=targets, value=value):
            yield from ((_name(each), value) for each in targets if not isinstance(each, ast.Name))


def _name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return None


def _has_text(value: ast.expr) -> bool:
    """Whether a value is, or may be, a literal text or a verdict by its name."""
    match value:
        case ast.Attribute(value=ast.Name(id="Verdict")):
            return True
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.IfExp(body=body, orelse=orelse):
            return _has_text(body) or _has_text(orelse)
        case ast.BoolOp(values=values):
            return any(map(_has_text, values))
    return False


def _is_finding(call: ast.Call, keyword: ast.keyword) -> bool:
    """Whether a call makes a finding; others have an `action` or `missing` of their own."""
    return _name(call.func) == "Finding" or keyword.arg == "verdict"


def test_only_the_decision_sets_a_verdict() -> None:
    assert {path for path, tree in trees() if violations(tree)} == DECIDES


# This machine's clock decides nothing: what decides and acts reads it where it is listed here, and no more


NO_CLOCK = (  # packages and modules that decide, act, or give an age
    "analysis", "actions", "sources/live", "sources/recording", "views/finding_document.py", "views/show_table.py",
    "views/panel",
)  # fmt: skip
RECORDER = "by the recorder's clock"
ALLOWED = {  # package and function in which the clock is read, or a time of it is compared, and why
    ("actions", "_write"): "when a line of the audit trail was written",
    **{
        ("sources/live", name): "observed_at" for name in (
            "_receive", "_send_queue", "_error_response", "_failure", "_gone", "_missing", "observe", "read_excerpts",
            "_metadata", "describe_named", "read_coordinators")
    },
    **{("sources/live", name): "the warning: it is no evidence" for name in ("_controllers_clock", "_of_record")},
    ("sources/recording", "take"): f"observed_at, {RECORDER}",
    ("sources/recording", "_now"): f"when samples are due, {RECORDER}",
    ("sources/recording", "_is_reported"): f"first seen and seen now, both {RECORDER}",
    ("sources/recording", "newer_samples"): "a sample of the future: it counts against an answer",
    ("analysis", "between"): f"two samples of one recorder, {RECORDER}",
    **{("analysis", name): "which of two samples is newer" for name in ("close_by_observation", "without_stale")},
    **{("analysis", name): "the time between two samples of one recorder" for name in ("_gone", "finding")},
    ("views/finding_document.py", "newest"): "an axis needs an end: no age is counted up to it",
    ("views/show_table.py", "_finding_rows"): "an empty row, of whose cells only the types count",
    ("views/panel", "_refresh"): "when the panel was drawn",
}  # fmt: skip


def clock_reads(source: str) -> list[tuple[str, int]]:
    """Function and line of each read of this machine's clock, and of each difference and order of `observed_at`."""
    found: list[tuple[str, int]] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if _reads(node) or _computes(node):
            found.append((function, node.lineno))  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


def _reads(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="utc_now")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="datetime"), attr="now" | "utcnow" | "today")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="time")):
            return True
    return False


def _computes(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return any(map(_is_observed_at, (node.left, node.right)))
    if isinstance(node, ast.Compare) and any(
        isinstance(each, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in node.ops
    ):
        return any(map(_is_observed_at, (node.left, *node.comparators)))
    return False


def _is_observed_at(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "observed_at"


def reads_of(name: str) -> set[tuple[str, str]]:
    """Where a package or module reads the clock."""
    path = ROOT / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    assert files, name
    return {(name, function) for each in files for function, _ in clock_reads(each.read_text())}


@pytest.mark.parametrize("name", NO_CLOCK)
def test_no_decision_reads_the_clock_of_this_machine(name: str) -> None:
    """And each exception is one."""
    assert reads_of(name) == {each for each in ALLOWED if each[0] == name}


# Names from outside reach a terminal or a shell by what cleans and quotes them


FLAGS_OF_NAMES = re.compile(
    r"--(?:topic|transactional-id|group|list|confirm|override|log-dir|recording|command-config|flink-checkpoint) $"
)
QUOTED = re.compile(r"(?:shlex\.)?quote\(|^(?:path|name|override|OFFSETS_TOPIC)$")
WRITES = {"print", "sys.stderr.write", "sys.stdout.write", "typer.echo"}
WRITERS = {  # what writes to the terminal by itself: no names from outside
    "_clear": "moves the cursor",
    "_show": "counts and times of samples",
    "_version": "our version",
    "end": "a line end",
    "grafana_dashboard": "our dashboard",
    "main": "our sentence",
    "prometheus_rules": "our rules",
}


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    return ((path, node) for path, tree in trees() for node in ast.walk(tree))


def test_only_the_output_writes_to_the_terminal() -> None:
    found = {
        node.name
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef) and path.parent.name == "cli" and path.name != "output.py"
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in WRITES
    }
    assert found == WRITERS.keys()


def test_names_in_commands_are_quoted() -> None:
    raw = []
    for path, node in nodes():
        for before, value in pairwise(node.values if isinstance(node, ast.JoinedStr) else ()):
            if isinstance(value, ast.FormattedValue) and FLAGS_OF_NAMES.search(str(getattr(before, "value", ""))):
                shown = ast.unparse(value.value)
                raw += [f"{path.relative_to(ROOT)}:{value.lineno}: {shown}"] if not QUOTED.search(shown) else []
    assert not raw, "\n".join(raw)
