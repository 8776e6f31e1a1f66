"""The faults of a module: one change each, as an author or a merge might make it, by kind and place.

Types, docstrings, assertions and what `repr` shows are left alone: nothing that runs depends on them.
"""

from __future__ import annotations

import ast
import difflib
import functools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.tools.mutation import ROOT

DECISIONS = frozenset({"operator", "condition", "filter", "constant", "return", "selection", "row", "call"})
"""Kinds that the table of explained survivors is about; the others are `REALISTIC`."""
REALISTIC = frozenset({
    "argument", "attribute", "cleaning", "default", "element", "error", "guard", "handler", "keyword", "order", "stale",
    "text", "unit", "word",
})  # fmt: skip
OTHER: Mapping[type[ast.AST], Sequence[type[ast.AST]]] = {
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Add],
    ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult], ast.BitAnd: [ast.BitOr], ast.BitOr: [ast.BitAnd],
    ast.And: [ast.Or], ast.Or: [ast.And], ast.Continue: [ast.Break], ast.Break: [ast.Continue],
}  # fmt: skip
SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}
WORDS = {
    "start": "middle", "middle": "start", "end": "start", "left": "right", "right": "left", "top": "bottom",
    "bottom": "top", "first": "last", "last": "first", "min": "max", "max": "min", "before": "after",
    "after": "before", "earliest": "latest", "latest": "earliest", "COMMIT": "ABORT", "ABORT": "COMMIT",
}  # fmt: skip
PREFERRED = 0.75  # how often a draw takes a realistic fault where a line can have one; more than half are decisions
UNITS = frozenset({24, 60, 1000, 1024, 3600, 86_400, 1_000_000, 1_000_000_000, 1 << 20, 1 << 30, 1e-3, 1e-6})
UNIT_NAMES = {"milliseconds": "seconds", "seconds": "milliseconds", "ms": "s", "s": "ms", "us": "ms"}
CLEANING = re.compile(r"_?(printable|plain|plain_text|escaped?|quoted?|quote_plus|cleaned?|clean|masked?|hide_secrets)")
STRIPPING = frozenset({"strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "lower", "upper", "casefold"})
WRITING = frozenset({"append", "extend", "add", "insert", "update", "write", "writelines", "appendleft", "put"})
UNSEEN = frozenset(
    {"repr", "compare", "stacklevel", "strict", "help", "metavar", "rich_help_panel", "description", "doc"}
)
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
Change = tuple[str, str, ast.AST]


@dataclass(frozen=True)
class Fault:
    """A module with one change."""

    place: Place  # where it is
    kind: str  # what sort of mistake it is
    change: str  # what is other
    changed: ast.AST  # the node that stands there instead

    @property
    def module(self) -> str:
        """The file, from the root on."""
        return self.place.module.name

    @property
    def at(self) -> str:
        """The function, and the line as it is."""
        line = self.place.module.source.splitlines()[self.place.line - 1].strip()
        return f"{self.place.name}: {line}".removeprefix(": ")

    def text(self) -> str:
        """The changed module; no Python if this fails."""
        text = self.place.text(self.changed)
        compile(text, self.module, "exec")
        return text


@dataclass(frozen=True)
class Module:
    """A file of Python."""

    name: str
    source: str
    tree: ast.Module

    @classmethod
    def read(cls, path: Path) -> Module:
        """Read and parse it."""
        source = path.read_text()
        return cls(str(path.relative_to(ROOT)), source, ast.parse(source))

    @functools.cached_property
    def lines(self) -> Sequence[bytes]:
        """With their ends; positions count bytes."""
        return self.source.encode().splitlines(keepends=True)


@dataclass(frozen=True)
class Place:
    """A node of a module, below which others, and in which function."""

    module: Module
    parents: tuple[ast.AST, ...]
    attribute: str
    number: int | None
    child: ast.AST
    name: str

    @property
    def in_text(self) -> bool:
        """Whether it is part of an f-string."""
        return any(isinstance(each, ast.JoinedStr) for each in self.parents)

    @property
    def line(self) -> int:
        """Number of the line; Python 3.11 does not know those within an f-string."""
        nodes = [self.child, *reversed(self.parents)]
        texts = [each for each in nodes[1:] if isinstance(each, ast.JoinedStr)]
        return next((each.lineno for each in [*texts[-1:], *nodes] if hasattr(each, "lineno")), 1)

    @property
    def functions(self) -> Sequence[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Those around it, the outermost first."""
        return [each for each in self.parents if isinstance(each, FUNCTION)]

    @property
    def lines(self) -> range:
        """One of these runs if it matters; none outside of functions."""
        if not self.functions:
            return range(0)
        nodes = [*self.parents, self.child]
        statement = next(each for each in reversed(nodes) if isinstance(each, ast.stmt | ast.ExceptHandler))
        body = getattr(statement, "body", None)
        if isinstance(statement, FUNCTION | ast.ClassDef):
            return range(statement.lineno, (statement.end_lineno or 0) + 1)
        if isinstance(body, list):
            return range(statement.lineno, max(body[0].lineno, statement.lineno + 1))
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)

    def put(self, child: ast.AST) -> None:
        """Change the tree."""
        if self.number is None:
            setattr(self.parents[-1], self.attribute, child)
        else:
            getattr(self.parents[-1], self.attribute)[self.number] = child

    def text(self, changed: ast.AST) -> str:
        """The module's text with another node here; all around it stays as it is, comments too."""
        nodes = [*self.parents, self.child]
        outermost = next((n for n, each in enumerate(nodes) if isinstance(each, ast.JoinedStr)), len(nodes))
        old: Any = next(each for each in reversed(nodes[: outermost + 1]) if hasattr(each, "end_lineno"))
        new = changed if old is self.child else old
        self.put(changed)
        try:
            text = ast.unparse(ast.fix_missing_locations(new)).strip("\n")
        finally:
            self.put(self.child)
        if isinstance(new, ast.expr) and not isinstance(
            new, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Starred | ast.Slice | ast.GeneratorExp
        ):
            text = f"({text})"
        lines = self.module.lines
        decorators = [each.lineno for each in getattr(old, "decorator_list", ())]
        first = min([old.lineno, *decorators])
        column = old.col_offset - bool(decorators)
        if not isinstance(old, ast.expr | ast.keyword):
            text = text.replace("\n", "\n" + " " * old.col_offset)
        if isinstance(new, ast.If) and lines[first - 1][max(column, 0) :].startswith(b"elif"):
            text = f"el{text}"
        before = b"".join([*lines[: first - 1], lines[first - 1][: max(column, 0)]])
        after = b"".join([lines[old.end_lineno - 1][old.end_col_offset :], *lines[old.end_lineno :]])
        return (before + text.encode() + after).decode()


class Names:
    """What a tree of modules declares: fields of records, and parameters with their defaults."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._fields: dict[str, list[dict[str, str]]] = defaultdict(list)
        self._defaults: dict[str, list[ast.expr | None]] = defaultdict(list)
        self._required: dict[str, list[Set[str]]] = defaultdict(list)
        for module in modules:
            for node in ast.walk(module.tree):
                match node:
                    case ast.ClassDef():
                        self._add_record(node)
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                        defaults = dict(parameters(node))
                        self._required[name].append({each for each, default in defaults.items() if default is None})

    def _add_record(self, node: ast.ClassDef) -> None:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        types = {each.target.id: _type(each.annotation) for each in fields if isinstance(each.target, ast.Name)}
        for each in fields:
            name = ast.unparse(each.target)
            self._fields[name].append(types)
            self._defaults[name].append(each.value)
        if fields:
            self._required[node.name].append({ast.unparse(each.target) for each in fields if each.value is None})

    def siblings(self, name: str) -> Sequence[str]:
        """Other fields of the same type in each record that has this one, the most similar first."""
        records = self._fields.get(name, ())
        found = set[str].intersection(
            *({other for other, kind in types.items() if kind == types[name]} for types in records)
        ) if records else set[str]()  # fmt: skip
        return sorted(found - {name}, key=lambda other: (-difflib.SequenceMatcher(None, name, other).ratio(), other))

    def default(self, name: str) -> ast.Constant | None:
        """What all fields of this name are if nothing sets them."""
        values = self._defaults.get(name, [None])
        texts = {ast.unparse(each) if each is not None else "" for each in values}
        return values[0] if len(texts) == 1 and isinstance(values[0], ast.Constant) else None

    def is_required(self, callee: str, keyword: str) -> bool:
        """Whether Python itself notices that a keyword is missing."""
        return any(keyword in each for each in self._required.get(callee, ()))


def parameters(node: FUNCTION) -> Iterator[tuple[str, ast.expr | None]]:
    """The parameters of a function, and their defaults."""
    positional = [*node.args.posonlyargs, *node.args.args]
    missing = [None] * (len(positional) - len(node.args.defaults))
    for argument, default in zip(positional, [*missing, *node.args.defaults], strict=True):
        yield argument.arg, default
    for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        yield argument.arg, value


def _type(annotation: ast.expr) -> str:
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
            return ast.unparse(first)
    return ast.unparse(annotation)


@functools.cache
def names() -> Names:
    """Of the toolkit."""
    return Names(modules())


@functools.cache
def modules() -> Sequence[Module]:
    """The toolkit's."""
    return [Module.read(path) for path in sorted((ROOT / "toolkit").rglob("*.py"))]


def faults(module: Module, kinds: Set[str] = DECISIONS | REALISTIC) -> Iterator[Fault]:
    """All faults of a module, from top to bottom."""
    for place in _places(module, (module.tree,), ""):
        if kinds & DECISIONS and not place.in_text:
            for kind, change, changed in decision_changes(place.child):
                if kind in kinds:
                    yield Fault(place, kind, change, changed)
        if kinds & REALISTIC and place.name.rpartition(".")[2] not in {"__repr__", "__str__", "__hash__"}:
            for kind, change, changed in realistic_changes(place, names()):
                if kind in kinds:
                    yield Fault(place, kind, change, changed)


def draw(count: int, seed: str, only: str = "") -> Iterator[Fault]:
    """Faults at lines of the toolkit, each line as likely as any other where there can be one, and a kind of it."""
    chance = random.Random(seed)
    by_line: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for module in modules():
        for fault in faults(module) if only in module.name else ():
            if not _is_hardly_one(fault):
                by_line[fault.module, fault.place.line].append(fault)
    places = sorted(by_line)
    chance.shuffle(places)
    drawn = 0
    for place in places:
        if drawn == count:
            return
        found = by_line[place]
        kinds = sorted({each.kind for each in found})
        ranks = {kind: chance.random() - (kind in REALISTIC and chance.random() < PREFERRED) for kind in kinds}
        chance.shuffle(found)
        for fault in sorted(found, key=lambda each: ranks[each.kind]):
            try:
                fault.text()
            except (SyntaxError, ValueError):
                continue
            drawn += 1
            yield fault
            break


def _is_hardly_one(fault: Fault) -> bool:
    """Whether it mostly changes nothing (what mypy needs, and what `repr` shows), or nobody would write it."""
    calls = {getattr(each.func, "id", "") for each in fault.place.parents if isinstance(each, ast.Call)}
    is_for_mypy = fault.change in {"drop 0", "drop ''", "drop ()", "drop {}", "drop []", "drop False", "drop None"}
    is_no_number = fault.change in {"Add to Sub", "Div to Mult"} and any(
        isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", None), str | bytes)
        for each in ast.walk(fault.place.parents[-1])
    )
    callee = getattr(getattr(fault.place.child, "func", None), "id", "")
    is_a_size = fault.kind == "constant" and getattr(fault.place.child, "value", 0) > 100
    is_in_any_order = fault.kind == "argument" and callee in {"isinstance", "max", "min"}
    return (
        is_for_mypy
        or is_no_number
        or is_a_size
        or is_in_any_order
        or not {"field", "cast", "TypeVar", "declares"}.isdisjoint(calls)
    )


def _places(module: Module, parents: tuple[ast.AST, ...], name: str) -> Iterator[Place]:
    """Every node that runs, from top to bottom."""
    node = parents[-1]
    if isinstance(node, FUNCTION | ast.ClassDef):
        name = f"{name}.{node.name}".lstrip(".")
    for attribute, value in ast.iter_fields(node):
        if attribute in {"annotation", "returns", "decorator_list"}:
            continue
        for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                yield Place(module, parents, attribute, number, child, name)
                yield from _places(module, (*parents, child), name)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.expr_context() | ast.arg():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
    return False


def decision_changes(node: Any) -> Iterator[Change]:
    """Another comparison, operand, filter, constant or guard."""
    for other in OTHER.get(type(node), ()):
        yield "operator", f"{type(node).__name__} to {other.__name__}", other()
    yield from _without_a_part(node)
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "condition", f"drop {'not' if isinstance(node.op, ast.Not) else '-'}", node.operand
        case ast.If() | ast.IfExp() | ast.While():
            yield "condition", "negate", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Constant(value=bool() as value):
            yield "constant", f"{value} to {not value}", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", f"{value} to {value + 1}", ast.Constant(value + 1)
        case ast.Return(value=ast.expr()) if ast.unparse(node) != "return None":
            yield "return", "return None", ast.Return(ast.Constant(None))
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED and not (name == "sorted" and node.keywords):
            yield "selection", f"{name} to {SWAPPED[name]}", _with(node, func=ast.Name(SWAPPED[name], ast.Load()))


def _without_a_part(node: Any) -> Iterator[Change]:
    """The node without one of its operands, filters or elements; without a call, or what it yields."""
    match node:
        case ast.BoolOp():
            for operand, rest in _each(node.values):
                changed = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
                yield "condition", f"drop {ast.unparse(operand)}", changed
        case ast.comprehension():
            for condition, rest in _each(node.ifs):
                negated = [*rest, ast.UnaryOp(ast.Not(), condition)]
                for change, ifs in (("drop", rest), ("negate", negated)):
                    yield "filter", f"{change} filter {ast.unparse(condition)}", _with(node, ifs=ifs)
        case ast.Set(elts=[_, _, *_]):
            for element, rest in _each(node.elts):
                yield "condition", f"drop {ast.unparse(element)}", ast.Set(rest)
        case ast.Expr(value=ast.Yield()):
            yield "row", "drop yield", ast.Expr(ast.Constant(None))
        case ast.Expr(value=ast.Call(func=callee)):
            yield "row" if getattr(callee, "attr", "") in WRITING else "call", "drop call", ast.Pass()


def realistic_changes(place: Place, names: Names) -> Iterator[Change]:
    """What gets lost or confused when code is written, moved or merged."""
    match place.child:
        case ast.Call() as node:
            yield from _other_arguments(node, names)
            yield from _uncleaned(node)
            yield from _other_order(node)
        case ast.Attribute(attr=name, ctx=ast.Load()) as node:
            for other in names.siblings(name)[:2]:
                yield "attribute", f"{name} to {other}", _with(node, attr=other)
            default = names.default(name)
            if _is_argument(place) and default is not None:
                yield "default", f"{ast.unparse(node)} to {ast.unparse(default)}", default
        case ast.Constant(value=str() as value) if not isinstance(place.parents[-1], ast.Expr | ast.JoinedStr):
            for other in names.siblings(value)[:2] if "_" in value else ():
                yield "attribute", f"{value!r} to {other!r}", ast.Constant(other)
            if value in WORDS:
                yield "word", f"{value!r} to {WORDS[value]!r}", ast.Constant(WORDS[value])
            if value in UNIT_NAMES or "[ms]" in value:
                unit = UNIT_NAMES.get(value) or value.replace("[ms]", "[s]")
                yield "unit", f"{value!r} to {unit!r}", ast.Constant(unit)
        case ast.JoinedStr() as node:
            yield from _other_text(node)
        case ast.FormattedValue(conversion=114) as node:
            yield "cleaning", f"drop !r of {ast.unparse(node.value)}", _with(node, conversion=-1)
        case ast.BinOp(op=ast.Mult() | ast.Div() | ast.FloorDiv()) as node:
            for factor, rest in ((node.right, node.left), (node.left, node.right)):
                if isinstance(factor, ast.Constant) and factor.value in UNITS:
                    yield "unit", f"drop {type(node.op).__name__} {factor.value}", rest
        case ast.keyword(arg=str() as name, value=value) if name in UNIT_NAMES:
            yield "unit", f"{name}= to {UNIT_NAMES[name]}=", ast.keyword(UNIT_NAMES[name], value)
        case ast.Name(id=name, ctx=ast.Load()) as node if place.functions and _is_argument(place):
            own = dict(parameters(place.functions[-1])).get(name)
            if isinstance(own, ast.Constant):
                yield "default", f"{name} to {ast.unparse(own)}", own
        case ast.Dict() | ast.List() | ast.Tuple() as node:
            yield from _without_an_element(node)
        case ast.Subscript(slice=ast.Constant(value=0), ctx=ast.Load()) as node:
            yield "stale", "[0] to [-1]", _with(node, slice=ast.Constant(-1))
        case ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)), ctx=ast.Load()) as node:
            yield "stale", "[-1] to [0]", _with(node, slice=ast.Constant(0))
        case ast.stmt() | ast.ExceptHandler() | ast.withitem():
            yield from _other_statement(place)


