"""All symptoms; those with specific wordings come before those with general ones."""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.analysis.symptoms.fencing_symptoms import FENCING_SYMPTOMS
from toolkit.analysis.symptoms.marker_symptoms import MARKER_SYMPTOMS
from toolkit.analysis.symptoms.reading_symptoms import READING_SYMPTOMS
from toolkit.analysis.symptoms.symptom import Symptom
from toolkit.analysis.symptoms.transaction_symptoms import TRANSACTION_SYMPTOMS

__all__ = ["SYMPTOMS"]

SYMPTOMS: Mapping[str, Symptom] = {
    each.name: each for each in (*FENCING_SYMPTOMS, *TRANSACTION_SYMPTOMS, *MARKER_SYMPTOMS, *READING_SYMPTOMS)
}
"""Symptom by name."""
