"""The answers of today are those that are stored; ``python -m tests.corpus`` stores them again."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.corpus.answers import answers_of, inputs, stored

MAX_LINES = 400


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.xdist_group(f"corpus {each}")) for each in inputs()]
)
def test_answers_are_as_stored(name: str) -> None:
    before, now = stored(name), {call.name: text for call, text in answers_of(name)}
    lines: list[str] = []
    for call in sorted(before.keys() | now.keys()):
        texts = before.get(call, "").splitlines(), now.get(call, "").splitlines()
        lines += unified_diff(*texts, f"stored/{call}", f"now/{call}", n=2, lineterm="")
    if lines:
        pytest.fail("\n".join(lines[:MAX_LINES]) + "\n\npython -m tests.corpus stores them again.", pytrace=False)
