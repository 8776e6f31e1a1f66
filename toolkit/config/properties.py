"""Java's ``.properties`` files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.config.needs import read_bytes
from toolkit.errors import UsageError


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file: UTF-8, else Latin-1 (which is what Java reads)."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Java ``.properties`` text to a dict; the last of equal keys wins (``java.util.Properties.load``).

    Raises
    ------
    UsageError
        For a malformed unicode escape; it names the key and not the value.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        if match:
            key = _unescape(match[1], "a key")
            properties[key] = _unescape(match[2], key)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, continued lines joined."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        pending += line[:-1] if backslashes % 2 else line
        if backslashes % 2 == 0:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescape(text: str, name: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape, escape)
        if len(escape) != 5:
            raise UsageError(f"The value of {name} has a malformed \\u escape.", do="Write \\u and four hex digits.")
        return chr(int(escape[1:], 16))

    unescaped = re.sub(r"\\(u[0-9A-Fa-f]{4}|.|$)", character, text, flags=re.DOTALL)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # Java's escapes are UTF-16 units
