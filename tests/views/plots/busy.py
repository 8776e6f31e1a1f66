"""A busy partition, made up: thousands of transactions of a few producers, and some that hang."""

import datetime as dt
import random
from typing import Any

from toolkit.schema import FINDINGS, TRANSACTION_HISTORY, Row

NOW = dt.datetime(2026, 11, 21, 12, 58, 30, tzinfo=dt.UTC)
FIRST = 913_000_000


def finding(**fields: Any) -> dict[str, Any]:
    """A hanging transaction that holds the LSO of orders-0 for three hours; `fields` replace values."""
    return {
        **dict.fromkeys(FINDINGS.names), "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 4711,
        "producer_epoch": 3, "transactional_id": "payments-7", "start_offset": 913_095_344, "verdict": "hanging",
        "reason": 'coordinator 3: id "payments-7" is CompleteAbort, so no coordinator will end this transaction '
                  "(seen twice, 5 s apart; all 3 brokers answered)",
        "remedy": "kafka-txn abort --topic orders --partition 0 --start-offset 913095344", "missing": [],
        "evidence": [], "opened_at": NOW - dt.timedelta(hours=3), "opened_at_clock": "coordinator",
        "held_from": NOW - dt.timedelta(hours=3), "last_stable_offset": 913_095_344, "high_watermark": 913_097_459,
        "offsets_held": 2115, "records_held": 2001, "observed_at": NOW, "brokers_time": NOW, **fields,
    }  # fmt: skip


def history(**fields: Any) -> dict[str, Any]:
    """A committed transaction of payments-7; `fields` replace values."""
    start = NOW - dt.timedelta(hours=4)
    return {
        **dict.fromkeys(TRANSACTION_HISTORY.names), "transactional_id": "payments-7", "txn_state_partition": 12,
        "kind": "transaction", "producer_id": 4711, "producer_epoch": 3, "ended": "commit",
        "reason": "It was committed.", "state": "CompleteCommit", "start_time": start,
        "decided_at": start + dt.timedelta(minutes=10), "end_time": start + dt.timedelta(minutes=11),
        "timeout_ms": 900_000, "records": 3, "first_offset": 100, "last_offset": 102, **fields,
    }  # fmt: skip


def busy(count: int, *, hanging: int, seed: int = 7) -> tuple[list[Row], list[Row]]:
    """Rows of transactions, and the findings on those that hang: `count` transactions in six hours."""
    chance = random.Random(seed)
    stuck = set(chance.sample(range(count // 3, count), hanging))
    step = dt.timedelta(hours=6) / count
    log_transactions: list[dict[str, Any]] = []
    offset, time = FIRST, NOW - dt.timedelta(hours=6)
    for number in range(count):
        records = chance.randint(1, 9)
        row = {
            "topic": "orders", "partition": 0, "producer_id": 4000 + chance.randint(0, 30),
            "producer_epoch": number % 5, "first_offset": offset, "first_batch_last_offset": offset,
            "last_offset": offset + records - 1, "start": time, "start_clock": "producer", "records": records,
            "bytes": 100 * records,
        }  # fmt: skip
        offset += records
        if number in stuck:
            row |= {"producer_id": 900_000 + number, "outcome": "open"}
        else:
            marker, outcome = chance.choice([("COMMIT", "commit"), ("COMMIT", "commit"), ("ABORT", "abort")])
            row |= {"marker_offset": offset, "marker_epoch": number % 5, "coordinator_epoch": 3, "marker": marker}
            row |= {"outcome": outcome, "end": time + step / 2}
            offset += 1
        log_transactions.append(row)
        time += step
    opened = [row for row in log_transactions if row["outcome"] == "open"]
    return [*log_transactions], [
        finding(
            queue_position=position,
            producer_id=row["producer_id"],
            producer_epoch=row["producer_epoch"],
            transactional_id=f"payments-{position}",
            start_offset=row["first_offset"],
            opened_at=row["start"],
            held_from=row["start"] if position == 1 else None,
            last_stable_offset=opened[0]["first_offset"],
            high_watermark=offset,
        )
        for position, row in enumerate(opened, start=1)
    ]
