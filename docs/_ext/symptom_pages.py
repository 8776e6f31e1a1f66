"""A page for each symptom that people paste, from the data that `kafka-txn explain` answers with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.analysis.symptoms import SYMPTOMS, Symptom
from toolkit.schema.verdict import Verdict

__all__ = ["symptom_pages"]

HEADINGS = {"consumer-offsets-grows": "`__consumer_offsets`, or another compacted topic, grows"}

HOW_TO = {
    "cannot-connect": "cannot-connect",
    "connect-task-fenced": "connect",
    "connect-transaction-expired": "connect",
    "consumer-offsets-grows": "compaction",
    "flink-commit-failed": "flink",
    "flink-duplicate-prefix": "flink",
    "flink-prefix-changed": "flink",
    "lso-held-after-abort": "abort-without-effect",
    "not-authorized": "no-right-to-abort",
    "other-broker-software": "compatible-brokers",
    "streams-task-migrated": "streams",
    "unclean-election": "unclean-election",
    "wrong-transaction-aborted": "wrong-abort",
}
"""Symptom to its page in ``docs/howto``."""

_GITHUB = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")
_ISSUE = re.compile(r"\b((?:KAFKA|FLINK|SPARK)-\d+)\b")
_KIP = re.compile(r"\bKIP-\d+\b")
_COMMAND = re.compile(
    r"kafka-txn [a-z-]+(?: --table [a-z_]+| --[a-z-]+(?: (?:[A-Z]+(?![a-z])|__\w+))?| [A-Z]+(?![a-z]))*"
)
_ERROR = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
_QUOTED = re.compile(r"`(\w+)`")


def symptom_pages() -> dict[str, str]:
    """File name to text."""
    lines = [f"| [{_heading(each)}]({name}.md) | {_text(each.title)} |" for name, each in sorted(SYMPTOMS.items())]
    tree = ["```{toctree}", ":hidden:", "", *sorted(SYMPTOMS), "```"]
    index = [
        "# Symptoms", "",
        "What clients, brokers and tools print when a transaction fails or holds consumers. `kafka-txn explain` finds "
        "the page from a pasted log.", "",
        "| printed, or said | what is going on |", "| --- | --- |", *lines, "", *tree, "",
    ]  # fmt: skip
    return {"index.md": "\n".join(index), **{f"{name}.md": "\n".join(_page(each)) for name, each in SYMPTOMS.items()}}


def _page(symptom: Symptom) -> Iterator[str]:
    yield from (f"# {_heading(symptom)}", "", _text(symptom.title), "")
    printed = list(_printed(symptom))
    if printed:
        yield from ("## How it is printed", "", "| by | text |", "| --- | --- |", *printed, "")
    yield from ("## How it happens", "", *_items(symptom.causes, numbered=True), "")
    yield from ("## How to prove it", "", *_items(symptom.checks), "")
    yield from ("## What is safe", "", *_items(symptom.safe), "")
    if symptom.name in HOW_TO:
        yield from (f"Step by step: [how-to](../howto/{HOW_TO[symptom.name]}.md).", "")
    yield from (":::{danger}", "**Never:**", "", *_items(symptom.never), ":::", "")
    yield from ("## Sources", "", *_items(symptom.sources), "")


def _heading(symptom: Symptom) -> str:
    """What people search for: the protocol's name of the error where it has one, else words."""
    printed = [_readable(each.pattern.pattern) or "" for each in symptom.wordings]
    codes = [text for text in printed if _ERROR.fullmatch(text)]
    words = HEADINGS.get(symptom.name) or symptom.name.replace("-", " ").replace("lso", "LSO")
    return f"`{codes[0]}`" if codes else words[0].upper() + words[1:]


def _printed(symptom: Symptom) -> Iterator[str]:
    """The wordings that are plain text; a pattern of many words is for a program."""
    for wording in symptom.wordings:
        text = _readable(wording.pattern.pattern)
        if text is not None and wording.client != "words":
            yield f"| {wording.client} | `{text}` |"


def _readable(pattern: str) -> str | None:
    text = re.sub(r"\\b", "", pattern)
    text = re.sub(r"\\S\{\d+,\d+\}|\\d\{\d+,\d+\}|\.\{\d+,\d+\}\??|\\S\+|\\d\+|\\w\{\d+,\d+\}", "...", text)
    text = re.sub(r"\\([^A-Za-z0-9])", r"\1", text)
    text = re.sub(r"\[(\w)\w\]", r"\1", text)
    return text if not re.search(r"[\\|*?\[\]{}]|\(\?", text) else None


def _items(texts: tuple[str, ...], *, numbered: bool = False) -> Iterator[str]:
    sign = "1." if numbered and len(texts) > 1 else "-"
    return (f"{sign} {_text(each)}".replace("\n", "  \n  ") for each in texts)  # a command is a line


def _verdict_link(found: re.Match[str]) -> str:
    name = found[1]
    return f"[`{name}`](../verdicts/{name}.md)" if name in set(Verdict) else found[0]


def _text(text: str) -> str:
    """A sentence with its commands as code, its verdicts and sources as links."""
    text = _COMMAND.sub(lambda found: f"`{found[0]}`", text) if "`kafka-txn" not in text else text
    text = _QUOTED.sub(_verdict_link, text)
    text = _GITHUB.sub(r"[\1#\2](https://github.com/\1/issues/\2)", text)
    text = _ISSUE.sub(r"[\1](https://issues.apache.org/jira/browse/\1)", text)
    text = _KIP.sub(r"[\g<0>](https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Improvement+Proposals)", text)
    return re.sub(r"(?<![`\w*])(__\w+)", r"`\1`", text)
