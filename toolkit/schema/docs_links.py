"""Addresses of the docs: every link to them is made here."""

from __future__ import annotations

__all__ = ["DOCS_URL", "RUNBOOK_URL", "cause_page", "symptom_page", "verdict_page"]

DOCS_URL = "https://kafka-txn-toolkit.github.io/kafka-txn-toolkit/"
"""Where the docs site is published; pyproject.toml has the same address."""

RUNBOOK_URL = f"{DOCS_URL}alerts/"
"""The page with a section for each alert."""


def verdict_page(verdict: str) -> str:
    """Address of the page of a verdict."""
    return f"{DOCS_URL}verdicts/{verdict}/"


def cause_page(name: str) -> str:
    """Address of the page of a cause."""
    return f"{DOCS_URL}causes/{name}/"


def symptom_page(name: str) -> str:
    """Address of the page of a symptom."""
    return f"{DOCS_URL}symptoms/{name}/"
