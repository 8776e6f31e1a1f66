"""What texts name exists: code in backticks, documents, and what docs and notebooks import."""

import builtins
import json
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "toolkit").rglob("*.py"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
WORD = re.compile(r"[A-Za-z_]\w*")
IN_BACKTICKS = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`(?!`)")
OURS = re.compile(r"(?:toolkit|schema|Cluster|LogDir|Recording)\.")
FILE = re.compile(
    r"(?<![\w/.<*{-])(?:(?:toolkit|tests|docs|notebooks)/[\w./-]+\.(?:py|md|ipynb|html)|[A-Z][A-Z]+\.md)\b"
)
IMPORT = re.compile(r"^\s*from (toolkit[\w.]*) import ([\w, ]+)", re.MULTILINE)


def texts_of(path: Path) -> Iterator[str]:
    """Its comments and strings."""
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in {tokenize.STRING, tokenize.COMMENT}:
                yield token.string


def test_code_in_backticks_exists() -> None:
    """In Markdown only dotted names of ours: the rest may be Kafka's settings, or metrics."""
    code = re.sub(r"`[^`\n]*`", "", "".join(path.read_text() for path in SOURCES))
    known = {
        *WORD.findall(code),
        *vars(builtins),
        *(name for path in SOURCES for name in (path.stem, path.parent.name)),
    }
    found = [(path, name) for path in SOURCES for text in texts_of(path) for name in IN_BACKTICKS.findall(text)]
    found += [(path, name) for path in DOCUMENTS for name in IN_BACKTICKS.findall(path.read_text()) if OURS.match(name)]
    assert len(found) > 1_000
    assert [(path, name) for path, name in found if not known.issuperset(name.split("."))] == []


def test_cited_documents_exist() -> None:
    texts = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *DOCUMENTS]
    cited = [(path, name) for path in texts for name in FILE.findall(path.read_text())]
    assert len(cited) > 100
    assert [(path, name) for path, name in cited if not (ROOT / name).exists()] == []


def test_docs_and_notebooks_import_only_the_public_api() -> None:
    texts = {path: path.read_text() for path in DOCUMENTS}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        texts[path] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    found = [
        (path, package, names.split(",")) for path, text in texts.items() for package, names in IMPORT.findall(text)
    ]
    assert len(found) > 50
    for path, package, names in found:
        public = {
            *import_module(package).__all__,
            *(each.name for each in (ROOT / package.replace(".", "/")).glob("*/")),
        }
        assert {name.strip() for name in names} <= public, path
    assert [path for path, text in texts.items() if re.search(r"^\s*import toolkit\.", text, re.MULTILINE)] == []
