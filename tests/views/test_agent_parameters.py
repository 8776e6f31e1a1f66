"""Every parameter of every tool for agents reaches the library: what each changes in the calls, as text."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.actions.rows import found
from tests.distinct import distinct_rows
from tests.spy import Calls, Spy, spy_on
from tests.stored import compare
from toolkit.schema import TRANSACTION_HISTORY
from toolkit.views import agent_tools
from toolkit.views.document import Connection

ARGUMENTS: Mapping[str, Any] = {
    "group": "one", "offset": 100, "partition": 3, "start_offset": 100, "text": "some", "topic": "orders",
    "transactional_id": "one",
}  # fmt: skip
PLAN = make_dataclass("PLAN", ["impact", "topic", "partition", "start_offset", "refusal", "finding", "warnings"])
IMPACT = make_dataclass("IMPACT", [])()
ROWS = [found(partition=3, start_offset=start).row() for start in (7, 100)]
ANSWERS = {
    **{f"{source}.finding_rows()": ROWS for source in ("Cluster", "LogDir", "Recording")},
    **{f"plan_{action}()": PLAN(IMPACT, "orders", 3, 100, None, None, ()) for action in ("abort", "complete")},
    **{
        f"{source}.transaction_history()": TRANSACTION_HISTORY.frame(distinct_rows(TRANSACTION_HISTORY))
        for source in ("Cluster", "LogDir", "Recording")
    },
    **{
        f"{s}.{name}": None
        for s in ("Cluster", "LogDir", "Recording")
        for name in ("cluster_id", "principal", "scope", "scope_text")
    },
    "AnswerPages.next_part()": {"rows": []},
    "tables_around()": {},
}


def differences(calls: Calls, source: str) -> Iterator[str]:
    """The calls of each tool on a source, and what each parameter changes in them."""
    made: Any = Spy.__new__(getattr(agent_tools, source), source, calls)
    tools = agent_tools.AgentTools(lambda: made, connection=Connection(server="broker:9092"), recheck_after=7.5)

    def calls_of(tool: Any, arguments: Mapping[str, Any]) -> Counter[str]:
        calls.lines.clear()
        answer = tool(**arguments)
        return Counter([*calls.lines, *([f"refused: {answer['error']['what']}"] if "error" in answer else [])])

    for tool in tools.tools:
        takes = inspect.signature(tool).parameters
        for more in ({}, {"cursor": "some"}) if "cursor" in takes else ({},):
            base = {name: value for name, value in ARGUMENTS.items() if name in takes} | more
            before = calls_of(tool, base)
            yield f"{source}.{tool.__name__}({', '.join(f'{name}={value!r}' for name, value in base.items())})"
            yield from (f"    {line}" for line in sorted(before.elements()) if source == "Cluster")
            for name in takes if not more else ("cursor", *({"limit"} & takes.keys())):
                other = 7 if name in {"limit", "offset", "partition", "start_offset"} else "other"
                changes = calls_of(tool, base | {name: other}) - before
                yield f"  {name}={other!r}: {'; '.join(sorted(changes.elements())) or 'no effect'}"


def test_every_parameter_reaches_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = Calls(ANSWERS, folder=tmp_path)
    real = ("toolkit.errors", "toolkit.schema")
    spy_on("toolkit.views.agent_tools", calls, monkeypatch, real=real)
    lines = [line for source in ("Cluster", "LogDir", "Recording") for line in differences(calls, source)]
    compare("agent_parameters.txt", lines)
