"""Wrong columns and fields, each an error of mypy: strict mypy also reports an ``ignore`` that hides no error.

Nothing runs this module; tests/test_style.py has mypy check it.
"""

from dataclasses import replace

import numpy as np

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.decision import Decision
from toolkit.analysis.log.log_transactions import LOG_TRANSACTION, LogTransactions, finish, partial_transactions
from toolkit.formats.headers import HEADER, Array, Headers, take_rows
from toolkit.schema.live import Finding, GroupLag, Partition, Producer, Transaction
from toolkit.schema.log import LogTransaction, PastTransaction
from toolkit.schema.recorded import ActionClaim, ActionStep, RecordedSample
from toolkit.schema.verdict import Verdict

headers: Headers = np.zeros(2, HEADER)
log_transactions: LogTransactions = np.zeros(2, LOG_TRANSACTION)
rows: Array = np.arange(2)


def records(
    finding: Finding, partition: Partition, producer: Producer, transaction: Transaction, step: ActionStep
) -> None:
    finding.verdicts  # type: ignore[attr-defined]
    finding.verdict = Verdict.HANGING  # type: ignore[misc]  # a record is immutable
    replace(finding, verdict="hangs")  # type: ignore[arg-type]
    replace(finding, verdicts="hanging")  # type: ignore[call-arg]
    replace(finding, partition="0")  # type: ignore[arg-type]
    Finding(topics="orders")  # type: ignore[call-arg]
    partition.high_water_mark  # type: ignore[attr-defined]
    producer.current_transaction_start_offset  # type: ignore[attr-defined]
    transaction.timeout  # type: ignore[attr-defined]
    step.at + 1  # type: ignore[operator]


def tables(past: PastTransaction, read: LogTransaction, lag: GroupLag, sample: RecordedSample) -> None:
    past.end_time_ms  # type: ignore[attr-defined]
    read.first  # type: ignore[attr-defined]
    lag.lag_in_offsets  # type: ignore[attr-defined]
    sample.time  # type: ignore[attr-defined]


def decisions(case: Case, decision: Decision, claim: ActionClaim) -> None:
    case.outcomes  # type: ignore[attr-defined]
    case.start_offset  # type: ignore[attr-defined]
    replace(decision, verdicts="hanging")  # type: ignore[call-arg]
    replace(claim, state="proven")  # type: ignore[call-arg]


def arrays() -> Headers:
    headers["size"] = headers["base_offset"] - headers[0]["last_offset"]
    headers["first_offset"]  # type: ignore[call-overload]
    headers["sizes"] = 1  # type: ignore[index]
    headers[0]["sizes"]  # type: ignore[index]
    headers[1:]["sizes"]  # type: ignore[call-overload]
    take_rows(headers, rows)["sizes"]  # type: ignore[call-overload]
    [header["sizes"] for header in headers]  # type: ignore[index]
    log_transactions["start"][rows] = log_transactions[rows]["first_offset"]
    log_transactions["base_offset"]  # type: ignore[call-overload]
    log_transactions[0]["ends"]  # type: ignore[index]
    finish(partial_transactions(headers))["ends"]  # type: ignore[call-overload]
    partial_transactions(log_transactions)  # type: ignore[arg-type]
    return take_rows(headers, rows)
