"""The pages of the docs that come with the package, as text of a terminal: verdicts, causes, how-tos, alerts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import jinja2

from toolkit.analysis.diagnosis.decision import CAUSES, OUTCOMES
from toolkit.analysis.diagnosis.observation import TIMEOUT_GRACE
from toolkit.analysis.transaction_owners import PREPARE_GRACE
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.verdict import Verdict

FOLDERS = ("verdicts", "causes", "howto", ".")
"""Of the pages, those first whose name is typed most."""

# Of MyST: what only a site has, and what is text in it.
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_BLOCK = re.compile(r"^```\{(?:literalinclude|image|raw|toctree)\}.*?^```\n", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n?")
_FENCE = re.compile(r"^:::.*\n", re.MULTILINE)
_ROLE = re.compile(r"\{\w+\}`(?:([^`<]*?) <)?([^`>]*)>?`")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_LINES = re.compile(r"\n{3,}")


def page_values() -> dict[str, object]:
    """What a page may take from the code, as in ``{{ verdict.hanging }}`` and ``{{ cause["never-added"] }}``."""
    return {
        "verdict": {verdict.value: verdict.sentence for verdict in Verdict},
        "outcome": dict(OUTCOMES),
        "cause": dict(CAUSES),
        "timeout_grace": f"{TIMEOUT_GRACE.seconds} s",
        "prepare_grace": f"{PREPARE_GRACE.seconds} s",
        "clocks_differ": f"{CLOCKS_DIFFER.seconds} s",
    }


def page_names() -> Mapping[str, Path]:
    """The pages by their name, such as ``hanging`` or ``many-clusters``."""
    root = _root()
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*.md")):
            if path.stem != "index":
                found.setdefault(path.stem, path)
    return found


def page_text(path: Path) -> str:
    """A page as Markdown that reads well as it is."""
    text = _FRONT_MATTER.sub("", path.read_text(encoding="utf-8"))
    values = {**page_values(), "staged": dict.fromkeys(Verdict, "")}
    text = jinja2.Template(text, autoescape=False, keep_trailing_newline=True).render(values)
    for pattern, kept in ((_BLOCK, ""), (_IMAGE, ""), (_FENCE, ""), (_ROLE, _role_text), (_LINK, _link_text)):
        text = pattern.sub(kept, text)
    return _LINES.sub("\n\n", text).strip()


def section_of_alert(name: str) -> str | None:
    """The section of an alert on the page of alerts, by its name in upper or lower case; null if there is none."""
    _, *sections = re.split(r"^## ", page_text(_root() / "alerts.md"), flags=re.MULTILINE)
    found = (each for each in sections if each.partition("\n")[0].lower() == name.lower())
    return next((f"## {each}".strip() for each in found), None)


def page_title(path: Path) -> str:
    """The heading of a page."""
    found = re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def _root() -> Path:
    """In an installation they are in the package, in a checkout beside it."""
    package = Path(str(resources.files("toolkit")))
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def _role_text(found: re.Match[str]) -> str:
    return found[1] or found[2]


def _link_text(found: re.Match[str]) -> str:
    """Where a link leads, if a person cannot guess it: an address, or another page."""
    text, target = found[1], found[2]
    if target.startswith("http"):
        return text if text == target else f"{text} ({target})"
    name = Path(target.partition("#")[0]).stem
    return text if not name or name == "index" or name in text.replace("`", "") else f"{text} (docs {name})"
