"""The stored answers, and the answers of today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.corpus.calls import Call
from tests.corpus.cluster_calls import cluster_calls
from tests.corpus.conversation import SUFFIX, Conversation, conversations
from tests.corpus.wire import replaying

ANSWERS = Path(__file__).parent / "answers"


def inputs() -> Mapping[str, Path]:
    """The inputs, by name."""
    return {path.name.removesuffix(SUFFIX): path for path in conversations()}


def answers_of(name: str, wanted: str = "") -> Iterator[tuple[Call, str]]:
    """Every call on an input, with its answer of today; only calls whose name contains `wanted`."""
    conversation = Conversation.load(inputs()[name])
    for call in cluster_calls(conversation.facts):
        if wanted in call.name:
            with replaying(conversation, at=conversation.moments.get(call.name, 0.0)):
                yield call, call.run()


def stored(name: str) -> Mapping[str, str]:
    """The stored answers on an input, by the name of their call."""
    return {path.stem: path.read_text() for path in sorted((ANSWERS / name).glob("*.txt"))}
