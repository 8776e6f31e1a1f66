"""One place decides: only `toolkit.analysis.diagnosis.decision` and its rules set a verdict, or change one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolkit

ROOT = Path(toolkit.__file__).parent
DECIDES = {ROOT / "analysis" / "diagnosis" / name for name in ("decision.py", "rules.py")}
PARTS = {"verdict", "outcome", "action", "remedy", "missing"}  # of a decision, which is applied whole
MAKERS = {"Finding", "replace"}


def violations(source: str) -> list[int]:
    """Lines that set a verdict to a literal, or make a finding with a part of a decision."""
    return sorted({line for node in ast.walk(ast.parse(source)) for line in _of(node)})


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
    modules = [path for path in sorted(ROOT.rglob("*.py")) if path not in DECIDES]
    assert len(modules) > 100
    assert {path: lines for path in modules if (lines := violations(path.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    [
        'Finding(verdict="hanging")',
        "Report(verdict=Verdict.HANGING)",
        'row = {**row, "verdict": "ended"}',
        'row["verdict"] = "unknown"',
        "f(verdict=Verdict.HANGING if x else y)",
        "replace(finding, verdict=other.verdict)",
        "Finding(topic=topic, action=known.action)",
    ],
)
def test_each_way_to_set_a_verdict_is_found(source: str) -> None:
    assert violations(source) == [1]


def test_reading_a_verdict_is_no_violation() -> None:
    assert (
        violations('x = finding.verdict == "hanging"\nverdict = row["verdict"]\nReport(verdict=row["verdict"])') == []
    )