def _is_argument(place: Place) -> bool:
    match place.parents[-1]:
        case ast.Call(func=func):
            return func is not place.child
        case ast.keyword():
            return True
    return False


def _other_arguments(node: ast.Call, names: Names) -> Iterator[Change]:
    callee = getattr(node.func, "attr", getattr(node.func, "id", ""))
    keywords = [each for each in node.keywords if each.arg and each.arg not in UNSEEN]
    for each in keywords:
        others = [other for other in node.keywords if other is not each]
        if each.arg in {"error", "reason", "gaps", "damage"}:
            none = [ast.keyword(each.arg, ast.Constant(None)) if other is each else other for other in node.keywords]
            yield "error", f"{each.arg}= is None", _with(node, keywords=none)
        elif not names.is_required(callee, str(each.arg)):
            yield "keyword", f"drop {each.arg}=", _with(node, keywords=others)
    for first, second in pairwise(keywords):
        if ast.dump(first.value) != ast.dump(second.value):
            swapped = {id(first): second.value, id(second): first.value}
            changed = [ast.keyword(each.arg, swapped.get(id(each), each.value)) for each in node.keywords]
            yield "keyword", f"swap {first.arg}= and {second.arg}=", _with(node, keywords=changed)
    for number, (one, two) in enumerate(pairwise(node.args)):
        if all(isinstance(each, ast.Name | ast.Attribute | ast.Subscript) for each in (one, two)):
            arguments = [*node.args[:number], two, one, *node.args[number + 2 :]]
            yield "argument", f"swap {ast.unparse(one)} and {ast.unparse(two)}", _with(node, args=arguments)


