"""The sums of all runs, as the table of docs/about/testing.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tests.process import ROOT
from tests.tools.large.sitting import results

PAGE = ROOT / "docs" / "about" / "testing.md"
HEADER = (
    "| campaign | in all it aims at | seeds | runs with problems | hours | so far |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)
TABLE = re.compile(re.escape(HEADER) + r"(?:\|.*\n)*")
CAMPAIGNS: Mapping[str, str] = {
    "races": "100,000 markers of abort and complete raced against producers",
    "mutations": "1,000,000 mutations of files and messages",
    "chaos": "6 hours of three brokers with Streams, Connect and Flink",
    "recorder": "200 brokers killed under the recorder",
    "walks": "300 rounds of random walks on five versions, with the truth of each record",
    "disks": "full and read-only disks under audit, recorder and pipeline",
}
"""Each campaign, and what it aims at in all its runs."""


def table() -> str:
    """A row for each campaign that has run."""
    rows = [_row(name) for name in CAMPAIGNS]
    return HEADER + "".join(rows)


def _row(name: str) -> str:
    lines = [line for line in results() if line["campaign"] == name]
    sums: Counter[str] = Counter()
    for line in lines:
        sums.update(line["counts"])
    counts = ", ".join(f"{what} {count:,}" for what, count in sorted(sums.items()))
    hours = sum(line["seconds"] for line in lines) / 3600
    with_problems = sum(bool(line["problems"]) for line in lines)
    seeds = ", ".join(line["seed"] for line in lines)
    return f"| {name} | {CAMPAIGNS[name]} | {seeds} | {with_problems} of {len(lines)} | {hours:.1f} | {counts} |\n"


def write_table() -> None:
    """Rewrite the table of the page."""
    text = PAGE.read_text()
    assert TABLE.search(text), f"{PAGE} has no such table"
    PAGE.write_text(TABLE.sub(lambda _: table(), text))


def table_in_page() -> str:
    """The table as the page has it."""
    found = TABLE.search(PAGE.read_text())
    assert found is not None
    return found[0]
