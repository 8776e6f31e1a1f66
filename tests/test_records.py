"""Records: a row of a table becomes one where it comes in, and a wrong row does not."""

import datetime as dt

import pytest

from tests.analysis.build import EARLIER, NOW, transaction
from toolkit.schema.durations import duration_s
from toolkit.schema.live import Finding, Partition, Transaction
from toolkit.schema.recorded import RecordedSample
from toolkit.schema.table import utc_now


def test_columns_that_a_row_lacks_are_null_and_others_are_ignored() -> None:
    """The audit trail has no nulls, and rows of a recording have columns of the sample besides."""
    row = {"topic": "orders", "partition": 0, "isr": [1], "observed_at": NOW, "sampled_at": NOW, "phase": "before"}
    found = Partition.of(row)
    assert (found.isr, found.replicas, found.leader) == ((1,), None, None)


def test_records_have_the_order_of_their_table_and_an_unknown_is_last() -> None:
    unknown, first = transaction(transactional_id=None), transaction()
    assert Transaction.table.in_order([unknown, first]) == [first, unknown]
    samples = [RecordedSample(sampled_at=at, observed_at=at) for at in (NOW, EARLIER)]
    assert RecordedSample.table.in_order(samples) == samples[::-1], "one column"


@pytest.mark.parametrize("source", [{}, {"source": None}])
def test_a_column_that_is_never_null_is_needed(source: dict[str, None]) -> None:
    complete = {**dict.fromkeys(Transaction.table.names), "observed_at": NOW, **source}
    with pytest.raises(TypeError, match=r"^A row of transactions needs source\.$"):
        Transaction.of(complete)


def test_times_of_this_machine_are_in_milliseconds() -> None:
    before = dt.datetime.now(dt.UTC)
    now = utc_now()
    assert now.microsecond % 1000 == 0
    assert before - dt.timedelta(milliseconds=1) < now <= dt.datetime.now(dt.UTC)


def test_only_a_record_of_some_columns_lacks_one_that_is_never_null() -> None:
    assert Finding.of_columns({"topic": "orders"}).topic == "orders"


# Durations as users write them


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(" 30s\n", 30), ("1.5h", 5400), ("1h 30m", 5400), ("interval 10 seconds", 10), (" INTERVAL  2 d ", 172_800)],
)
def test_a_duration_has_the_syntax_of_people_and_of_spark(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1 month", "-1", "1h x"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_s(text)
