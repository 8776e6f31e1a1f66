"""A conversation with a cluster: what each broker answered to each request, and when."""

from __future__ import annotations

import base64
import json
import lzma
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.corpus.requests import (
    ITEMS,
    Item,
    answered_items,
    combined,
    context_of,
    decode_answer,
    decode_request,
    question,
    requested_items,
)

INPUTS = Path(__file__).parent / "inputs"
SUFFIX, FILES_SUFFIX = ".json.xz", ".files.tar.xz"
END_TXN, INIT_PRODUCER_ID, WRITE_TXN_MARKERS = 26, 22, 27
API_VERSIONS, DESCRIBE_CONFIGS, DESCRIBE_QUORUM, FIND_COORDINATOR, METADATA, OFFSET_FETCH = 18, 32, 55, 10, 3, 9
LIST_TRANSACTIONS = 66
OF_THE_CLUSTER = {DESCRIBE_QUORUM, FIND_COORDINATOR}
"""Whichever broker is asked, it is a race of connections, and all of them answer the same."""
FROM_ANY_BROKER = {API_VERSIONS, DESCRIBE_CONFIGS, METADATA}
"""As `OF_THE_CLUSTER`, if the broker itself was not asked: it has its own settings, and leaders that it knows of."""
WRITES = {END_TXN, INIT_PRODUCER_ID, WRITE_TXN_MARKERS}


PROBE, PROBE_NAME = re.compile(rb"0000000\d0{24}"), b"%08d" + 24 * b"0"
"""A random name, as `tests.corpus.clocks.numbered_uuids` makes them."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A request as a broker receives it, without its correlation id."""

    address: str  # host:port of the broker
    api: int
    version: int
    body: bytes  # with the client id and tagged fields of the header

    @classmethod
    def of(cls, address: str, frame: bytes) -> RequestKey:
        """The key of a framed request."""
        api, version = struct.unpack_from(">hh", frame, 4)
        return cls(address, api, version, bytes(frame[12:]))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    at: float  # seconds since the beginning
    until: float  # when it came for the last time in a row
    frame: bytes | None  # without its size and correlation id; null if the broker stayed silent


@dataclass(frozen=True, slots=True)
class Window:
    """When the answers to be given came: near a time, between the last write and the next."""

    now: float
    after: float
    before: float

    def nearest(self, found: Sequence[Any]) -> Any:
        """The nearest answer; one from outside if there is no other."""
        between = [each for each in found if each.until >= self.after and each.at < self.before]
        return min(between or found, key=lambda each: max(each.at - self.now, self.now - each.until, 0.0))


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """What came back for one item of a request."""

    at: float
    until: float
    part: Any
    whole: bytes


