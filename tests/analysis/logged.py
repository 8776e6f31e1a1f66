"""Batches and records of coordinators, and findings decided with them."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.analysis.build import NOW, observation, partition, producer
from toolkit.analysis.diagnosis.case import Case, DiagnoseOptions, IndexedObservation
from toolkit.analysis.diagnosis.causes import explain
from toolkit.analysis.diagnosis.decision import Outcome
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.markers import MarkerSearch
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.findings_over_time import with_earlier
from toolkit.analysis.transaction_history import CoordinatorLog
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import HEADER, NO_MARKER, Headers
from toolkit.schema import TRANSACTION_LOG, Row
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import TopicPartition, TransactionKey

T0 = NOW - dt.timedelta(minutes=10)
HERE, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("payments", 3)


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


def milliseconds(seconds: float) -> int:
    return round(at(seconds).timestamp() * 1000)


def data(
    offset: int, *, pid: int = 7, epoch: int = 0, sequence: int = 0, records: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "base_offset": offset, "last_offset": offset + records - 1, "producer_id": pid, "producer_epoch": epoch,
        "base_sequence": sequence, "record_count": records, "attributes": TRANSACTIONAL, "marker": NO_MARKER, **more,
    }  # fmt: skip


def marker(offset: int, kind: int, *, pid: int = 7, epoch: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "base_offset": offset, "last_offset": offset, "producer_id": pid, "producer_epoch": epoch, "base_sequence": -1,
        "record_count": 1, "attributes": TRANSACTIONAL | CONTROL, "marker": kind, "coordinator_epoch": 3, **more,
    }  # fmt: skip


def headers(*rows: dict[str, Any]) -> Headers:
    """One batch per second from T0, 100 bytes each, in leader epoch 4."""
    array = np.zeros(len(rows), HEADER)
    for number, row in enumerate(rows):
        time = milliseconds(row.get("second", number))
        fields = {"size": 100, "leader_epoch": 4, "base_timestamp": time, "max_timestamp": time, "magic": 2, **row}
        for name, value in fields.items():
            if name != "second":
                array[name][number] = value
    return array


def excerpt(*rows: dict[str, Any], start: int = 90, **more: Any) -> Excerpt:
    """Up to the last batch; with another `stop`, the offsets after it have none, as if the cleaner had removed them."""
    batches = headers(*rows)
    stop = int(batches["last_offset"][-1]) + 1 if len(batches) else start
    fields = {"stop": stop, "log_start_offset": 0, "observed_at": NOW, "broker_id": 1}
    return Excerpt(headers=batches, start=start, **{**fields, **more})


def record(
    offset: int, state: str | None, *, second: float, on: Any = (), pid: int = 7, epoch: int = 0, **more: Any
) -> Row:
    started = more.pop("started", None)
    return {
        **dict.fromkeys(TRANSACTION_LOG.names),
        "txn_state_partition": 33, "offset": offset, "timestamp": at(second), "transactional_id": "payments-7",
        "producer_id": None if state is None else pid, "producer_epoch": epoch, "state": state, "timeout_ms": 60_000,
        "topic_partitions": [{"topic": t, "partition": p} for t, p in on], "last_update_time": at(second),
        "start_time": None if started is None else at(started), "tombstone": state is None, "broker_id": 3, **more,
    }  # fmt: skip


def ended_records(
    end: str, *, began: float, at_second: float, on: Any = (HERE,), offset: int = 1, **more: Any
) -> list[Row]:
    """The records of a transaction that its coordinator has ended."""
    return [
        record(offset, "Ongoing", second=began, started=began, on=on, **more),
        record(offset + 1, f"Prepare{end}", second=at_second, started=began, on=on, **more),
        record(offset + 2, f"Complete{end}", second=at_second + 0.1, started=began, **more),
    ]


def coordinator_log(rows: Iterable[Row], **more: Any) -> CoordinatorLog:
    return CoordinatorLog(records=[TransactionLogRecord.of(row) for row in rows], **more)


def init(**more: Any) -> Row:
    return record(0, "Empty", second=-1, **more)


def open_transaction(*owners: Transaction, start: int = 100, **more: Any) -> Case:
    leader, first_batches = more.pop("leader", partition()), more.pop("first_batches", ())
    producers = [producer(start=start, **more)]
    one = observation(*owners, producers=producers, partitions=[leader], first_batches=first_batches)
    ((result,),) = IndexedObservation(one).cases.values()
    return result


def facts(
    diagnosis: Diagnosis, excerpts: Mapping[TopicPartition, Excerpt] | None = None, *events: Row
) -> dict[TransactionKey, Case]:
    """The open transactions that need their logs, with them; see `diagnosed`."""
    to_read = diagnosis.to_read()
    owners = {(each.transactional_id or f"id-{each.producer_id}", each.producer_id) for each in to_read}
    begun = [record(0, "Empty", second=-1, pid=pid, transactional_id=name) for name, pid in sorted(owners)]
    coordinators = coordinator_log(events or begun)
    return {
        each.key: with_logs(each, (excerpts or {}).get(each.tp), coordinators, marker_search=MarkerSearch())
        for each in to_read
    }


def by_logs(diagnosis: Diagnosis, outcome: Outcome) -> dict[TransactionKey, Case]:
    """The open transactions that need their logs, which have shown this."""
    return {each.key: replace(each, known_outcome=outcome) for each in diagnosis.to_read()}


def with_logs(case: Case, log: Excerpt | None = None, coordinators: CoordinatorLog | None = None, **more: Any) -> Case:
    return replace(case, excerpt=log, coordinators=coordinators, **more)


def diagnosed(
    observations: Sequence[Observation],
    excerpts: Mapping[TopicPartition, Excerpt] | None = None,
    *events: Row,
    requested: Iterable[TopicPartition] = (),
) -> list[Finding]:
    """Findings with the coordinators' log.

    By default, it has one record of each producer id, which began it: nothing was decided, so no log is in the way of a
    wrong `hanging`.
    """
    diagnosis = Diagnosis.of(observations)
    return diagnosis.findings(requested=requested, read=facts(diagnosis, excerpts, *events))


def sample_diagnosis(observation: Observation, before: Observation | None = None) -> Diagnosis:
    """The diagnosis of a sample and the one before it."""
    return Diagnosis.of(with_earlier(observation, before), DiagnoseOptions(is_sample=True))


def explained(diagnosis: Diagnosis, cases: Mapping[TransactionKey, Case]) -> list[Finding]:
    """Findings, decided and explained with what the logs show."""
    return explain(diagnosis.findings(read=cases), cases)


def diagnosed_sample(
    observation: Observation, before: Observation | None = None, *, requested: Iterable[TopicPartition] = ()
) -> list[Finding]:
    """As `diagnosed`, for a sample and the one before it."""
    diagnosis = sample_diagnosis(observation, before)
    return diagnosis.findings(requested=requested, read=facts(diagnosis))