def _uncleaned(node: ast.Call) -> Iterator[Change]:
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in STRIPPING:
            yield "cleaning", f"drop .{name}()", value
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if CLEANING.fullmatch(name):
            if not isinstance(first, ast.Starred):
                yield "cleaning", f"drop {name}()", first


def _other_order(node: ast.Call) -> Iterator[Change]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name not in {"sorted", "sort", "sort_values", "min", "max", "groupby", "nlargest", "nsmallest"}:
        return
    if name in {"sorted", "sort"} and not any(each.arg == "reverse" for each in node.keywords):
        reverse = ast.keyword("reverse", ast.Constant(True))
        yield "order", "reverse", _with(node, keywords=[*node.keywords, reverse])
    for each in node.keywords:
        if each.arg == "key":
            yield "order", "drop key=", _with(node, keywords=[other for other in node.keywords if other is not each])
        match each:
            case ast.keyword(arg="key", value=ast.Lambda(body=ast.Tuple(elts=[first, second, *rest])) as key):
                body = ast.Tuple([second, first, *rest], ast.Load())
                others = [ast.keyword("key", _with(key, body=body)) if other is each else other
                          for other in node.keywords]  # fmt: skip
                yield "order", f"first by {ast.unparse(second)}", _with(node, keywords=others)


