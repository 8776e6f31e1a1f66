"""Answers in narrow and in wide terminals: no line is longer, but for a command or one long name."""

from __future__ import annotations

import re
import sys

import pytest

from tests.corpus.answers import DUMPS, answers_on, inputs
from toolkit.cli import commands, output

NOT_WRAPPED = re.compile("json|csv|card|tool|report|svg|help|prometheus|grafana|demo|short|typed|schema")
"""Not for a terminal, laid out by Typer, a line by its promise, or with what a person types."""
assert commands


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.xdist_group(f"corpus {each}")) for each in inputs() if each != DUMPS]
)
def test_no_line_is_longer_than_the_terminal(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = output.width
    for module in [each for key, each in sys.modules.items() if key.startswith("toolkit.cli.")]:
        if getattr(module, "width", None) is own:
            monkeypatch.setattr(module, "width", lambda: width)
    too_long = [
        f"{call}: {line}"
        for call, text in answers_on(name)
        if not NOT_WRAPPED.search(call) and text.startswith("$ kafka-txn") and "--- stdout\n" in text
        for line in text.split("--- stdout\n", 1)[1].split("\n--- ", 1)[0].splitlines()
        if len(line) > width
        and not re.match(r"(\S* +)?kafka-| *[\[{\"]", line)
        and max(map(len, line.split())) < width - 30
    ]
    assert too_long == []
