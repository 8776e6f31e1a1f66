"""Prepare pasted text for search: bounded, on one line, without control characters and secrets."""

from __future__ import annotations

import re

__all__ = ["MAX_CHARACTERS", "searchable"]

MAX_CHARACTERS = 1_000_000
"""Of longer text, the first half and the last half of this are read: a log's first and newest errors."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])")
_IN_JSON = re.compile(r"\\(?:[nrt]|u000[9ad])")  # a log line in JSON
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_SECRET = re.compile(
    r"(?P<key>(?:password|passwd|passphrase|secret|token|credential|api[_.-]?key|jaas\.config)\w{0,16}"
    r"[\"']?\s?(?:=>|[=:])\s?)(?:\"[^\"]{0,4096}\"?|'[^']{0,4096}'?|\S{1,4096})"
    r"|(?P<before>://[^\s/:@]{0,256}:|\b(?:Bearer|Basic)\s)[^\s/@]{1,4096}",
    re.IGNORECASE,
)


def searchable(text: str) -> str:
    """The text on one line with single spaces, without escape sequences and control characters; secrets are ``***``."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[: MAX_CHARACTERS // 2]}\n{text[-MAX_CHARACTERS // 2 :]}"
    text = _CONTROL.sub("", _ESCAPE.sub("", text))
    text = _IN_JSON.sub(" ", text).replace('\\"', '"')
    return _SECRET.sub(lambda found: f"{found['key'] or found['before']}***", " ".join(text.split()))
