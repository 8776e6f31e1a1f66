"""Claims of notebook 5."""

from typing import Any


def who(opened: Any, findings: Any) -> None:
    for topic, known in opened.expected.items():
        here = (findings.topic == topic) & (findings.start_offset == known["start_offset"])
        (row,) = findings[here].to_dict("records")
        assert row["verdict"] in {known["verdict"], "ended"}  # files also have its end
        assert row["producer_id"] == known["producer_id"]


def rest(findings: Any, unproven: Any) -> None:
    certain = set(findings.start_offset[findings.verdict == "hanging"].dropna())
    assert set(unproven.start_offset[unproven.verdict == "hanging"].dropna()) <= certain, "no further one hangs"


def alone_missing(alone: Any) -> None:
    still_open = alone[alone.queue_position == 1]
    assert (still_open.verdict == "unknown").all()
    assert all("no partition of __transaction_state" in row[0] for row in still_open.missing)


def batches(opened: Any, batches: Any) -> None:
    for staged in opened.staged.values():
        before, marker, late = batches[batches.producer_id == staged.producer_id].to_dict("records")
        assert (before["base_sequence"], marker["marker"], late["base_sequence"]) == (0, "ABORT", 1)
        assert late["base_offset"] == staged.start_offset


def history(opened: Any, transaction_history: Any, log_transactions: Any) -> None:
    """The coordinator had completed it before, as is said of the picture; it said "long before", which were 50 ms."""
    for staged in opened.staged.values():
        last = transaction_history[transaction_history.transactional_id == staged.transactional_id].iloc[-1]
        assert (last.kind, last.ended, last.state) == ("transaction", "abort", "CompleteAbort")
        late = log_transactions[log_transactions.first_offset == staged.start_offset].iloc[0]
        assert last.end_time <= late.start


def damage_rows(damaged: Any, whole: Any) -> None:
    assert damaged.error.notna().any()
    assert damaged["size"].sum() == len(whole)


def dump(dump: Any) -> None:
    assert list(dump.findings().verdict) == ["unknown"]
    assert list(dump.log_transactions().outcome) == ["commit", "abort", "open", "commit"]
