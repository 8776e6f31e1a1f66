"""What the options of ``kafka_txn_samples`` say, checked as a whole before anything is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.spark.datasources.client_options import CONNECTION, PREFIX
from toolkit.spark.datasources.reader_options import Options, choice, flag, milliseconds, refuse_unknown, seconds
from toolkit.spark.datasources.recorded_schema import EVERYTHING, RECORDED_TABLES

__all__ = ["TransactionsOptions", "transactions_options"]

OWN = ("interval", "latePadding", "logEvidence", "recheckAfter", "maxTransactionTimeout", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """What is asked of `toolkit.spark.datasources.transactions.transactions_source.KafkaTransactions`.

    Parameters
    ----------
    table
        ``everything``, or a name in ``schema.RECORDED``.
    interval_ms
        From one look of a stream to the next.
    timeout
        Seconds that connecting, and each round of requests, may take.
    recheck_after
        Seconds from the look of a batch to its second one; 0 for never.
    judging
        What `toolkit.sources.recording.sample.take_sample` takes beside.
    """

    table: str
    interval_ms: int
    timeout: float
    recheck_after: float
    judging: dict[str, Any]


def transactions_options(options: Options) -> TransactionsOptions:
    """What the options say.

    Raises
    ------
    UsageError
        For one that is not known, or that cannot be read.
    """
    refuse_unknown(options, {*OWN, *CONNECTION}, source="kafka_txn_samples", prefix=PREFIX)
    interval = seconds(options, "interval", default=10.0, lowest=0.1)
    durations = {
        "late_padding_ms": milliseconds(options, "latePadding"),
        "max_transaction_timeout_ms": milliseconds(options, "maxTransactionTimeout"),
    }
    return TransactionsOptions(
        table=choice(options, "table", RECORDED_TABLES, default=EVERYTHING),
        interval_ms=round(interval * 1000),
        timeout=seconds(options, "timeout", default=min(30.0, max(1.0, interval / 3)), lowest=0.1),
        recheck_after=seconds(options, "recheckAfter", default=5.0),
        judging={name: number for name, number in durations.items() if number is not None}
        | {"log_evidence": flag(options, "logEvidence", default=True)},
    )
