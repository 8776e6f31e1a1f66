"""Facts of a finding as short texts and as rows of the evidence column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.durations import duration

__all__ = ["at", "by_observations", "coordinator_says", "evidence", "number"]

_TIMES = {1: "seen once", 2: "seen twice"}


class _Sources(NamedTuple):
    """Names of the sources of values in the evidence."""

    offsets: str
    producers: str
    log: str


REQUESTS = _Sources("ListOffsets", "DescribeProducers", "Fetch")
FILES = _Sources("log and checkpoints", "log and .snapshot", "log")


def at(time: dt.datetime) -> str:
    """A time to the second: ``2026-11-21 09:58:11 UTC``."""
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def number(value: object) -> str:
    """A value, the length of a list, or ``unknown`` for null."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return str(len(value))
    return "unknown" if value is None else str(value)


def coordinator_says(owner: Row) -> str:
    """``coordinator 3: id "payments-7" is CompleteAbort``; names the log's partition if the log was read instead."""
    who = f"coordinator {number(owner.get('coordinator_id'))}"
    if owner.get("source") == STATE_TOPIC:
        who = f"__transaction_state-{number(owner.get('txn_state_partition'))}"
    return f'{who}: id "{owner["transactional_id"]}" is {owner.get("state") or "in no known state"}'


def by_observations(observations: Sequence[Observation]) -> str:
    """``seen twice, 5 s apart; all 3 brokers answered``; for files, whose they are and their age."""
    if observations[-1].from_files:
        return f"read from the files of {_brokers(observations[-1])} as of {at(observations[-1].observed_at)}"
    times_text = _TIMES.get(len(observations), f"seen {len(observations)} times")
    if len(observations) > 1:
        times_text += f", {duration(observations[-1].observed_at - observations[0].observed_at)} apart"
    brokers = len(observations[-1].coverage.brokers)
    return f"{times_text}; {'the only broker' if brokers == 1 else f'all {brokers} brokers'} answered"


def _brokers(observation: Observation) -> str:
    ids = [str(broker_id) for broker_id in observation.coverage.brokers]
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(ids)}" if ids else "an unknown broker"


def evidence(subject: OpenTransaction | Row, observations: Sequence[Observation]) -> list[dict[str, object]]:
    """Observed values as rows of the evidence column: source, broker, time, name and value."""
    last = observations[-1]
    sources = FILES if last.from_files else REQUESTS
    txn, partition = (subject, subject.leader_row) if isinstance(subject, OpenTransaction) else (None, subject)
    names = ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset", "isr", "leader_epoch")
    rows = [*_entries(sources.offsets, partition, names), *(_of_transaction(txn, sources) if txn else ())]
    apart = (last.observed_at - observations[0].observed_at).total_seconds()
    texts: dict[str, object] = {"observations": len(observations), "seconds_apart": f"{apart:.1f}"}
    if last.from_files:
        texts = {"as_of": last.observed_at}
    rows += [_entry("observations", None, last.observed_at, name, value) for name, value in texts.items()]
    tp = partition["topic"], partition["partition"]
    rows += [_entry(sources.log, None, last.observed_at, "note", note) for note in last.notes.get(tp, ())]
    rows += [_entry("coverage", None, last.observed_at, "proof", proof) for proof in last.coverage.proofs]
    rows += [_entry("coverage", None, last.observed_at, "gap", gap) for gap in last.coverage.gaps]
    return rows


def _of_transaction(txn: OpenTransaction, sources: _Sources) -> Iterator[dict[str, object]]:
    yield from _entries(
        sources.producers,
        txn.producer,
        ("producer_epoch", "current_txn_start_offset", "coordinator_epoch", "last_sequence", "last_timestamp"),
    )
    for owner in txn.owners:
        names = ("transactional_id", "producer_epoch", "state", "timeout_ms", "start_time")
        yield from _entries(owner["source"], owner, names)
        yield from _entries(STATE_TOPIC, owner, ("last_update_time",))
        yield _entry(owner["source"], owner.get("broker_id"), owner.get("observed_at"), "expects_marker_here",
                     str(txn.listed).lower())  # fmt: skip
    start = txn.owner.get("start_time")
    if start is not None and start > txn.observation.observed_at:
        ahead = duration(start - txn.observation.observed_at)
        yield _entry("clock", None, txn.observation.observed_at, "coordinator_ahead_by_at_least", ahead)
    if txn.first_batch is not None:
        clock = "broker" if txn.first_batch.log_append_time else "producer"
        texts: dict[str, object] = {
            "first_batch_producer": f"{txn.first_batch.producer_id} epoch {txn.first_batch.producer_epoch}",
            "first_batch_offsets": f"{txn.first_batch.base_offset}..{txn.first_batch.last_offset}",
            f"first_batch_time_by_{clock}": txn.first_batch.base_timestamp,
        }
        for name, value in texts.items():
            yield _entry(
                sources.log,
                txn.producer.get("broker_id"),
                txn.observation.observed_at,
                name,
                value,
            )


def _entries(source: str, row: Row, names: Sequence[str]) -> Iterator[dict[str, object]]:
    for name in names:
        if row.get(name) is not None:
            yield _entry(source, row.get("broker_id"), row.get("observed_at"), name, row[name])


def _entry(source: str, broker_id: object, observed_at: object, name: str, value: object) -> dict[str, object]:
    text = value.isoformat(timespec="milliseconds") if isinstance(value, dt.datetime) else str(value)
    return {"source": source, "broker_id": broker_id, "observed_at": observed_at, "name": name, "value": text}
