"""JSON Schemas of all answers with ``--format json``, of the declared tables: ``python -m tests.schemas`` stores them.

A change of a column without another version of its table is refused, by the test and here.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from toolkit.actions import plan as plans
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.cli import output
from toolkit.cli.action_commands import INTERNAL, SCHEMA, VERSION, ActionRow
from toolkit.schema import TABLES, Row
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint
from toolkit.schema.table import ListOf, StructOf, Table, TableRow, Type
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.coordinators import CoordinatorTopic
from toolkit.views.explained_error import EXPLANATIONS
from toolkit.views.finding_document import LINKED_FINDINGS
from toolkit.views.row_formats import ENVELOPE_VERSION, Envelope

FOLDER = Path(__file__).parent.parent / "docs" / "reference" / "schemas"
NOT_ANSWERED = {"actions", "saved_records", "samples", "late_transactions", "observation_times"}
"""Tables that are files of their own, or of a recording: no command answers with them."""

NAMES = {each.__name__: each for each in (Cluster, Committable, CoordinatorTopic, FlinkCheckpoint, Observation, Path)}
NAMES |= {name: getattr(plans, name) for name in ("ListResult", "Plan", "PlanList", "Result")} | {"Row": Row}
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string"}
Schema = dict[str, Any]


def schemas() -> Mapping[str, Schema]:
    """The schema of each answer, by its name."""
    tables = [each for name, each in TABLES.items() if name not in NOT_ANSWERED]
    found = {each.name: _of_answer(each.name, each.version, _of_table(each)) for each in
             (*tables, LINKED_FINDINGS, EXPLANATIONS)}  # fmt: skip
    for name, version, row in ((SCHEMA, VERSION, ActionRow), (output.SCHEMA, output.VERSION, output.ClusterRow)):
        found[name] = _of_answer(name, version, _of_hint(row))
    return found


def problems(found: Mapping[str, Schema], stored: Mapping[str, Schema]) -> Iterator[str]:
    """What changed without another version, a sentence each."""
    for name in sorted(found.keys() & stored.keys()):
        now, before = (each["properties"]["schema_version"]["const"] for each in (found[name], stored[name]))
        if _form(found[name]) != _form(stored[name]) and now == before:
            yield (
                f"{name}: what its JSON has changed, and its schema_version is still {now}. Raise `version` where the "
                "table is declared (ENVELOPE_VERSION for a field before the rows, VERSION of action_commands for an "
                "action), then store it by python -m tests.schemas, and say in CHANGELOG.md what changed."
            )


def stored() -> Mapping[str, Schema]:
    """The schemas as stored."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def _of_answer(name: str, version: int, row: Schema) -> Schema:
    envelope = _of_hint(Envelope)
    envelope["properties"] |= {
        "schema": {"const": name},
        "schema_version": {"const": f"{ENVELOPE_VERSION}.{version}"},
        "rows": {"type": "array", "items": row},
    }
    envelope["required"] = [*envelope["properties"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **envelope}


def _of_table(table: Table) -> Schema:
    fields = {}
    for column in table.columns:
        unit = f" Unit: {column.unit}." if column.unit else ""
        fields[column.name] = {**_of_type(column.type, nullable=column.nullable), "description": column.doc + unit}
    return {**_object(fields), "description": f"{table.row[0].upper()}{table.row[1:]}."}


def _of_type(type_: Type, *, nullable: bool) -> Schema:
    match type_:
        case ListOf(item):
            found: Schema = {"type": "array", "items": _of_type(item, nullable=True)}
        case StructOf(fields):
            found = _object({name: _of_type(inner, nullable=True) for name, inner in fields})
        case "timestamp[ms, UTC]":
            found = {"type": "string", "format": "date-time"}
        case "float64" | "bool" | "string" | "binary":
            found = {"type": {"float64": "number", "bool": "boolean"}.get(type_, "string")}
        case _:
            found = {"type": "integer"}
    return _or_null(found) if nullable else found


def _of_hint(hint: Any) -> Schema:
    """The schema of what `action_commands.plain` or an envelope makes of a value of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _of_hint(arguments[0])
    if origin in (types.UnionType, typing.Union):
        members = [_of_hint(each) for each in arguments if each is not type(None)]
        found = members[0] if len(members) == 1 else {"anyOf": members}
        return _or_null(found) if type(None) in arguments else found
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object"}
    if origin is not None and issubclass(origin, Sequence):
        return {"type": "array", "items": _of_hint(arguments[0])}
    if hint is dt.datetime:
        return {"type": "string", "format": "date-time"}
    if hint in PLAIN or issubclass(hint, StrEnum | Exception):
        return {"type": PLAIN.get(hint, "string")}
    if issubclass(hint, tuple):
        return _object({name: _of_hint(each) for name, each in typing.get_type_hints(hint).items()})
    return _object({name: _of_hint(each) for name, each in _fields(hint)})


def _fields(record: type) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(record, localns=NAMES, include_extras=issubclass(record, TableRow))
    for each in dataclasses.fields(record):
        if each.name not in INTERNAL or record is ActionRow:
            yield each.name, hints[each.name]


def _object(fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


def _or_null(schema: Schema) -> Schema:
    if "type" in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [*schema["anyOf"], {"type": "null"}]}


def _form(schema: Any) -> Any:
    """A schema without its sentences: they may change within a version."""
    if isinstance(schema, dict):
        return {
            name: _form(each) for name, each in schema.items() if not isinstance(each, str) or name != "description"
        }
    return [_form(each) for each in schema] if isinstance(schema, list) else schema


def main(report: Callable[[str], object] = print) -> None:
    """Store all schemas, unless one of them changed without another version."""
    found = schemas()
    if wrong := [*problems(found, stored())]:
        raise SystemExit("\n".join(wrong))
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, schema in found.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report(f"{len(found)} schemas are in {FOLDER}.")


if __name__ == "__main__":
    main()
