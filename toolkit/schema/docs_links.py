"""URLs of documentation pages."""

from __future__ import annotations

DOCS_URL = "https://kafka-txn-toolkit.github.io/kafka-txn-toolkit/"
"""URL of the documentation site, as in pyproject.toml."""

RUNBOOK_URL = f"{DOCS_URL}alerts/"
"""URL of the page with a section for each alert."""


def verdict_page(verdict: str) -> str:
    """URL of a verdict's page."""
    return f"{DOCS_URL}verdicts/{verdict}/"


def cause_page(name: str) -> str:
    """URL of a cause's page."""
    return f"{DOCS_URL}causes/{name}/"


def symptom_page(name: str) -> str:
    """URL of a symptom's page."""
    return f"{DOCS_URL}symptoms/{name}/"