@dataclass(kw_only=True)
class Conversation:
    """All that brokers answered."""

    made: Mapping[str, Any]  # how it was made: version, setup, incidents
    facts: Mapping[str, Any]  # names and offsets of what was staged
    started_ms: int  # milliseconds since the epoch
    moments: dict[str, float] = field(default_factory=dict)  # when each call began, in seconds since the beginning
    answers: dict[RequestKey, list[Answer]] = field(default_factory=dict)
    refused: dict[str, list[tuple[float, str | None]]] = field(default_factory=dict)  # connects, by address
    consumed: dict[str, Any] = field(default_factory=dict)  # what a read_committed consumer received, by range

    def add(self, key: RequestKey, at: float, frame: bytes | None) -> None:
        """Keep an answer; the same one again only says that it still came."""
        known = self.answers.setdefault(key, [])
        if known and known[-1].frame == frame and key.api not in WRITES:
            known[-1] = replace(known[-1], until=at)
        else:
            known.append(Answer(at, at, frame))

    @cached_property
    def writes(self) -> Sequence[float]:
        """When something was written."""
        return sorted(each.at for key, found in self.answers.items() if key.api in WRITES for each in found)

    @cached_property
    def _addresses(self) -> Sequence[str]:
        return sorted({each.address for each in self.answers})

    @staticmethod
    def _whose(key: RequestKey) -> str:
        return "" if key.api in OF_THE_CLUSTER else key.address

    @cached_property
    def _by_question(self) -> Mapping[tuple[str, int, int, str], Sequence[Answer]]:
        found: defaultdict[tuple[str, int, int, str], list[Answer]] = defaultdict(list)
        for key, answers in self.answers.items():
            query = question(key.api, key.version, key.body)
            found[self._whose(key), key.api, key.version, query] += answers
        return {query: sorted(answers, key=lambda each: each.at) for query, answers in found.items()}

    @cached_property
    def _by_item(self) -> Mapping[tuple[Any, ...], Sequence[ItemAnswer]]:
        found: defaultdict[tuple[Any, ...], list[ItemAnswer]] = defaultdict(list)
        for key, answers in self.answers.items():
            if key.api not in ITEMS:
                continue
            request = decode_request(key.api, key.version, key.body)
            where = self._whose(key), key.api, key.version, context_of(key.api, request)
            for answer in answers:
                if answer.frame is None:
                    continue
                parts = answered_items(key.api, request, decode_answer(key.api, key.version, answer.frame))
                for item, part in parts.items():
                    found[(*where, item)].append(ItemAnswer(answer.at, answer.until, part, answer.frame))
        return found

    def find(self, key: RequestKey, window: Window) -> Answer | None:
        """The answer to a request: to the same one, or put together from answers about each of its items.

        A random name, of which there is nothing, may be another one than when it was recorded.

        Returns: null if no broker was asked.
        """
        found = self._find_anywhere(key, window)
        if found is None and (name := PROBE.search(key.body)):
            for number in range(1, 10):
                other = PROBE_NAME % number
                found = self._find_anywhere(replace(key, body=key.body.replace(name[0], other)), window)
                if found is not None:
                    return replace(found, frame=found.frame and found.frame.replace(other, name[0]))
        return found

    def _find_anywhere(self, key: RequestKey, window: Window) -> Answer | None:
        request = decode_request(key.api, key.version, key.body)
        others = [each for each in self._addresses if each != key.address] if key.api in FROM_ANY_BROKER else []
        for address in [key.address, *others]:
            if found := self._find(replace(key, address=address), request, window):
                return found
        return None

    def _find(self, key: RequestKey, request: Any, window: Window) -> Answer | None:
        found = self._by_question.get(
            (self._whose(key), key.api, key.version, question(key.api, key.version, key.body))
        )
        if found:
            return window.nearest(found)  # type: ignore[no-any-return]
        if key.api not in ITEMS:
            return None
        where = self._whose(key), key.api, key.version, context_of(key.api, request)
        parts: dict[Item, ItemAnswer] = {}
        for item in requested_items(key.api, request):
            if (*where, item) not in self._by_item:
                return None
            parts[item] = window.nearest(self._by_item[(*where, item)])
        if not parts:
            return None
        template = decode_answer(key.api, key.version, next(iter(parts.values())).whole)
        frame = combined(key.api, key.version, request, template, lambda item: parts[item].part)
        return Answer(window.now, window.now, frame)

    def save(self, path: Path) -> None:
        """Write it to a file."""
        frames: dict[bytes, int] = {}

        def number(frame: bytes | None) -> int | None:
            return None if frame is None else frames.setdefault(frame, len(frames))

        answers = [
            [
                *(key.address, key.api, key.version, _text(key.body)),
                [[round(each.at, 3), round(each.until, 3), number(each.frame)] for each in found],
            ]
            for key, found in self.answers.items()
        ]
        content = {
            "made": self.made,
            "facts": self.facts,
            "started_ms": self.started_ms,
            "moments": {name: round(at, 3) for name, at in self.moments.items()},
            "refused": self.refused,
            "consumed": self.consumed,
            "answers": answers,
            "frames": [_text(frame) for frame in frames],
        }
        path.write_bytes(lzma.compress(json.dumps(content, separators=(",", ":")).encode(), preset=9))

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read it from a file."""
        content = json.loads(lzma.decompress(path.read_bytes()))
        frames = [base64.b64decode(each) for each in content.pop("frames")]
        answers = {
            RequestKey(address, api, version, base64.b64decode(body)): [
                Answer(at, until, None if number is None else frames[number]) for at, until, number in found
            ]
            for address, api, version, body, found in content.pop("answers")
        }
        return cls(**content, answers=answers)


def conversations() -> Iterator[Path]:
    """The files of all conversations."""
    return iter(sorted(INPUTS.glob(f"*{SUFFIX}")))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
