"""Records of an Arrow table, converted by column, are those of its rows."""

import datetime as dt
from dataclasses import FrozenInstanceError, replace

import pyarrow as pa
import pytest

from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict

NINE = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)
ENTRIES = tuple(EvidenceEntry(source="log", observed_at=NINE, name=name) for name in ("first_batch", "marker"))
FINDING = Finding(verdict=Verdict.CLEAR, reason="", remedy="None.", missing=(), evidence=(), observed_at=NINE)
FINDINGS = [
    FINDING,
    replace(FINDING, evidence=ENTRIES, groups_held=("g",), held_ms=0),
    replace(FINDING, missing=("a",)),
]
OWNED = Transaction(
    source="ListTransactions",
    observed_at=NINE,
    topic_partitions=(TopicPartition("orders", 0), TopicPartition("orders", 1)),
)


def test_records_of_a_table_are_those_of_its_rows() -> None:
    table = pa.concat_tables(Finding.table.arrow([each.row()]) for each in FINDINGS)
    assert Finding.of_table(table) == FINDINGS
    assert Finding.of_table(table.slice(1)) == FINDINGS[1:]
    assert Finding.of_table(table.drop_columns(["held_ms"]))[1].held_ms is None
    transactions = [OWNED, replace(OWNED, topic_partitions=None)]
    assert Transaction.of_table(Transaction.table.arrow(each.row() for each in transactions)) == transactions


def test_a_copy_has_no_other_columns() -> None:
    with pytest.raises(TypeError, match="nothing"):
        replace(FINDING, nothing=1)  # type: ignore[call-arg]


def test_records_and_their_rows_are_the_same_arrow_table() -> None:
    for table, records in ((Finding.table, FINDINGS), (Transaction.table, [OWNED, replace(OWNED, state="Empty")])):
        assert table.arrow(records) == table.arrow(record.row() for record in records)
        assert table.frame(records).equals(table.frame(record.row() for record in records))
    assert Finding.table.arrow([]).num_rows == 0


def test_a_record_is_made_of_keywords_and_does_not_change() -> None:
    with pytest.raises(TypeError, match="verdict"):
        Finding(reason="", remedy="None.", missing=(), evidence=(), observed_at=NINE)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        EvidenceEntry("log")  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        FINDING.verdict = Verdict.HANGING  # type: ignore[misc]


def test_only_a_record_of_some_columns_lacks_one_that_is_never_null() -> None:
    with pytest.raises(TypeError, match=r"^A row of findings needs \w+\.$"):
        Finding.of({"topic": "orders"})
    assert Finding.of_columns({"topic": "orders"}).topic == "orders"
