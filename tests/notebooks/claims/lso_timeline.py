"""Claims of notebook 2."""

from typing import Any


def transactions_table(opened: Any, log_transactions: Any) -> None:
    for known in opened.expected.values():
        (row,) = log_transactions[log_transactions.first_offset == known["start_offset"]].to_dict("records")
        assert row["producer_id"] == known["producer_id"]
        assert row["outcome"] == ("abort" if known["verdict"] == "ended" else "open")
        assert (log_transactions.first_offset[log_transactions.outcome == "open"] >= known["start_offset"]).all()


def steps(opened: Any, steps: Any, lso: int) -> None:
    for known in opened.expected.values():
        held = steps[steps.holder_first_offset == known["start_offset"]].iloc[-1]
        assert held.last_stable_offset == lso == known["start_offset"]
        assert bool(held.offset == steps.offset.max()) != (known["verdict"] == "ended")


def lag_rows(opened: Any, lag: Any, findings: Any, topic: str) -> None:
    for known in opened.expected.values():
        row = lag[(lag.topic == topic) & (lag.partition == known["partition"])].iloc[0]
        assert row.lag == row.behind + row.held + row.markers + row.aborted + row.removed
        if known["verdict"] == "ended":
            assert row.held == 0
        else:
            assert row.held == findings.records_held.fillna(row.held).iloc[0] > 0, "the group waits for what is held"
