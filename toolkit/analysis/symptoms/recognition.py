"""Recognize symptoms in pasted text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.symptoms.fencing_symptoms import FENCING_SYMPTOMS
from toolkit.analysis.symptoms.marker_symptoms import MARKER_SYMPTOMS
from toolkit.analysis.symptoms.named_resources import NamedResources, named_resources
from toolkit.analysis.symptoms.reading_symptoms import READING_SYMPTOMS
from toolkit.analysis.symptoms.symptom import ANY_CLIENT, Symptom
from toolkit.analysis.symptoms.transaction_symptoms import TRANSACTION_SYMPTOMS

SYMPTOMS: Mapping[str, Symptom] = {
    each.name: each for each in (*FENCING_SYMPTOMS, *TRANSACTION_SYMPTOMS, *MARKER_SYMPTOMS, *READING_SYMPTOMS)
}
"""Symptom by name; those with specific wordings come before those with general ones."""

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


@dataclass(frozen=True, slots=True)
class RecognizedSymptom:
    """A symptom, and the clients whose wordings were found."""

    symptom: Symptom
    clients: tuple[str, ...]


def recognize(text: str) -> tuple[tuple[RecognizedSymptom, ...], NamedResources]:
    """The symptoms in a text, in the order of ``SYMPTOMS``, and the resources that it names.

    Parameters
    ----------
    text
        An error, log lines, or the output of ``kafka-consumer-groups.sh``; of any length, see `searchable`.

    Returns
    -------
    tuple
        No symptom if the text is unknown. Omitted are general symptoms that a more specific one replaces
        (`Symptom.instead_of`), and those that give way to any other (`Symptom.gives_way`).
    """
    line = searchable(text)
    found = [each for symptom in SYMPTOMS.values() if (each := _recognized(symptom, line))]
    return _without_general(found), named_resources(line)


def _recognized(symptom: Symptom, line: str) -> RecognizedSymptom | None:
    clients = list(dict.fromkeys(each.client for each in symptom.wordings if each.pattern.search(line)))
    own = [each for each in clients if each != ANY_CLIENT]
    return RecognizedSymptom(symptom, tuple(own or clients)) if clients else None


def _without_general(found: Sequence[RecognizedSymptom]) -> tuple[RecognizedSymptom, ...]:
    replaced = {name for each in found for name in each.symptom.instead_of}
    special = [each for each in found if each.symptom.name not in replaced]
    decisive = [each for each in special if not each.symptom.gives_way]
    return tuple(decisive or special)


def searchable(text: str) -> str:
    """The text on one line with single spaces, without escape sequences and control characters; secrets are ``***``."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[: MAX_CHARACTERS // 2]}\n{text[-MAX_CHARACTERS // 2 :]}"
    text = _CONTROL.sub("", _ESCAPE.sub("", text))
    text = _IN_JSON.sub(" ", text).replace('\\"', '"')
    return _SECRET.sub(lambda found: f"{found['key'] or found['before']}***", " ".join(text.split()))
