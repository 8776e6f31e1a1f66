"""Claims of notebook 6: Spark's rows are those of the library."""

from typing import Any

from tests.spark.frames import assert_same
from toolkit.schema import BATCHES, FINDINGS, LOG_TRANSACTIONS
from toolkit.views.report import collect_incident


def log(batches: Any, logs: Any, topic: str) -> None:
    assert_same(batches, logs.batches(topics=[topic]), BATCHES)


def transactions_table(transactions: Any, logs: Any, topic: str) -> None:
    assert_same(transactions, logs.log_transactions(topics=[topic]), LOG_TRANSACTIONS)


def findings(opened: Any, logs: Any, found: Any, min_held_ms: int) -> None:
    assert_same(found, logs.findings(min_held_ms=min_held_ms), FINDINGS)
    verdicts = {(row.topic, row.start_offset): row.verdict for row in found.toPandas().itertuples()}
    for name, known in opened.expected.items():
        assert verdicts[name, known["start_offset"]] in {known["verdict"], "ended"}  # files also have its end


def live(opened: Any, logs: Any, topic: str, fetched: Any = None) -> None:
    if opened.kafka:
        assert sorted(fetched.base_offset) == sorted(logs.batches(topics=[topic]).base_offset)


def look(opened: Any, held: Any = None) -> None:
    if opened.kafka:
        assert set(held.topic) == set(opened.expected)


def recording(over_time: Any) -> None:
    for recording, each in over_time.items():
        assert_same(each, recording.findings_over_time(), FINDINGS)


def kept(sources: Any, kept: Any, summary: Any, min_held_ms: int) -> None:
    together = collect_incident(*sources, min_held_ms=min_held_ms)["findings"]
    assert_same(kept, FINDINGS.frame(together), FINDINGS)
    assert not any(each.errors for each in summary.tables.values())
