"""Facts as short texts and structured evidence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolkit.analysis.cases import Case
from toolkit.analysis.evidence import Look
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row

__all__ = ["at", "by_the_looks", "coordinator_says", "duration", "evidence", "number"]

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_TIMES = {1: "seen once", 2: "seen twice"}


class _Asked(NamedTuple):
    """Who told what, as the evidence names it."""

    offsets: str
    producers: str
    log: str


REQUESTS = _Asked("ListOffsets", "DescribeProducers", "Fetch")
FILES = _Asked("log and checkpoints", "log and .snapshot", "log")


def duration(span: dt.timedelta) -> str:
    """A time span by its two largest units: ``2 h 14 min``."""
    rest = round(abs(span).total_seconds())
    parts: list[str] = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "under 1 s"


def at(time: dt.datetime) -> str:
    """A time to the second: ``2026-11-21 09:58:11 UTC``."""
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def number(value: object) -> str:
    """A value, or that it is not known."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return str(len(value))
    return "unknown" if value is None else str(value)


def coordinator_says(owner: Row) -> str:
    """``coordinator 3: id "payments-7" is CompleteAbort``; names the log where that was read instead."""
    who = f"coordinator {number(owner.get('coordinator_id'))}"
    if owner.get("source") == STATE_TOPIC:
        who = f"__transaction_state-{number(owner.get('txn_state_partition'))}"
    return f'{who}: id "{owner["transactional_id"]}" is {owner.get("state") or "in no known state"}'


def by_the_looks(looks: Sequence[Look]) -> str:
    """``seen twice, 5 s apart; all 3 brokers answered``; or that it was read from files, and how old they are."""
    if looks[-1].from_files:
        return f"read from the files of {_brokers(looks[-1])} as of {at(looks[-1].observed_at)}"
    seen = _TIMES.get(len(looks), f"seen {len(looks)} times")
    if len(looks) > 1:
        seen += f", {duration(looks[-1].observed_at - looks[0].observed_at)} apart"
    brokers = len(looks[-1].coverage.brokers)
    return f"{seen}; {'the only broker' if brokers == 1 else f'all {brokers} brokers'} answered"


def _brokers(look: Look) -> str:
    ids = [str(broker_id) for broker_id in look.coverage.brokers]
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(ids)}" if ids else "an unknown broker"


def evidence(subject: Case | Row, looks: Sequence[Look]) -> list[dict[str, object]]:
    """What was seen, as rows of the evidence column: source, broker, time, name and value."""
    last = looks[-1]
    asked = FILES if last.from_files else REQUESTS
    rows = list(_of_case(subject, asked) if isinstance(subject, Case) else _of_partition(subject, asked))
    apart = (last.observed_at - looks[0].observed_at).total_seconds()
    texts = {"looks": str(len(looks)), "seconds_apart": f"{apart:.1f}"}
    if last.from_files:
        texts = {"as_of": _text(last.observed_at)}
    rows += [_entry("looks", None, last.observed_at, name, value) for name, value in texts.items()]
    tp = subject.tp if isinstance(subject, Case) else (subject["topic"], subject["partition"])
    rows += [_entry(asked.log, None, last.observed_at, "note", note) for note in last.notes.get(tp, ())]
    rows += [_entry("coverage", None, last.observed_at, "proof", proof) for proof in last.coverage.proofs]
    rows += [_entry("coverage", None, last.observed_at, "gap", gap) for gap in last.coverage.gaps]
    return rows


def _of_case(case: Case, asked: _Asked) -> Iterator[dict[str, object]]:
    yield from _of_partition(case.leader_row, asked)
    yield from _named(
        asked.producers,
        case.producer,
        ("producer_epoch", "current_txn_start_offset", "coordinator_epoch", "last_sequence", "last_timestamp"),
    )
    for owner in case.owners:
        names = ("transactional_id", "producer_epoch", "state", "timeout_ms", "start_time")
        yield from _named(owner["source"], owner, names)
        yield from _named(STATE_TOPIC, owner, ("last_update_time",))
        yield _entry(owner["source"], owner.get("broker_id"), owner.get("observed_at"), "expects_marker_here",
                     str(case.listed).lower())  # fmt: skip
    start = case.owner.get("start_time")
    if start is not None and start > case.look.observed_at:
        ahead = duration(start - case.look.observed_at)
        yield _entry("clock", None, case.look.observed_at, "coordinator_ahead_by_at_least", ahead)
    if case.opening is not None:
        clock = "broker" if case.opening.log_append_time else "producer"
        found = {
            "first_batch_producer": f"{case.opening.producer_id} epoch {case.opening.producer_epoch}",
            "first_batch_offsets": f"{case.opening.base_offset}..{case.opening.last_offset}",
            f"first_batch_time_by_{clock}": _text(case.opening.base_timestamp),
        }
        for name, value in found.items():
            yield _entry(asked.log, case.producer.get("broker_id"), case.look.observed_at, name, value)


def _of_partition(row: Row, asked: _Asked) -> Iterator[dict[str, object]]:
    names = ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset", "isr", "leader_epoch")
    yield from _named(asked.offsets, row, names)


def _named(source: str, row: Row, names: Sequence[str]) -> Iterator[dict[str, object]]:
    for name in names:
        if row.get(name) is not None:
            yield _entry(source, row.get("broker_id"), row.get("observed_at"), name, _text(row[name]))


def _entry(source: str, broker_id: object, observed_at: object, name: str, value: str) -> dict[str, object]:
    return {"source": source, "broker_id": broker_id, "observed_at": observed_at, "name": name, "value": value}


def _text(value: object) -> str:
    return value.isoformat(timespec="milliseconds") if isinstance(value, dt.datetime) else str(value)
