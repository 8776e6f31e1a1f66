"""The answers of today are those that are stored; ``python -m tests.corpus`` stores them again.

In a narrow terminal no line of them is longer, but for a command or one long name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import unified_diff
from enum import Enum
from typing import Any
from unittest import mock

import pytest

from tests.corpus.answers import ANSWERS, answers_on, calls_on, inputs, stored
from toolkit.cli.commands import PANELS
from toolkit.cli.output import Format
from toolkit.sources.source import CLUSTER, FILES, RECORDING, tables_of
from toolkit.views import finding_document, renderers, row_formats
from toolkit.views.agent_tools import AgentTools

NOT_COVERED = {"demo table", "lab table", "mcp table", "pipeline table", "completion table", "docs table"}
"""Kafka is started, an agent or Spark, or it answers about no input: tests of their own run them."""
MAX_LINES = 400

NOT_WRAPPED = re.compile("card|tool|report|svg|demo|short|typed|schema|table-|plot-")
"""Not for a terminal, a line by its promise, or with what a person types."""
WIDTH, BEFORE = 60, 30  # columns, and those before a long name, which has a line of its own


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.xdist_group(f"corpus {each}")) for each in inputs()]
)
def test_answers_are_as_stored(name: str) -> None:
    before, now, too_long = stored(name), dict[str, str](), list[str]()
    with laid_out_narrowly() as narrow:
        for call, answer in answers_on(name):
            now[call] = answer
            too_long += [] if NOT_WRAPPED.search(call) else [f"{call}: {line}" for line in narrow if is_too_long(line)]
            narrow.clear()
    lines: list[str] = []
    for call in sorted(before.keys() | now.keys()):
        texts = before.get(call, "").splitlines(), now.get(call, "").splitlines()
        lines += unified_diff(*texts, f"stored/{call}", f"now/{call}", n=2, lineterm="")
    if lines:
        pytest.fail("\n".join(lines[:MAX_LINES]) + "\n\npython -m tests.corpus stores them again.", pytrace=False)
    assert too_long == []


@contextmanager
def laid_out_narrowly() -> Iterator[list[str]]:
    """The lines of what is shown at no width, as a narrow terminal has them."""
    narrow, depth = list[str](), [0]

    def noting(lay_out: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def noted(first: Any, **options: Any) -> list[str]:
            first, depth[0] = first if isinstance(first, str) else list(first), depth[0] + 1
            try:
                if depth[0] == 1 and options.get("width") is None:
                    narrow.extend(lay_out(first, **options | {"width": WIDTH}))
                return lay_out(first, **options)
            finally:
                depth[0] -= 1

        return noted

    places = (renderers, "text_lines"), (finding_document, "finding_lines"), (row_formats, "wrap")
    with ExitStack() as patches:
        for module, name in places:
            patches.enter_context(mock.patch.object(module, name, noting(getattr(module, name))))
        yield narrow


def is_too_long(line: str) -> bool:
    text = line.rstrip()
    is_whole = re.match(r"(\S* +)?kafka-| *[\[{\"]", text)
    return len(text) > WIDTH and not is_whole and len(text) - max(map(len, text.split())) > BEFORE


def test_every_input_has_answers_and_no_other() -> None:
    assert {each.name for each in ANSWERS.iterdir()} == {*inputs()}


def test_every_command_format_table_and_tool_is_covered() -> None:
    """A new one needs a call in the corpus, so that its answers are stored."""
    covered = set()
    for name in inputs():
        calls, _ = calls_on(name)
        covered |= {call.covers for call in calls}
        assert len({call.name for call in calls}) == len(calls), "one answer would take the place of another"
    assert sorted(to_cover() - covered) == []
    assert not NOT_COVERED & covered


def to_cover() -> set[str]:
    commands = {
        f"{name} {output.value}"
        for panel in PANELS.values()
        for name, command in panel.items()
        for output in _formats(command)
    }
    tables = {f"{name} of {kind}" for kind in (CLUSTER, FILES, RECORDING) for name in tables_of(kind)}
    tools = {f"tool {each.__name__}" for each in AgentTools(lambda: None).tools}  # type: ignore[arg-type, return-value]
    return (commands | tables | tools) - NOT_COVERED


def _formats(command: Callable[..., None]) -> Iterable[Enum]:
    """The formats that a command has; table if it has no choice."""
    parameter = inspect.signature(command, eval_str=True).parameters.get("output")
    default = None if parameter is None else parameter.default
    return type(default) if isinstance(default, Enum) else [Format.TABLE]
