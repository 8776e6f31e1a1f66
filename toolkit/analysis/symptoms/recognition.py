"""Recognize symptoms in pasted text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.analysis.symptoms.named_resources import NamedResources, named_resources
from toolkit.analysis.symptoms.pasted_text import searchable
from toolkit.analysis.symptoms.symptom import ANY_CLIENT, Symptom
from toolkit.analysis.symptoms.symptom_table import SYMPTOMS

__all__ = ["RecognizedSymptom", "recognize"]


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
