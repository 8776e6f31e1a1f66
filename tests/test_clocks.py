"""This machine's clock decides nothing: what decides and acts reads it where it is listed here, and no more."""

import ast
from pathlib import Path

import pytest

import toolkit

ROOT = Path(toolkit.__file__).parent
NO_CLOCK = (  # packages and modules that decide, act, or give an age
    "analysis",
    "actions",
    "sources/live/observe.py",
    "sources/live/transaction_listing.py",
    "sources/live/cluster.py",
    "sources/live/exposure.py",
    "sources/live/state/brokers_time.py",
    "sources/recording",
    "views/finding_document.py",
    "views/show_table.py",
    "views/panel",
)
ALLOWED = {  # in which function the clock is read, or a time of it is compared, and why
    ("actions/audit.py", "_write"): "when a line of the audit trail was written",
    ("sources/live/observe.py", "observe"): "observed_at",
    ("sources/live/transaction_listing.py", "_missing"): "observed_at",
    ("sources/live/state/brokers_time.py", "_controllers_clock"): "the warning: it is no evidence",
    ("sources/live/state/brokers_time.py", "_of_record"): "the warning: it is no evidence",
    ("sources/recording/sampler.py", "failed_sample"): "observed_at, by the recorder's clock",
    ("sources/recording/recorder.py", "_now"): "when samples are due, by the recorder's clock",
    ("sources/recording/metrics.py", "_is_reported"): "first seen and seen now, both by the recorder's clock",
    ("analysis/diagnosis/observation.py", "between"): "two samples of one recorder, by its clock",
    ("analysis/history/findings_over_time.py", "close_by_observation"): "which of two samples is newer",
    ("analysis/history/findings_over_time.py", "without_stale"): "which of two samples is newer",
    ("analysis/history/findings_over_time.py", "_gone"): "the time between two samples of one recorder",
    ("analysis/history/findings_over_time.py", "finding"): "the time between two samples of one recorder",
    ("views/finding_document.py", "newest"): "an axis needs an end: no age is counted up to it",
    ("views/show_table.py", "_finding_rows"): "an empty row, of whose cells only the types count",
    ("views/panel/abort_panel.py", "_refresh"): "when the panel was drawn",
}


def clock_reads(source: str) -> list[tuple[str, int]]:
    """Function and line of each read of this machine's clock, and of each difference and order of `observed_at`."""
    found: list[tuple[str, int]] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
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


def modules() -> list[Path]:
    paths = [ROOT / each for each in NO_CLOCK]
    return sorted(path for each in paths for path in (each.rglob("*.py") if each.is_dir() else [each]))


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_decision_reads_the_clock_of_this_machine(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    reads = clock_reads(path.read_text())
    assert [each for each in reads if (name, each[0]) not in ALLOWED] == []


def test_each_exception_is_one() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), function)
        for path in modules()
        for function, _ in clock_reads(path.read_text())
    }
    assert ALLOWED.keys() - found == set()


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
