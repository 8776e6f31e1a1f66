"""Claims of notebook 2."""

from typing import Any


def transactions_table(opened: Any, log_transactions: Any) -> None:
    for known in opened.expected.values():
        still_open = log_transactions[log_transactions.outcome == "open"]
        assert known["start_offset"] == still_open.first_offset.min()
        assert known["producer_id"] in set(still_open.producer_id)


def steps(opened: Any, steps: Any, lso: int) -> None:
    last = steps.iloc[-1]
    for known in opened.expected.values():
        assert last.holder_first_offset == known["start_offset"]
        assert last.last_stable_offset == lso == known["start_offset"]


def lag_rows(opened: Any, lag: Any, findings: Any, topic: str) -> None:
    for known in opened.expected.values():
        row = lag[(lag.topic == topic) & (lag.partition == known["partition"])].iloc[0]
        assert row.lag == row.behind + row.held + row.markers + row.aborted + row.removed
        assert row.held == findings.records_held.fillna(row.held).iloc[0] > 0, "the group waits for what is held"
