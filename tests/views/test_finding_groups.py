"""Many findings of one kind are one block: each kind of thousands that hid the one finding that mattered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.views.test_text import finding, healthy
from toolkit.schema import Row
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.views.finding_document import finding_groups, finding_lines, short_lines, summary

DENIED = "TOPIC_AUTHORIZATION_FAILED: Topic authorization failed"


def unread(number: int, *, error: str = DENIED, **fields: object) -> Row:
    place = {"topic": f"t{number % 2_000}", "partition": number // 2_000}
    nothing = dict.fromkeys(("producer_id", "producer_epoch", "transactional_id", "queue_position", "start_offset",
                             "last_stable_offset", "records_held", "groups_held", "opened_at"))  # fmt: skip
    said = {"verdict": "unknown", "reason": "The partition could not be read.", "remedy": "Diagnose again.",
            "missing": [error], "outcome": None}  # fmt: skip
    return finding(**{**nothing, **place, **said, "evidence": [], **fields})


def hanging(number: int, **fields: object) -> Row:
    topic = f"orders-{number % 4}"
    named = {"transactional_id": f"payments-{number}", "producer_id": number, "action": "abort", "outcome": "undecided"}
    remedy = f"kafka-txn abort --topic {topic} --partition {number} --start-offset 913095344"
    return finding(**{"topic": topic, "partition": number, "remedy": remedy, **named, **fields})


def test_200_000_partitions_without_rights_are_one_block() -> None:
    """2,081 of them were 12,478 lines around the one finding."""
    one, read = records_of([unread(0), hanging(7)], Finding)
    found = [*(replace(one, topic=f"t{n % 2_000}", partition=n // 2_000) for n in range(200_000)), read]
    began = time.process_time()
    lines = finding_lines(found)
    seconds = time.process_time() - began
    text = "\n".join(lines)
    assert len(lines) < 40
    assert seconds < 30, "5 s of processor"
    assert lines[0].startswith("orders-3-7"), "what was read comes first"
    assert "\n200,000 partitions not read\n" in text
    assert "READ on 2,000 topics" in text
    assert "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation READ" in text
    assert summary(found[:-1]) == "not known: 200,000 partitions could not be read, 200,000 unknown"


ALIKE: dict[str, tuple[int, Callable[[int], Row]]] = {  # blocks of findings of these numbers
    "clear": (1, lambda n: healthy(partition=n, verdict="clear", producer_id=None, start_offset=None)),
    "a silent broker each": (2, lambda n: unread(n, error="REQUEST_TIMED_OUT: no answer", broker_id=n % 2)),
    "names differ": (1, lambda n: unread(n, missing=[f"the log of t{n}-0: none"])),
    "held or not": (2, lambda n: unread(n, offsets_held=n % 2)),
    "missing": (2, lambda n: hanging(n, missing=["broker 2"] if n % 2 else [])),
    "outcome": (2, lambda n: hanging(n, outcome="abort" if n % 2 else "undecided")),
    "action": (2, lambda n: hanging(n, action="complete" if n % 2 else "abort")),
    "cause": (2, lambda n: hanging(n, cause="a hint" if n % 2 else None)),
    "advice": (2, lambda n: hanging(n, remedy="Soon:\n" * (n % 2) + hanging(n)["remedy"])),
    "verdict": (2, lambda n: hanging(n, verdict="overdue" if n % 2 else "hanging")),
    "prefixes": (2, lambda n: healthy(partition=n, transactional_id=f"{'ab'[n % 2]}-{n}")),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_alike_is_one_group(name: str) -> None:
    blocks, row_of = ALIKE[name]
    assert len(finding_groups(records_of([row_of(n) for n in range(50)], Finding))) == blocks


def test_few_have_a_block_each() -> None:
    """Those to act on up to 5, and lines of healthy ones up to 20."""
    for number, blocks in ((20, 20), (21, 1)):
        rows = [healthy(partition=n, transactional_id=f"a-{n}") for n in range(number)]
        assert len(finding_groups(records_of(rows, Finding))) == blocks
    assert len(finding_groups(records_of([hanging(n) for n in range(5)], Finding))) == 5


@pytest.mark.parametrize("lines", [finding_lines, lambda rows: short_lines(records_of(rows, Finding))])
def test_the_most_urgent_is_first(lines: Callable[[list[Row]], list[str]]) -> None:
    rows = [healthy(topic="c"), finding(topic="b", verdict="overdue"), finding(topic="a", verdict="stuck_ending")]
    rows.append(finding(topic="z"))
    found = lines(rows)
    places = [min(i for i, line in enumerate(found) if line.startswith(f"{name}-0")) for name in "zabc"]
    assert places == sorted(places)


def test_what_was_not_read_hides_no_line_of_what_has_something_to_do() -> None:
    """Of thousands without READ each had a line above it, and an agent got them first, a page at a time."""
    committed = finding(topic="z", verdict="stuck_ending", outcome="commit", action="complete")
    first, *_ = short_lines(records_of([*(unread(n) for n in range(9)), committed], Finding))
    assert first.split()[0] == "z-0"


def test_a_long_id_does_not_move_what_is_in_other_lines() -> None:
    """Kafka takes an id of 8,000 characters: each line of `diagnose --short` was as long."""
    rows = [healthy(partition=0, transactional_id="a" * 8_000), healthy(partition=1, transactional_id="b")]
    lines = short_lines(records_of(rows, Finding))
    assert [len(line) > 8_000 for line in lines] == [True, False]
    assert len(lines[1]) < 120


def test_short_lines_group_what_was_not_read_by_its_reason() -> None:
    """Of 200,000 partitions without READ each had its line, where the long form had 39 in all."""
    silent = [unread(n, error="REQUEST_TIMED_OUT: no answer") for n in (9, 10)]
    lines = short_lines(records_of([*(unread(n) for n in range(9)), *silent, hanging(7)], Finding))
    assert [line.split()[0] for line in lines] == ["orders-3-7", "t10-0", "t9-0", "9"]
    assert lines[-1] == f"9 partitions not read  {DENIED}  " + "; ".join(f"t{n}: 0" for n in range(9))


def test_what_was_read_is_before_what_was_not_and_healthy_ones_behind_are_not_counted() -> None:
    stuck = [finding(topic=f"b{n}", verdict="stuck_ending", producer_id=n) for n in range(10)]
    behind = [healthy(topic=f"b{n}", queue_position=2, producer_id=99) for n in range(10)]
    read, not_read = finding_groups(records_of([*(unread(n) for n in range(10)), *stuck, *behind], Finding))
    assert {each.verdict for each in read.findings} == {"stuck_ending"}
    assert read.names() == '10 producers, id "payments-7"'
    assert {each.verdict for each in not_read.findings} == {"unknown"}
