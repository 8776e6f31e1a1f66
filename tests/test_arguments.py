"""No argument is lost on its way: each parameter is read, and passed to a callee that takes it by the same name."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    ("lso_timeline_table", "LogFold"): "the log end is known once it is read",
    ("own_findings", "sample_row"): "the newest sample, as at is null",
    ("read", "until"): "each poll has its own time",
    ("register", "register"): "of Spark",
    ("show", "one_table"): "known only once its columns are",
    ("transaction_history", "HistoryState"): "it collects the events",
    ("advance", "HistoryState"): "the next records are those of the next state",
}


NAMED_OTHERWISE = {  # arguments that are named like another parameter of their callee, and right
    *("Coordinator(broker_id=coordinator_id)", "Partition(broker_id=leader)", "step_on(target=transactional_id)"),
    *(
        "Observation(partitions_after=partitions)",
        "Observation(producers_after=producers)",
        "OffsetsLogRecord(group_partition=partition)",
    ),
    *("Outcome(reason=missing)", "TableCell(key=verdict)", "Transaction(coordinator_id=broker_id)"),
    *(
        "_of_record(written=response)",
        "_read_headers(end=at)",
        "answer_parts(of=findings)",
        "body_html(below=headings)",
        "decompress(codec=data)",
    ),
    *("class_archive_options(new=archive)", "is_contiguous(stop=start)"),
    *("lso_steps(log_end_offset=stop)", "of_topic(name=topic)"),
    "ticks_of(settings=axis)",
}


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
    return {each.attr for each in attributes if ast.unparse(each.value).endswith(("options", "arguments"))}


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
