"""Records: a row of a table becomes one where it comes in, and a wrong row does not."""

import datetime as dt

import pytest

from tests.analysis.build import EARLIER, NOW, transaction
from toolkit.schema.live import Partition, Transaction
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
