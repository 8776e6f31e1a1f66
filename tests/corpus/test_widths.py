"""Answers in a narrow terminal: no line is longer, but for a command or one long name."""

from __future__ import annotations

import re
import sys

import pytest

from tests.corpus.answers import DUMPS, calls_on, inputs, stored
from toolkit.cli import commands, output

NOT_WRAPPED = re.compile("json|csv|card|tool|report|svg|help|prometheus|grafana|demo|short|typed|schema")
"""Not for a terminal, laid out by Typer, a line by its promise, or with what a person types."""
WIDTH, BEFORE = 60, 30  # columns, and those before a long name, which has a line of its own
assert commands


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.xdist_group(f"corpus {each}")) for each in inputs() if each != DUMPS]
)
def test_no_line_is_longer_than_the_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = output.width
    for module in [each for key, each in sys.modules.items() if key.startswith("toolkit.cli.")]:
        if getattr(module, "width", None) is own:
            monkeypatch.setattr(module, "width", lambda: WIDTH)
    answers, (calls, around), too_long = stored(name), calls_on(name), list[str]()
    for call in calls:
        if NOT_WRAPPED.search(call.name) or "--- stdout\n" not in answers.get(call.name, ""):
            continue
        with around(call):
            text = call.run()
        if text.startswith("$ kafka-txn"):
            too_long += [
                f"{call.name}: {line}"
                for line in text.split("--- stdout\n", 1)[1].split("\n--- ", 1)[0].splitlines()
                if len(line) > WIDTH
                and not re.match(r"(\S* +)?kafka-| *[\[{\"]", line)
                and len(line) - max(map(len, line.split())) > BEFORE
            ]
    assert too_long == []
