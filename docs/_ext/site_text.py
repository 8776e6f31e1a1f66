"""What pages take from the code: sentences of verdicts and causes, and the staged incidents that show them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.incident_matrix import VERSIONS, cells_in_page
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema.verdict import Verdict
from toolkit.views.docs_pages import page_values

__all__ = ["substitutions"]


def substitutions() -> dict[str, object]:
    """Names that a page may use, as in ``{{ verdict.hanging }}`` and ``{{ cause["never-added"] }}``."""
    rows = [f"| [`{each}`]({each}.md) | {each.sentence} |" for each in Verdict]
    verdicts = "\n".join(["| verdict | meaning |", "| --- | --- |", *rows])
    return {**page_values(), "staged": {each: _staged(each) for each in Verdict}, "verdicts": verdicts}


def _staged(verdict: str) -> str:
    """The incidents that get a verdict, and on which versions."""
    cells = cells_in_page()
    lines = [
        f"| {incident.what} | {', '.join(versions)} |"
        for name, incident in INCIDENTS.items()
        if (versions := [each for each in VERSIONS if _has(cells, name, each, verdict)])
    ]
    if not lines:
        return "None: it is the end of others."
    return "\n".join(["| staged on real brokers | Kafka |", "| --- | --- |", *lines])


def _has(cells: Mapping[tuple[str, str], str], name: str, version: str, verdict: str) -> bool:
    return verdict in re.findall(r"`(\w+)`", cells[name, version])
