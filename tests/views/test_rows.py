"""Rows of any table, as columns, JSON and CSV."""

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest

from toolkit.schema import FINDINGS, GROUP_LAG, PRODUCERS, TRANSACTIONS, Row
from toolkit.schema.coerce import Scope, Seen, SeenBrokers
from toolkit.views.row_formats import Envelope, answer_pieces, grid_lines, json_pieces, table_grid

NOW = dt.datetime(2026, 11, 21, 12, 12, 30, tzinfo=dt.UTC)
FINDING: Row = {
    "topic": "orders", "partition": 0, "verdict": "hanging", "missing": [],
    "evidence": [{"source": "Fetch", "broker_id": 1, "observed_at": NOW, "name": "a", "value": "b"}],
    "opened_at": dt.datetime(2026, 11, 21, 9, 58, 11, tzinfo=dt.UTC), "groups_held": ["my-group"],
}  # fmt: skip


def producer(**fields: Any) -> Row:
    row: dict[str, Any] = dict.fromkeys(PRODUCERS.names)
    row |= {"topic": "orders", "partition": 0, "producer_id": 171100, "producer_epoch": 1, "broker_id": 2}
    return row | {"last_timestamp": NOW, "observed_at": NOW} | fields


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("length", [60, 100, 249])
def test_a_table_keeps_its_columns_with_names_as_long_as_kafka_allows(length: int, width: int) -> None:
    """A name of 249 letters was a line of 253 columns, in a table and in a block."""
    name = "Q" * length
    row = {"group_id": name, "topic": name, "partition": 0, "lag": 12}
    lines = grid_lines(table_grid(GROUP_LAG, [row]), width=width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).count("Q") == 2 * length


def test_an_empty_table_is_named() -> None:
    assert grid_lines(table_grid(PRODUCERS, [])) == ["no producers"]


def test_empty_columns_are_left_out() -> None:
    row = {"transactional_id": "payments-7", "source": "DescribeTransactions", "observed_at": NOW}
    output = grid_lines(table_grid(TRANSACTIONS, [row], without=("source",)), width=40)
    assert output == ["transactional_id     payments-7"], "a null of a block takes no line"


def test_json_has_exactly_the_columns_and_times_in_utc() -> None:
    there = dt.datetime(2026, 11, 21, 10, 58, 11, 7000, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    [parsed] = json.loads("".join(json_pieces(FINDINGS, [{**FINDING, "opened_at": there}])))
    assert list(parsed) == FINDINGS.names
    assert parsed["opened_at"] == "2026-11-21T09:58:11.007Z"
    assert parsed["evidence"][0]["observed_at"] == "2026-11-21T12:12:30.000Z"
    assert parsed["missing"] == []
    assert json.loads("".join(json_pieces(FINDINGS, []))) == []


def test_an_answer_has_its_rows_last_and_streams_them() -> None:
    read: list[int] = []

    def rows() -> Iterator[Row]:
        for number in range(3):
            read.append(number)
            yield producer(producer_id=number)

    envelope = Envelope(schema="producers", schema_version="1.1", time=NOW, scope=Scope(missing=["a right"]))
    pieces = answer_pieces(envelope, json_pieces(PRODUCERS, rows()))
    head = [next(pieces) for _ in envelope.fields()]
    assert read == []
    answer = json.loads("".join([*head, *pieces]))
    assert [*answer] == [*envelope.fields(), "rows"]
    assert (answer["time"], answer["scope"]["missing"]) == ("2026-11-21T12:12:30.000Z", ["a right"])
    assert [row["producer_id"] for row in answer["rows"]] == [0, 1, 2]


def test_rows_say_what_was_seen() -> None:
    """What only an error names was not seen; what another row shows was."""
    nothing: dict[str, None] = dict.fromkeys(("topic", "partition", "broker_id"))
    rows = [
        producer(),
        producer(partition=1, error="NOT_LEADER_OR_FOLLOWER: it moved", broker_id=3),
        producer(error="x"),
        producer(**{**nothing, "broker_id": 4}, error="x"),
        producer(**nothing, error="LEADER_NOT_AVAILABLE: x"),
    ]
    found = Scope.of_rows(PRODUCERS, rows, missing=["a right"])
    assert found.partitions == Seen(seen=1, not_seen=1)
    assert found.brokers == SeenBrokers(seen=[2], not_seen=[3, 4])
    assert (found.transactional_ids, found.missing) == (None, ["a right", "LEADER_NOT_AVAILABLE: x"])