def _other_text(node: ast.JoinedStr) -> Iterator[Change]:
    fields = [number for number, each in enumerate(node.values) if isinstance(each, ast.FormattedValue)]
    for number in fields:
        rest = [*node.values[:number], *node.values[number + 1 :]]
        # Without a field it is no f-string, which ruff would notice.
        changed = ast.JoinedStr(rest) if len(fields) > 1 else ast.Constant("".join(map(_constant, rest)))
        yield "text", f"drop {ast.unparse(node.values[number])[1:-1]}", changed
    for one, two in pairwise(fields):
        first, second = node.values[one], node.values[two]
        if ast.dump(first) != ast.dump(second):
            swapped = list(node.values)
            swapped[one], swapped[two] = second, first
            yield "text", f"swap {ast.unparse(first)[1:-1]} and {ast.unparse(second)[1:-1]}", ast.JoinedStr(swapped)


def _constant(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _without_an_element(node: ast.Dict | ast.List | ast.Tuple) -> Iterator[Change]:
    match node:
        case ast.Dict(keys=keys, values=values) if len(keys) > 1:
            for number, key in enumerate(keys):
                if isinstance(key, ast.Constant) and key.value == "error":
                    nothing = [*values[:number], ast.Constant(None), *values[number + 1 :]]
                    yield "error", "'error' is None", ast.Dict(keys, nothing)
                elif key is not None:
                    rest = ast.Dict([*keys[:number], *keys[number + 1 :]], [*values[:number], *values[number + 1 :]])
                    yield "element", f"drop {ast.unparse(key)}", rest
        case ast.List(elts=[_, _, *_], ctx=ast.Load()) | ast.Tuple(elts=[_, _, _, *_], ctx=ast.Load()):
            for element, others in _each(node.elts):
                yield "element", f"drop {ast.unparse(element)}", _with(node, elts=others)


def _other_statement(place: Place) -> Iterator[Change]:
    match place.child:
        case ast.If(orelse=[], body=[*_, ast.Return() | ast.Raise() | ast.Continue() | ast.Break()]) as node:
            yield "guard", "skip it", ast.Pass()
            yield "guard", "at once", _with(node, test=ast.Constant(True))
        case ast.ExceptHandler(type=ast.expr() as caught, body=body) as node:
            yield "handler", "catches nothing", _with(node, type=ast.Tuple([], ast.Load()))
            if not isinstance(body[0], ast.Pass | ast.Continue):
                yield "handler", "swallows", _with(node, body=[ast.Pass()])
            if isinstance(caught, ast.Tuple):
                for each, rest in _each(caught.elts):
                    yield "handler", f"drop {ast.unparse(each)}", _with(node, type=ast.Tuple(rest, ast.Load()))
        case ast.Try(finalbody=[_, *_]) as node:
            yield "handler", "drop finally", _with(node, finalbody=[ast.Pass()])
        case ast.withitem(context_expr=ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")) as call):
            yield "handler", "suppresses nothing", _with(place.child, context_expr=_with(call, args=[]))
        case ast.Expr(value=ast.YieldFrom() | ast.Await()):
            yield "element", "drop yield from", ast.Expr(ast.Yield(ast.Constant(None)))
        case ast.Assign(targets=[ast.Subscript(value=value, slice=key)], value=new):
            if not isinstance(key, ast.Slice):
                setdefault = ast.Attribute(value, "setdefault", ast.Load())
                yield "stale", "keep the first", ast.Expr(ast.Call(setdefault, [key, new], []))
            yield "element", "drop assignment", ast.Pass()
        case ast.AugAssign(target=target, op=ast.Add() | ast.BitOr() | ast.Sub(), value=value):
            yield "stale", "= for +=", ast.Assign([target], value)
            yield "element", "drop assignment", ast.Pass()
        case ast.Assign(targets=[ast.Attribute()]) if place.name.rpartition(".")[2] != "__init__":
            yield "stale", "drop assignment", ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)]) if place.functions:
            if _times_assigned(place.functions[-1])[name] > 1:
                yield "stale", "drop assignment", ast.Pass()


