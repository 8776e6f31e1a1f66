"""Transactions from batches: against a slow reference, and case by case."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, random_headers
from tests.inverse import log_transactions_of
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LOG_TRANSACTION,
    NO_DATA,
    OPEN,
    LogTransactions,
    begin,
    finish,
    log_transaction_table,
    merge,
    partial_transactions,
)
from toolkit.errors import UsageError
from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, HEADER, UNREAD_MARKER, Headers
from toolkit.schema import LOG_TRANSACTIONS, utc

Opened = dict[int, tuple[int, int]]
NAMES = LOG_TRANSACTION.names or ()
LAST = 2**63 - 1
opened_before = st.none() | st.dictionaries(
    st.sampled_from([1000, 2000, 3000, 9000]), st.tuples(st.integers(0, 40), st.integers(0, 2))
)


def reference_model(headers: Headers, *, from_start: bool, opened: Opened | None) -> list[dict[str, Any]]:
    """Batch by batch, with a dictionary of open transactions: slow, and obviously correct."""
    closed: list[dict[str, Any]] = []
    known = from_start or opened is not None
    observed: set[int] = set()
    open_: dict[int, dict[str, Any]] = {}
    unknown = dict.fromkeys(NAMES, -1) | {"batches": 0, "records": 0, "bytes": 0, "outcome": OPEN}
    for producer, (start, epoch) in ({} if from_start else opened or {}).items():
        epochs = {"producer_epoch": epoch, "first_epoch": epoch}
        open_[producer] = unknown | epochs | {"producer_id": producer, "first_offset": start, "truncated": 1}
        open_[producer]["file"] = 0
    for batch in headers:
        producer = int(batch["producer_id"])
        control = bool(batch["attributes"] & CONTROL)
        if producer < 0 or (batch["marker"] not in {COMMIT, ABORT, UNREAD_MARKER} if control else False):
            continue
        if not control and not batch["attributes"] & TRANSACTIONAL:
            continue
        truncated = 0 if known or producer in observed else -1
        log_transaction = open_.setdefault(producer, unknown | {"producer_id": producer, "truncated": truncated})
        observed.add(producer)
        if log_transaction["position"] == -1:
            log_transaction |= {"position": int(batch["position"]), "file": 0}
        if control:
            log_transaction["marker_offset"] = int(batch["base_offset"])
            log_transaction["marker_epoch"] = int(batch["producer_epoch"])
            log_transaction["coordinator_epoch"] = int(batch["coordinator_epoch"])
            log_transaction["marker"] = int(batch["marker"])
            log_transaction["end"] = int(batch["max_timestamp"])
            log_transaction["outcome"] = log_transaction["marker"] if log_transaction["first_offset"] >= 0 else NO_DATA
            if log_transaction["first_offset"] < 0:
                log_transaction["producer_epoch"] = log_transaction["marker_epoch"]
            closed.append(open_.pop(producer))
            continue
        last = int(batch["base_sequence"]) + int(batch["last_offset"] - batch["base_offset"])
        if log_transaction["first_offset"] < 0:
            by_broker = bool(batch["attributes"] & LOG_APPEND_TIME)
            base_lost = by_broker or batch["attributes"] & DELETE_HORIZON
            log_transaction["start"] = int(batch["max_timestamp"] if base_lost else batch["base_timestamp"])
            log_transaction["start_clock"] = int(by_broker)
            log_transaction["first_offset"] = int(batch["base_offset"])
            log_transaction["first_batch_end"] = int(batch["last_offset"]) + 1
            log_transaction["first_epoch"] = int(batch["producer_epoch"])
            log_transaction["first_sequence"] = int(batch["base_sequence"])
        log_transaction["last_offset"] = int(batch["last_offset"])
        log_transaction["last_sequence"] = last % 2**31
        log_transaction["producer_epoch"] = int(batch["producer_epoch"])
        log_transaction["batches"] += 1
        log_transaction["records"] += int(batch["record_count"])
        log_transaction["bytes"] += int(batch["size"])

    def order(log_transaction: dict[str, Any]) -> tuple[int, ...]:
        first, marker = log_transaction["first_offset"], log_transaction["marker_offset"]
        return (LAST if first < 0 else first, LAST if marker < 0 else marker, log_transaction["producer_id"])

    return sorted([*closed, *open_.values()], key=order)


def rows(log_transactions: LogTransactions) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, each, strict=True)) for each in log_transactions.tolist()]


def sorted_rows(log_transactions: LogTransactions) -> list[dict[str, Any]]:
    """Rows, sorted; by producer id if offsets are equal, as only in artificial snapshots."""
    unsorted = rows(log_transactions)
    return sorted(
        unsorted,
        key=lambda row: [row[name] % 2**63 for name in ("first_offset", "marker_offset")] + [row["producer_id"]],
    )


A_B = [Step("commit", 1), Step("data", 2), Step("abort", 2), Step("data", 1), Step("commit", 2)]


@given(random_headers, st.booleans(), opened_before)
@example(
    batches([Step("data", 1, records=3), Step("data", 2), Step("commit", 1), *A_B[3:], Step("abort", 2)]), True, None
)
@example(batches([Step("data", 1), Step("commit", 1, version=2)]), True, None)
@example(batches([Step("data", 1), Step("abort", 1), Step("data", 1)]), True, None)
@example(batches([Step("data", 1), Step("fence", 1), Step("data", 1), Step("commit", 1)]), True, None)
@example(batches(A_B), False, None)
@example(batches([Step("commit", 1), Step("data", 2), Step("abort", 3)]), False, {1000: (4, 3), 9000: (2, 0)})
@example(batches([Step("data", 1), Step("unread", 1), Step("data", 1)]), True, None)
@example(batches([Step("data", 1, gap=4), Step("commit", 1)]), True, None)
def test_log_transactions_match_a_batch_by_batch_model(
    headers: Headers, from_start: bool, opened: Opened | None
) -> None:
    log_transactions = finish(partial_transactions(headers), from_start=from_start, opened_before=opened)
    assert sorted_rows(log_transactions) == reference_model(headers, from_start=from_start, opened=opened)


@given(random_headers, st.booleans(), opened_before)
def test_table_rows_match_the_log_transactions(headers: Headers, from_start: bool, opened: Opened | None) -> None:
    log_transactions = finish(partial_transactions(headers), from_start=from_start, opened_before=opened)
    table = log_transaction_table(log_transactions, topic="orders", partition=3)
    assert log_transactions_of(table).tolist() == log_transactions.tolist()
    times = [name for name in table.column_names if pa.types.is_timestamp(table.schema.field(name).type)]
    for name in times:  # as in Spark
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.timestamp("us", tz="UTC")))
    assert log_transactions_of(table).tolist() == log_transactions.tolist()


def test_table_rows_number_their_files_and_errors_are_no_transactions() -> None:
    log_transactions = finish(partial_transactions(batches([Step("data", 1), Step("data", 2)])))
    log_transactions["file"] = [1, 0]
    table = log_transaction_table(log_transactions, topic="orders", partition=3, files=["a.log", "b.log"])
    failure = LOG_TRANSACTIONS.arrow(
        [{"topic": "orders", "partition": 3, "file": "c.log", "error": "TORN_TAIL: The end."}]
    )
    from_table = log_transactions_of(pa.concat_tables([failure, table]))
    assert from_table["file"].tolist() == [0, 1]
    assert from_table["first_offset"].tolist() == [0, 1]
    assert log_transactions_of(failure).size == 0


def test_an_empty_control_batch_ends_nothing() -> None:
    headers = batches([Step("data", 1), Step("commit", 1)])
    headers["record_count"][1] = 0
    assert rows(finish(partial_transactions(headers)))[0]["outcome"] == OPEN


def test_partial_transactions_keep_their_file() -> None:
    headers = batches([Step("data", 1), Step("commit", 1), Step("data", 1), Step("commit", 1)])
    parts = partial_transactions(headers[:1], file_id=3) + partial_transactions(headers[1:], file_id=4)
    assert finish(parts)["file"].tolist() == [3, 4]


def test_nothing_precedes_the_first_part_of_a_log() -> None:
    data = partial_transactions(batches([Step("data", 1)]))
    assert len(finish(EMPTY + begin() + data)) == 1
    with pytest.raises(UsageError, match="cannot follow"):
        data + begin()


def test_partial_transactions_can_be_pickled() -> None:
    steps = [Step("data", 1), Step("commit", 1), Step("data", 2)]
    parts = [EMPTY, begin(), partial_transactions(batches(steps)), EMPTY]
    unpickled = merge(*(pickle.loads(pickle.dumps(each)) for each in parts))
    assert finish(unpickled).tolist() == finish(merge(*parts)).tolist()


def test_no_batches_give_no_transactions() -> None:
    assert finish(EMPTY, from_start=True).size == 0
    assert finish(partial_transactions(batches([Step("plain", 1), Step("data", 0)]))).size == 0


def test_unknown_values_are_null_in_the_table() -> None:
    steps = [Step("data", 1), Step("data", 2, attributes=LOG_APPEND_TIME), Step("commit", 1), Step("abort", 3)]
    log_transactions = finish(partial_transactions(batches([*steps, Step("unread", 2)])))
    table = log_transaction_table(log_transactions, topic="orders", partition=3, broker_id=1, files=["a.log"])
    assert table.schema.equals(LOG_TRANSACTIONS.arrow_schema, check_metadata=True)
    commit, unread, empty = table.to_pylist()
    assert commit == {
        "topic": "orders", "partition": 3, "broker_id": 1, "file": "a.log", "position": 0, "error": None,
        "producer_id": 1000, "producer_epoch": 0, "first_epoch": 0, "marker_epoch": 0, "coordinator_epoch": 7,
        "first_offset": 0, "first_batch_last_offset": 0,
        "last_offset": 0, "marker_offset": 2, "outcome": "commit", "marker": "COMMIT",
        "start": utc(1001), "start_clock": "producer", "end": utc(1003), "batches": 1, "records": 1, "bytes": 68,
        "first_sequence": 2**31 - 2, "last_sequence": 2**31 - 2, "truncated": None,
    }  # fmt: skip
    assert (unread["outcome"], unread["marker"], unread["marker_offset"]) == (None, None, 4)
    assert unread["error"].startswith("NO_MARKER_TYPE: ")
    assert (unread["start_clock"], unread["start"]) == ("broker", utc(1003))
    assert (empty["outcome"], empty["marker"], empty["start_clock"], empty["records"]) == ("empty", "ABORT", None, 0)


def test_an_empty_table_has_its_columns() -> None:
    table = log_transaction_table(finish(EMPTY), topic=None, partition=None)
    assert (table.num_rows, table.column_names) == (0, LOG_TRANSACTIONS.names)


def test_rows_from_a_broker_have_no_file() -> None:
    (row,) = log_transaction_table(
        finish(partial_transactions(batches([Step("data", 1)]))), topic="orders", partition=0
    ).to_pylist()
    assert (row["file"], row["outcome"], row["marker_offset"]) == (None, "open", None)


@given(random_headers, st.booleans())
def test_the_table_is_sorted_as_declared(headers: Headers, from_start: bool) -> None:
    table = log_transaction_table(
        finish(partial_transactions(headers), from_start=from_start), topic="orders", partition=0
    )
    assert table == table.sort_by([(name, "ascending") for name in LOG_TRANSACTIONS.sort])


def test_a_header_without_a_time_gives_null() -> None:
    headers = np.full(2, -1, HEADER)
    headers["attributes"], headers["producer_id"], headers["base_offset"] = TRANSACTIONAL, 5, [0, 1]
    (row,) = rows(finish(partial_transactions(headers)))
    assert (row["start"], row["last_sequence"], row["start_clock"]) == (-1, -1, 0)


def test_an_impossible_time_is_null() -> None:
    headers = batches([Step("data", 1)])
    headers["base_timestamp"] = 2**62
    assert (
        log_transaction_table(finish(partial_transactions(headers)), topic=None, partition=None).to_pylist()[0]["start"]
        is None
    )
