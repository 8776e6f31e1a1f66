"""A command as one line of text: quoted for a shell, and read back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

ACTIONS = frozenset({"abort", "complete", "commit", "fence"})
"""Commands that change a cluster."""

_WORD = re.compile(r"\$'(?:[^'\\]|\\.)*'|(?:'[^']*'|\"'\"|[^\s'\"$\\])+")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))")


def command_line(argv: Iterable[str]) -> str:
    """Arguments as a shell reads them, in one line of printable characters."""
    return " ".join(map(quoted, argv))


def quoted(argument: str) -> str:
    """An argument as a shell reads it, in printable characters."""
    if argument.isprintable():
        return shlex.quote(argument)
    written = (c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode(errors="surrogatepass"))
               for c in argument.replace("\\", r"\\").replace("'", r"\'"))  # fmt: skip
    return f"$'{''.join(written)}'"  # of bash, ksh and zsh


def grant(operation: str, resource: str, names: Iterable[str]) -> tuple[str, ...]:
    """The command that gives a principal a right. `resource`: ``topic``, ``group`` or ``transactional-id``."""
    principal = ("--allow-principal", "User:NAME")
    return "kafka-acls.sh", "--add", *principal, "--operation", operation, *(f"--{resource}={each}" for each in names)


def command_in(line: str) -> tuple[str, ...] | None:
    """The arguments of a line that is a command of ours, as `command_line` writes it; null of any other line."""
    if not line.startswith("kafka-txn "):
        return None
    argv = tuple(map(_unquoted, _WORD.findall(line)))
    return argv if command_line(argv) == line else None


def _unquoted(word: str) -> str:
    if not word.startswith("$'"):
        return "".join(shlex.split(word))
    own = word[2:-1].encode(errors="surrogatepass")
    read = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]) if found[1] else found[2], own)
    return read.decode(errors="surrogatepass")