@functools.cache
def _times_assigned(function: ast.AST) -> Mapping[str, int]:
    return Counter(_assigned(function))


def _assigned(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _with(node: Any, **changes: Any) -> Any:
    changed = copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _each(nodes: Sequence[ast.expr]) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Each node, and the others."""
    for number, node in enumerate(nodes):
        yield node, [*nodes[:number], *nodes[number + 1 :]]


def references(fault: Fault) -> Iterator[tuple[str, range]]:
    """Functions that depend on a fault outside of functions: those that mention what it is part of, and so on."""
    statement = [*fault.place.parents, fault.place.child][1]
    if isinstance(statement, ast.ClassDef):
        yield fault.module, range(statement.lineno, (statement.end_lineno or 0) + 1)
    known, new = set[str](), set(_stored(statement))
    while new:
        known |= new
        mentions = [mention for name in sorted(new) for mention in _mentions().get(name, ())]
        new = set()
        for module, lines, constants in mentions:
            if lines:
                yield module, lines
            new.update(constants)
        new -= known


@functools.cache
def _mentions() -> Mapping[str, Sequence[tuple[str, range, Sequence[str]]]]:
    """By name, the functions that use it, and the constants and classes that do."""
    found: dict[str, list[tuple[str, range, Sequence[str]]]] = defaultdict(list)
    for module in modules():
        for statement in module.tree.body:
            functions = [each for each in ast.walk(statement) if isinstance(each, FUNCTION)]
            inside = {id(each) for function in functions for each in ast.walk(function)}
            for function in functions:
                lines = range(function.lineno, (function.end_lineno or 0) + 1)
                for name in set(_used(ast.walk(function))):
                    found[name].append((module.name, lines, ()))
            for name in set(_used(each for each in ast.walk(statement) if id(each) not in inside)):
                found[name].append((module.name, range(0), list(_stored(statement))))
    return found


def _used(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name


def _stored(statement: ast.AST) -> Iterator[str]:
    """What a statement of a module defines."""
    if isinstance(statement, ast.ClassDef | FUNCTION):
        yield statement.name
    elif not isinstance(statement, ast.Import | ast.ImportFrom):
        yield from _assigned(statement)
