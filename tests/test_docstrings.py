"""Docstrings and comments match the code: parameters are those of the signature, and names exist."""

import ast
import builtins
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from numpydoc.hooks.validate_docstrings import AstValidator

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "toolkit").rglob("*.py"))
DOCUMENTS = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = re.compile(r"(?<!`)(`{1,2})([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?\1(?!`)")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def parsed(path: Path) -> ast.Module:
    """Not when the module is imported, which every worker does."""
    return ast.parse(path.read_text())


class Documented(AstValidator):  # type: ignore[misc]
    """A docstring beside its signature; that of a class without `__init__` is its fields, its attributes apart."""

    @property
    def signature_parameters(self) -> tuple[str, ...]:
        if not self.is_class or any(getattr(each, "name", "") == "__init__" for each in self.node.body):
            return tuple(super().signature_parameters)
        attributes = {name.strip() for each in self.doc["Attributes"] for name in each.name.split(",")}
        fields = [each for each in self.node.body if isinstance(each, ast.AnnAssign)]
        names = [ast.unparse(each.target) for each in fields if "ClassVar" not in ast.unparse(each.annotation)]
        return tuple(name for name in names if not name.startswith("_") and name not in attributes)


def documented(tree: ast.AST, path: Path) -> Iterator[Documented]:
    """Every class and function that has a section Parameters, public or not, and nested ones."""
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, Definition) and ast.get_docstring(node):
                found = Documented(ast_node=node, filename=path, obj_name=node.name, ancestry=[parent])
                if found.doc_all_parameters:
                    yield found


def test_documented_parameters_are_those_of_the_signature() -> None:
    found = {
        (path, each.name): each.parameter_mismatches for path in SOURCES for each in documented(parsed(path), path)
    }
    assert len(found) > 80
    wrong = {name: errors for name, errors in found.items() if {"PR01", "PR02"} & {code for code, _ in errors}}
    assert wrong == {}


def module_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def parents_of(node: ast.ClassDef) -> list[ast.expr]:
    children = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    return [each for each in children if each not in node.decorator_list]


class Names:
    """What the package defines and imports: names by their module or class, and those of its base classes."""

    def __init__(self) -> None:
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        self.parents: dict[str, list[str]] = {}
        self.modules = {module_of(path) for path in SOURCES}
        self.homes: defaultdict[str, list[str]] = defaultdict(list)  # of modules and classes, by their last name
        for path in SOURCES:
            tree, module = parsed(path), module_of(path)
            self.homes[module.rpartition(".")[2]].append(module)
            self.members[module.rpartition(".")[0]].add(module.rpartition(".")[2])
            self._collect(tree.body, module)
        constants = {
            each.value for path in SOURCES for each in ast.walk(parsed(path)) if isinstance(each, ast.Constant)
        }
        self.known = set[object](constants).union(*self.members.values(), vars(builtins))

    def _collect(self, body: Iterable[ast.stmt], home: str) -> None:
        for node in body:
            match node:
                case ast.ClassDef():
                    of_class = f"{home}.{node.name}"
                    self.members[home].add(node.name)
                    self.homes[node.name].append(of_class)
                    self.parents[of_class] = [ast.unparse(each).partition("[")[0] for each in parents_of(node)]
                    self._collect(node.body, of_class)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.members[home].add(node.name)
                    own = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
                    self.members[home] |= {each.attr for each in own if isinstance(each.ctx, ast.Store)}
                case ast.Import() | ast.ImportFrom():
                    self.members[home] |= {alias.asname or alias.name for alias in node.names}
                case ast.If() | ast.Try() | ast.With():
                    self._collect(
                        (each for each in ast.walk(node) if isinstance(each, ast.stmt) and each != node), home
                    )
                case ast.Assign() if "__all__" in map(ast.unparse, node.targets):
                    self.members[home] |= set(ast.literal_eval(node.value))
                case ast.Assign() | ast.AnnAssign():
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    self.members[home] |= {
                        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
                    }

    def has(self, home: str, path: list[str]) -> bool:
        if not path:
            return True
        if path[0] in self.members[home]:
            return len(path) == 1 or any(self.has(each, path[1:]) for each in self.homes[path[0]])
        return any(self.has(each, path) for base in self.parents.get(home, ()) for each in self.homes[base])

    def exists(self, name: str) -> bool | None:
        """Whether a dotted name is there; null if it is none of ours."""
        first, *path = name.removesuffix(".py").split(".")
        if first == "toolkit":
            return self.has(first, path)
        return any(self.has(home, path) for home in self.homes[first]) if first in self.homes else None


@cache
def names() -> Names:
    return Names()


def is_ours(first: str) -> bool:
    """Whether a dotted name that begins so can be no setting of Kafka, and no class of Java."""
    return first in {"toolkit", "schema", "Cluster", "LogDir", "Recording"} or "_" in first


def references(path: Path) -> Iterator[tuple[str, str]]:
    """Names in backticks in strings and comments, each with its quotes."""
    with path.open("rb") as source:
        tokens = list(tokenize.tokenize(source.readline))
    for token in tokens:
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            yield from REFERENCE.findall(token.string)


def unknown_references(path: Path) -> list[str]:
    """Names in backticks that are none of the package, of the module, or of an installed one."""
    words = {each.id for each in ast.walk(parsed(path)) if isinstance(each, ast.Name)}
    words |= {each.arg for each in ast.walk(parsed(path)) if isinstance(each, ast.arg | ast.keyword) and each.arg}
    gone = []
    for quotes, name in references(path):
        first, _, rest = name.partition(".")
        if quotes == "``":  # also Java's classes and Kafka's settings
            is_there = not is_ours(first) or names().exists(name) is not False
        elif rest:
            found = names().exists(name)
            is_there = find_spec(first) is not None if found is None else found
        else:
            is_there = name in words or name in names().known
        gone += [] if is_there else [name]
    return gone


def test_names_in_docstrings_and_comments_exist() -> None:
    assert {path: gone for path in SOURCES if (gone := unknown_references(path))} == {}


def test_names_in_the_paths_through_the_code_are_ours() -> None:
    """One path led over `log_partials`, which was gone: a name without a dot was taken for one of Kafka's."""
    text = DOCUMENTS[0].read_text().partition("Three paths through the code")[2].partition("Rules of the code")[0]
    found = [name for _, name in REFERENCE.findall(text)]
    defined = set[str]().union(*names().members.values())
    assert len(found) > 40
    assert [name for name in found if name not in defined and not names().exists(name)] == []


def test_names_in_documents_exist() -> None:
    found = [(path, name) for path in DOCUMENTS for _, name in REFERENCE.findall(path.read_text())]
    ours = [(path, name) for path, name in found if is_ours(name.partition(".")[0])]
    assert [(path, name) for path, name in ours if names().exists(name) is False] == []
