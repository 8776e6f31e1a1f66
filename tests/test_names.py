"""One name, one meaning: read from the source."""

import ast
import json
import re
import tokenize
from collections import Counter
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "toolkit").rglob("*.py"))
TEXTS = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
READERS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("notebooks/*.ipynb"))]
CITED = re.compile(
    r"(?<![\w/.<*{-])(?:(?:toolkit|tests|docs|notebooks)/[\w./-]+\.(?:py|md|ipynb|html)|[A-Z][A-Z]+\.md)\b"
)

# Names that the project once used instead of those of Kafka, pandas and Spark.
GONE = re.compile(
    r"(Wire|Look|Seen|Opening|Places|Spot|Stretch|Piece|Sign|Scene|Audience|Crowd|Figured|knock|bases|as_places|told|asked"
    r"|LOOK_AGAIN|MOST|HOLDS|LOOKS|CROSSED|coordinator_events|group_events|opened_by|start_by|made_by|gather|open_source"
    r"|ship|looks_apart|at_rest|yes_i_checked|force_past|blast|blast_radius|strangers|keeper"
    r"|test_(?:\w+_)?(?:told|tells?|asked|says?|said|given|judged)(?:_\w+)?)"
)


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_module_names_are_unique() -> None:
    assert twice([path.stem for path in MODULES if path.stem != "__init__"]) == []


def test_class_names_are_unique() -> None:
    trees = [ast.parse(path.read_text()) for path in MODULES]
    assert twice([node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]) == []


def test_cited_documents_exist() -> None:
    cited = [(path, name) for path in TEXTS for name in CITED.findall(path.read_text())]
    assert len(cited) > 100
    assert [(path, name) for path, name in cited if not (ROOT / name).exists()] == []


def test_old_names_are_gone() -> None:
    code = {path: path.read_text() for path in TEXTS if path.suffix == ".py"}
    code |= {path: "\n".join(code_of(path)).replace("%", "#") for path in ROOT.glob("notebooks/*.ipynb")}
    for path, text in code.items():
        tokens = tokenize.generate_tokens(StringIO(text).readline)
        assert [token for token in tokens if token.type == tokenize.NAME and GONE.fullmatch(token.string)] == [], path


def exports(package: str) -> set[str]:
    """Names that a package declares public; of a plain module, such as toolkit.errors, too."""
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__doc__ or name.isupper() or name == "__version__", f"{package}.{name}"
    return {*module.__all__}


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docs_and_notebooks_import_only_the_public_api(path: Path) -> None:
    text = path.read_text() if path.suffix == ".md" else "\n".join(code_of(path))
    found = re.findall(r"^\s*from (toolkit[\w.]*) import ([\w, ]+)", text, re.MULTILINE)
    for package, names in found:
        is_package = package == "toolkit.errors" or (ROOT / package.replace(".", "/") / "__init__.py").exists()
        assert is_package, f"{package} is no package"
        subpackages = {each.name for each in (ROOT / package.replace(".", "/")).glob("*/")}
        assert {name.strip() for name in names.split(",")} <= exports(package) | subpackages
    assert not re.findall(r"^\s*import toolkit\.", text, re.MULTILINE)
