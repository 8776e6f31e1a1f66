"""What each value of a row changes in a text: the text of some rows, and for each other value the difference.

So every branch of a sentence is reached that depends on one column: null or known, none, one or many, each word.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.schema import Row
from toolkit.schema.table import ListOf, Table
from toolkit.schema.verdict import Verdict

AT = dt.datetime(2026, 11, 21, 9, 58, 11, tzinfo=dt.UTC)
WORDS: Mapping[str, Sequence[Any]] = {
    "verdict": [each.value for each in Verdict],
    "outcome": ["undecided", "abort", "commit", "unknown"],
    "action": ["abort", "complete", "commit", "fence"],
    "step": ["intent", "outcome", "refused"],
    "marker": ["COMMIT", "ABORT"],
    "event": ["open", "commit", "abort", "end"],
    "kind": ["transaction", "init", "expired"],
    "ended": ["commit", "abort", "open"],
    "opened_at_clock": ["coordinator", "producer", "broker"],
    "subject": ["known bug", "cluster", "broker", "transactional_id"],
    "reason": ["Its COMMIT marker is at offset 9 of the log."],
    "cause": ["a hint (late-after-commit, group-offsets)", "a hint (no-such-cause)"],
    "owner": ["Kafka Streams application ledger, thread 1 on 10.0.0.5 (certain)", "Flink ledger (likely)"],
    "error": ["TOPIC_AUTHORIZATION_FAILED: no", "NOT_COORDINATOR: it moved"],
    "remedy": ["Wait.", "At once:\nkafka-txn abort --topic orders --partition 0 --start-offset 100\nAnd look."],
    "missing": [["broker 2", "TOPIC_AUTHORIZATION_FAILED: no"]],
}
"""Values of columns whose text matters; of other texts one is as good as another."""

IDS = {"partition", "producer_id", "producer_epoch", "broker_id", "high_watermark"}
"""Numbers of which nothing is counted."""


def others(name: str, type_: Any, value: Any, *, nullable: bool, few: bool) -> Iterator[Any]:
    """Other values of a column."""
    if nullable:
        yield None
    yield from WORDS.get(name, ())
    match type_:
        case "bool":
            yield from (False, True)
        case "string" if name not in WORDS:
            yield "another"
        case "int16" | "int32" | "int64" if name in IDS:
            yield from (0, 12_345)
        case "int16" | "int32" | "int64":
            yield from (1, 12_345) if few else (0, 1, 2, 12_345)
        case "timestamp[ms, UTC]":
            seconds = (-86_400, 1) if few else (-86_400, 0.002, 1, 86_400)
            yield from ((value or AT) + dt.timedelta(seconds=each) for each in seconds)
        case ListOf("string"):
            yield from ([], ["a"], ["b", "a"], list("fedcba"))


def variants(
    table: Table, rows: Sequence[Row], *, of: Sequence[int] = (0,), without: Sequence[str] = (), few: bool = False
) -> Iterator[tuple[str, list[Row]]]:
    """The rows with one other value, in those whose numbers are in `of`; and the name of that."""
    for column in table.columns:
        value = rows[of[0]].get(column.name)
        for other in others(column.name, column.type, value, nullable=column.nullable, few=few):
            if other != value and column.name not in without:
                is_time = isinstance(other, dt.datetime)
                shown = f"{other:%d %H:%M:%S.%f}"[:-3] if is_time else repr(other)
                fresh = [{**row, column.name: other} if n in of else row for n, row in enumerate(rows)]
                yield f"{column.name}={shown}", fresh


def differences(render: Callable[[Any], Iterable[str]], base: Any, changed: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """The text of a base with numbered lines, and what each change makes of it; those of one effect are together."""
    before = [line for text in render(base) for line in text.splitlines()]
    yield from (f"{number:4} {line}".rstrip() for number, line in enumerate(before, start=1))
    labels: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for label, rows in changed:
        try:
            after = [line for text in render(rows) for line in text.splitlines()]
        except ToolkitError as error:
            after = [f"{type(error).__name__}: {error}"]
        labels[tuple(_changes(before, after))].append(label)
    for change, found in labels.items():
        yield f"  {'; '.join(found)}"
        yield from (f"      {line}" for line in change or ("no effect",))


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for kind, start, stop, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        where = f"{start + 1}" if stop - start < 2 else f"{start + 1}..{stop}"
        old, new = before[start:stop], after[first:last]
        if kind == "replace" and len(old) == len(new):
            yield from (f"{start + n}{_changed(*pair)}" for n, pair in enumerate(zip(old, new, strict=True), start=1))
        elif kind != "equal":
            yield f"{where}: {'gone' if kind == 'delete' else 'before it' if kind == 'insert' else 'instead'}"
            yield from (f"  + {line}" for line in new)


def _changed(old: str, new: str) -> str:
    """``.27: [old] -> [new]``: from which character on, without what both have at their ends."""
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    return f".{start}: [{old[start : len(old) - end]}] -> [{new[start : len(new) - end]}]"


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))
