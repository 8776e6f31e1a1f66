"""What the options of ``kafka_transactions`` say, checked as a whole before anything is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.spark.connection import CONNECTION, PREFIX
from toolkit.spark.reader_options import Options, choice, flag, refuse_unknown, seconds, whole_number
from toolkit.spark.recorded_schema import EVERYTHING, RECORDED_TABLES

__all__ = ["TransactionsOptions", "transactions_options"]

OWN = ("interval", "late_padding_ms", "log_evidence", "looks_apart", "max_transaction_timeout_ms", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """What is asked of `toolkit.spark.transactions_source.KafkaTransactions`.

    Parameters
    ----------
    table
        ``everything``, or a name in ``schema.RECORDED``.
    interval_ms
        From one look of a stream to the next.
    timeout
        Seconds that connecting, and each round of requests, may take.
    looks_apart
        Seconds from the look of a batch to its second one; 0 for never.
    judging
        What `toolkit.sources.recording.sample.take_sample` takes beside.
    """

    table: str
    interval_ms: int
    timeout: float
    looks_apart: float
    judging: dict[str, Any]


def transactions_options(options: Options) -> TransactionsOptions:
    """What the options say.

    Raises
    ------
    UsageError
        For one that is not known, or that cannot be read.
    """
    refuse_unknown(options, {*OWN, *CONNECTION}, source="kafka_transactions", prefix=PREFIX)
    interval = seconds(options, "interval", default=10.0, lowest=0.1)
    numbers = {name: whole_number(options, name) for name in ("late_padding_ms", "max_transaction_timeout_ms")}
    return TransactionsOptions(
        table=choice(options, "table", RECORDED_TABLES, default=EVERYTHING),
        interval_ms=round(interval * 1000),
        timeout=seconds(options, "timeout", default=min(30.0, max(1.0, interval / 3)), lowest=0.1),
        looks_apart=seconds(options, "looks_apart", default=5.0),
        judging={name: number for name, number in numbers.items() if number is not None}
        | {"log_evidence": flag(options, "log_evidence", default=True)},
    )
