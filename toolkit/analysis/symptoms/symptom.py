"""A symptom: its wordings, its causes, and what to do and not to do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

ANY_CLIENT = "any client"
"""For names and messages of the protocol, which several clients print."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How a program words a symptom."""

    client: str  # the program that prints it: ``Java``, ``librdkafka``, ``Flink``, ``broker`` ...; or `ANY_CLIENT`
    pattern: re.Pattern[str]  # searched in the output of `searchable`. Every repetition in it is bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A symptom in pasted text, and its explanation."""

    name: str  # lower-case words with hyphens; also the name of its docs page
    title: str  # what is wrong, in one line
    wordings: tuple[Wording, ...]  # how programs print it
    causes: tuple[str, ...]  # possible causes, the most frequent one first
    checks: tuple[str, ...]  # what to check to tell the causes apart
    safe: tuple[str, ...]  # what to do, and what is safe meanwhile
    never: tuple[str, ...]  # what makes it worse
    sources: tuple[str, ...]  # Kafka issues, KIPs and public threads that it is based on
    # names of more general symptoms that its wordings also match, and that it replaces
    instead_of: tuple[str, ...] = ()
    gives_way: bool = False  # whether it is omitted if there is another symptom: it is then a consequence, or temporary


def read_symptoms() -> dict[str, Symptom]:
    """The symptoms of ``symptoms.toml`` by name, in its order: specific wordings come before general ones."""
    text = (resources.files(__package__) / "symptoms.toml").read_text(encoding="utf-8")
    return {name: _symptom(name, **entry) for name, entry in tomllib.loads(text).items()}


def _symptom(
    name: str,
    *,
    title: str,
    wordings: Mapping[str, Sequence[str]] = MappingProxyType({}),
    near: Sequence[tuple[str, str]] = (),
    gives_way: bool = False,
    **lists: Sequence[str],
) -> Symptom:
    found = [Wording(client, re.compile(each, re.IGNORECASE)) for client, texts in wordings.items() for each in texts]
    for one, other in near:
        either = f"(?:{one}).{{0,80}}?(?:{other})|(?:{other}).{{0,80}}?(?:{one})"
        found.append(Wording("words", re.compile(either, re.IGNORECASE)))
    tuples = {key: tuple(texts) for key, texts in lists.items()}
    return Symptom(name=name, title=title, wordings=tuple(found), gives_way=gives_way, **tuples)
