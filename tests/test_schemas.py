"""What programs read: one envelope, a stored JSON Schema for each answer, and every answer of the corpus as it says."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest

from tests import schemas
from tests.corpus.answers import ANSWERS
from toolkit.version import __version__

STORE = "python -m tests.schemas stores them again."


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    return schemas.schemas()


def test_schemas_are_as_stored(found: Mapping[str, Any]) -> None:
    stored = schemas.stored()
    assert [*schemas.problems(found, stored)] == []
    assert sorted(found) == sorted(stored), STORE
    assert [name for name in found if found[name] != stored[name]] == [], STORE


def test_a_column_does_not_change_within_a_version(found: Mapping[str, Any]) -> None:
    """A new one, another type, one that is gone: a program that reads the version is told. A sentence may change."""
    changes: list[Callable[[Any], Any]] = [
        lambda row: row["properties"].update(added={"type": "string"}),
        lambda row: row["properties"]["topic"].update(type=["string", "null"]),
        lambda row: row["properties"].pop("topic"),
    ]
    for change in changes:
        stored = copy.deepcopy(dict(found))
        change(stored["partitions"]["properties"]["rows"]["items"])
        (problem,) = schemas.problems(found, stored)
        assert "partitions: what its JSON has changed" in problem
        assert "Raise `version` where the table is declared" in problem
        stored["partitions"]["properties"]["schema_version"] = {"const": "1.0"}
        assert [*schemas.problems(found, stored)] == []
    stored = copy.deepcopy(dict(found))
    stored["partitions"]["properties"]["rows"]["items"]["properties"]["topic"]["description"] = "Another sentence."
    assert [*schemas.problems(found, stored)] == []


def test_every_answer_of_the_corpus_is_as_its_schema_says(found: Mapping[str, Any]) -> None:
    validator: Any = import_module("jsonschema").Draft202012Validator  # nbformat needs it, too; it has no types
    validators = {name: validator(schema) for name, schema in found.items()}
    wrong, seen = list[str](), set[str]()
    for name, answer in answers():
        seen.add(answer["schema"])
        errors = validators[answer["schema"]].iter_errors(answer)
        wrong += [f"{name}: {error.json_path}: {error.message[:200]}" for error in errors]
        assert answer["tool_version"] == __version__
    assert wrong == []
    assert {"action", "explanations", "findings_with_docs", "group_lag", "transactions"} <= seen


def answers() -> Iterator[tuple[str, Any]]:
    """The answers of the corpus in JSON."""
    for path in sorted(ANSWERS.glob("*/*.txt")):
        text = path.read_text()
        command, _, rest = text.partition("\n")
        _, is_written, written = rest.partition("--- stdout\n")
        if command.startswith("$ kafka-txn") and "--format json" in command and is_written:
            yield f"{path.parent.name}/{path.stem}", json.loads(written.partition("\n--- ")[0])
