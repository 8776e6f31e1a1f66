"""Replace names in the tables of a report: topics, ids, groups, people, hosts and paths; producer ids and offsets stay.

The same name gives the same replacement everywhere in the tables, so that the report can still be followed. Lines of
brokers' own logs may hold anything, so only what happened is left of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from toolkit.schema.verdict import DOCS_URL
from toolkit.views.row_formats import spellings

ID = "id"
KINDS: Mapping[str, str] = {
    "topic": "topic",
    "committed_topic": "topic",
    "topic_id": "topic-id",
    "transactional_id": ID,
    "groups_held": "group",
    "group_id": "group",
    "owner": "owner",
    "member_ids": "member",
    "leader_member_id": "member",
    "who": "person",
    "principal": "person",
    "bootstrap_servers": "cluster",
    "cluster_id": "cluster",
    "records_file": "file",
    "file": "file",
    "action_id": "action",
}
"""Columns whose values are names, and the word of their replacements."""

KEPT = {
    *("verdict", "outcome", "action", "step", "kind", "ended", "state", "source", "marker", "event", "subject"),
    *("opened_at_clock", "start_clock", "override", "phase", "protocol_type"),
}
"""Columns of Kafka's words and ours."""

INTERNAL = {"__consumer_offsets", "__transaction_state", "__cluster_metadata"}
BROKER_LOG = "broker log"
OWN_HOST = re.escape(DOCS_URL.split("/")[2])
ISO_DATE = r"\d{4}-\d\d-\d\dT"
PATTERNS = {
    "path": r"\b(?:s3a?|gs|abfss?|wasbs?|hdfs)://[^\s\"',;()]+"
    r"|(?<![\w:/.])/(?:[^\s/:\"',;()]+/)+[^\s:\"',;()]*[^\s:\"',;().]",
    "user": r"\bUser:[^\s,;)\"']+(?:,\s?[A-Za-z]{1,9}=[^,;)\"'\n]*?(?<=\w)(?=,|;|\)|\"|'|\n|$| [a-z]))*",
    "host": r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?!\w|\.\w)"
    r"|\[?(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}\]?(?::\d+)?"
    rf"|(?<![\w.-])(?!{OWN_HOST}|{ISO_DATE})(?:[\w-]+\.)*[\w-]*[A-Za-z][\w-]*:\d{{2,5}}(?!\w|\.\d)"
    rf"|(?<![\w.-])(?!{OWN_HOST})(?:[\w-]+\.)+(?:com|net|org|io|dev|cloud|internal|local|corp|lan|svc)(?![\w-]|\.\w)",
}
"""What is replaced wherever it stands: paths, principals, addresses."""

QUOTED_ID = "|".join(
    (
        r"(?<=\bid \")[^\"\n]+(?=\")",
        r"(?<=\")[^\"\n]+(?=\" in __transaction_state-\d)",
        r"(?<=, which \")[^\"\n]+(?=\")|(?<=\", \")[^\"\n]+(?=\" had, too|\", \")",
        r"(?<=the start of ')[^'\n]+(?=', )|(?<=')[^'\n]+(?=' was not open at )",
    )
)
"""An id in our sentences, whole: that of a former owner, or of another client, is in no column."""

Value = TypeVar("Value")


class Redaction:
    """Replacements for the names in some tables: ``topic-1``, ``id-1``, ``host-1``.

    Parameters
    ----------
    tables
        Rows by table, which hold the names.
    """

    def __init__(self, tables: Mapping[str, object]) -> None:
        self._aliases: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        for kind, name in _names(tables):
            self._alias(kind, name)
        self._spelled = {written: alias for name, alias in self._aliases.items() for written in spellings(name)}
        anywhere = (f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items())
        self._pattern = re.compile("|".join([f"(?P<{ID}>{QUOTED_ID})", *_known(self._spelled), *anywhere]))

    def applied(self, value: Value) -> Value:
        """Rows or a text with replacements instead of the names.

        Parameters
        ----------
        value
            Tables by name, rows, a row, or a text.
        """
        redacted: Value = self._value(value, column="")
        return redacted

    def _alias(self, kind: str, name: str) -> str:
        if name not in self._aliases:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._aliases[name] = f"{kind}-{self._counts[kind]}"
        return self._aliases[name]

    def _value(self, value: Any, *, column: str) -> Any:
        if isinstance(value, str):
            if column in KEPT or value in INTERNAL:
                return value
            return self._alias(KINDS[column], value) if column in KINDS else self._pattern.sub(self._replace, value)
        if isinstance(value, Mapping):
            return self._row(value)
        if isinstance(value, Sequence):
            return [self._value(each, column=column) for each in value]
        return value

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        kept = {"name"} if "value" in row else set()
        redacted = {
            column: value if column in kept else self._value(value, column=column) for column, value in row.items()
        }
        if row.get("source") == BROKER_LOG:
            redacted["text"] = str(row.get("event") or "a line").replace("_", " ")
        return redacted

    def _replace(self, match: re.Match[str]) -> str:
        return self._spelled.get(match[0]) or self._alias(match.lastgroup or ID, match[0])


def _known(names: Iterable[str]) -> Iterator[str]:
    """Patterns of known names; one of digits alone is a name only in quotes, as it may be an offset elsewhere."""
    ordered = sorted(names, key=len, reverse=True)
    words = [re.escape(name) for name in ordered if not name.isdigit()]
    if words:
        yield rf"(?<!\w)(?:{'|'.join(words)})(?!\w)"
    digits = [name for name in ordered if name.isdigit()]
    if digits:
        yield rf"(?<=[\"'])(?:{'|'.join(digits)})(?=[\"'])"


def _names(value: Any) -> Iterator[tuple[str, str]]:
    """The names in rows, at any depth, each with its kind."""
    if isinstance(value, Mapping):
        yield from _addresses(value)
        for column, item in value.items():
            if column in KINDS:
                texts = [item] if isinstance(item, str) else item or ()
                yield from ((KINDS[column], each) for each in texts if each and each not in INTERNAL)
            else:
                yield from _names(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _names(item)


def _addresses(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names within other values: an id in evidence, hosts."""
    if row.get("name") == "transactional_id" and isinstance(row.get("value"), str):
        yield ID, row["value"]
    for host in (row.get("bootstrap_servers") or "").split(","):
        yield from (("host", name) for name in (host.strip(), host.rpartition(":")[0].strip()) if name)
    if "@" in (row.get("who") or ""):
        yield "host", row["who"].rpartition("@")[2]
