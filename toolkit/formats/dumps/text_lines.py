"""Lines of a text, one at a time, with lookahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class TextLines:
    """Lines without their line breaks, numbered from 1.

    Parameters
    ----------
    lines
        With or without line breaks.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._ahead: deque[str] = deque()
        self._last = ""  # with its line break, if it was read
        self._end = ""  # of every line, like the first
        self.number = 0  # of the line that `next` returned
        self.given_back = 0  # lines read ahead, repeated ones included
        self.exhausted = False  # whether the end was read, possibly ahead

    def __iter__(self) -> TextLines:
        return self

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else self._read()
        self.number += 1
        return line

    def peek(self) -> str | None:
        """The line that `next` will return; null at the end."""
        if not self._ahead:
            try:
                self._ahead.append(self._read())
            except StopIteration:
                return None
        return self._ahead[0]

    def push_back(self, lines: list[str]) -> None:
        """Let `next` return these lines again."""
        self._ahead.extendleft(reversed(lines))
        self.number -= len(lines)
        self.given_back += len(lines)

    @property
    def cut(self) -> bool:
        """Whether this is the last line and lacks the line break that others have."""
        return bool(self._end) and self.perhaps_cut

    @property
    def perhaps_cut(self) -> bool:
        """Whether this is the last line and has no line break."""
        return self.peek() is None and not self._last.endswith("\n")

    def _read(self) -> str:
        try:
            raw = next(self._lines)
        except StopIteration:
            self.exhausted = True
            raise
        if not self.number and not self._ahead:
            raw = raw.removeprefix("\ufeff")
            self._end = "\r\n" if raw.endswith("\r\n") else "\n" if raw.endswith("\n") else ""
        self._last = raw
        return raw.removesuffix(self._end)  # no more than that: what is before it may be the end of a payload's line
