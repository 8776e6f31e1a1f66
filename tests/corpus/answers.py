"""The inputs, the calls on each, and their answers: of today, and as stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from tests.corpus.calls import Call
from tests.corpus.clocks import controlled
from tests.corpus.cluster_calls import cluster_calls
from tests.corpus.conversation import SUFFIX, Conversation, conversations
from tests.corpus.file_calls import Stopped, archives, clock_of, dump_calls, file_calls, unpacked
from tests.corpus.text_calls import text_calls
from tests.corpus.wire import replaying

ANSWERS = Path(__file__).parent / "answers"
TEXTS, DUMPS = "texts", "dumps"
NOON = Stopped(dt.datetime(2026, 11, 27, 12, tzinfo=dt.UTC))
Around = Callable[[Call], AbstractContextManager[Any]]


def inputs() -> list[str]:
    """Names of all inputs."""
    return [TEXTS, DUMPS, *archives(), *(path.name.removesuffix(SUFFIX) for path in conversations())]


@cache
def calls_on(name: str) -> tuple[list[Call], Around]:
    """The calls on an input, and what has to be around each of them."""
    if name in {TEXTS, DUMPS}:
        return list(text_calls() if name == TEXTS else dump_calls()), lambda call: controlled(NOON)
    if name in archives():
        folder = unpacked(archives()[name])
        return list(file_calls(name, folder)), lambda call: controlled(clock_of(folder))
    conversation = Conversation.load(next(path for path in conversations() if path.name == f"{name}{SUFFIX}"))

    def replayed(call: Call) -> AbstractContextManager[Any]:
        """At its moment; a call that was not recorded comes at that of the call whose name its own begins with."""
        began = [name for name in conversation.moments if call.name.startswith(name)]
        return replaying(conversation, at=conversation.moments[max(began, key=len, default="diagnose")])

    return list(cluster_calls(conversation.facts)), replayed


def answers_on(name: str, wanted: str = "") -> Iterator[tuple[str, str]]:
    """Every call on an input, with its answer of today; only calls whose name contains `wanted`."""
    calls, around = calls_on(name)
    for call in calls:
        if wanted in call.name:
            with around(call):
                yield call.name, call.run()


def stored(name: str) -> Mapping[str, str]:
    """The stored answers on an input, by the name of their call."""
    return {path.stem: path.read_text() for path in sorted((ANSWERS / name).glob("*.txt"))}
