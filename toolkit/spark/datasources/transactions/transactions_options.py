"""Options of ``kafka_txn_samples``, all checked before a sample is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.spark.datasources.client_options import CONNECTION, PREFIX
from toolkit.spark.datasources.reader_options import Options, choice, flag, milliseconds, refuse_unknown, seconds
from toolkit.spark.datasources.recorded_schema import EVERYTHING, RECORDED_TABLES

OWN = ("interval", "latePadding", "logEvidence", "recheckAfter", "maxTransactionTimeout", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """Options of `toolkit.spark.datasources.transactions.transactions_source.KafkaTransactions`.

    Parameters
    ----------
    table
        ``everything``, or a name in ``schema.RECORDED``.
    interval_ms
        Time between two samples of a stream.
    timeout
        Seconds, for connecting and for each round of requests.
    recheck_after
        Seconds before the confirming second check of a batch; 0 disables it.
    judging
        Other arguments of `toolkit.sources.recording.sampling.sample.take_sample`.
    """

    table: str
    interval_ms: int
    timeout: float
    recheck_after: float
    judging: dict[str, Any]


def transactions_options(options: Options) -> TransactionsOptions:
    """Parse and check the options.

    Raises
    ------
    UsageError
        For an unknown option, or an invalid value.
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
