"""This machine's clock decides nothing: what decides and acts reads it where it is listed here, and no more."""

import ast
from pathlib import Path

import pytest

import toolkit

ROOT = Path(toolkit.__file__).parent
NO_CLOCK = (  # packages and modules that decide, act, or give an age
    "analysis",
    "actions",
    "sources/live",
    "sources/recording",
    "views/finding_document.py",
    "views/show_table.py",
    "views/panel",
)
OBSERVED = "observed_at"
RECORDER = "by the recorder's clock"
ALLOWED = {  # package and function in which the clock is read, or a time of it is compared, and why
    ("actions", "_write"): "when a line of the audit trail was written",
    ("sources/live", "_receive"): OBSERVED,
    ("sources/live", "_send_queue"): OBSERVED,
    ("sources/live", "_error_response"): OBSERVED,
    ("sources/live", "_failure"): OBSERVED,
    ("sources/live", "_gone"): OBSERVED,
    ("sources/live", "_missing"): OBSERVED,
    ("sources/live", "observe"): OBSERVED,
    ("sources/live", "read_excerpts"): OBSERVED,
    ("sources/live", "read_metadata"): OBSERVED,
    ("sources/live", "_controllers_clock"): "the warning: it is no evidence",
    ("sources/live", "_of_record"): "the warning: it is no evidence",
    ("sources/recording", "take"): f"observed_at, {RECORDER}",
    ("sources/recording", "_now"): f"when samples are due, {RECORDER}",
    ("sources/recording", "_is_reported"): f"first seen and seen now, both {RECORDER}",
    ("analysis", "between"): f"two samples of one recorder, {RECORDER}",
    ("analysis", "close_by_observation"): "which of two samples is newer",
    ("analysis", "without_stale"): "which of two samples is newer",
    ("analysis", "_gone"): "the time between two samples of one recorder",
    ("analysis", "finding"): "the time between two samples of one recorder",
    ("views/finding_document.py", "newest"): "an axis needs an end: no age is counted up to it",
    ("views/show_table.py", "_finding_rows"): "an empty row, of whose cells only the types count",
    ("views/panel", "_refresh"): "when the panel was drawn",
}


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


@pytest.mark.parametrize(
    "code",
    [
        "age = utc_now() - owner.start_time",
        "now = dt.datetime.now(dt.UTC)",
        "age = owner.observed_at - owner.start_time",
        "if finding.opened_at > finding.observed_at: pass",
        "started = time.time()",
    ],
)
def test_each_form_of_it_is_seen(code: str) -> None:
    assert len(clock_reads(code)) == 1
