"""A symptom: its wordings, its causes, and what to do and not to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANY_CLIENT = "any client"
"""For names and messages of the protocol, which several clients print."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How a program words a symptom.

    Parameters
    ----------
    client
        The program that prints it: ``Java``, ``librdkafka``, ``Flink``, ``broker`` ...; or `ANY_CLIENT`.
    pattern
        Searched in the output of `searchable`. Every repetition in it is bounded.
    """

    client: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A symptom in pasted text, and its explanation.

    Parameters
    ----------
    name
        Lower-case words with hyphens; also the name of its docs page.
    title
        What is wrong, in one line.
    wordings
        How programs print it.
    causes
        Possible causes, the most frequent one first.
    checks
        What to check to tell the causes apart.
    safe
        What to do, and what is safe meanwhile.
    never
        What makes it worse.
    sources
        Kafka issues, KIPs and public threads that it is based on.
    instead_of
        Names of more general symptoms that its wordings also match, and that it replaces.
    gives_way
        Whether it is omitted if there is another symptom: it is then a consequence, or temporary.
    """

    name: str
    title: str
    wordings: tuple[Wording, ...]
    causes: tuple[str, ...]
    checks: tuple[str, ...]
    safe: tuple[str, ...]
    never: tuple[str, ...]
    sources: tuple[str, ...]
    instead_of: tuple[str, ...] = ()
    gives_way: bool = False


def wordings(client: str, *patterns: str) -> tuple[Wording, ...]:
    """Wordings of one client, from regular expressions that ignore case."""
    return tuple(Wording(client, re.compile(pattern, re.IGNORECASE)) for pattern in patterns)
