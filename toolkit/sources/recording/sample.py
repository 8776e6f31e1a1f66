"""One sample of the flight recorder: a look at a whole cluster, judged together with the look before."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.evidence import Look
from toolkit.analysis.late import LATE_PADDING_MS, OpenTransaction, first_seen, late_transactions
from toolkit.analysis.sampled import judge_sample
from toolkit.errors import ToolkitError
from toolkit.schema import RECORDED, Row
from toolkit.sources.cluster import Cluster
from toolkit.sources.failures import row_text
from toolkit.sources.recording.looks import look_of, look_rows
from toolkit.sources.recording.told import Told, told_of

__all__ = ["Sample", "failed_sample", "take_sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was seen and judged at one time.

    Parameters
    ----------
    due
        When it was due; `sample` of every row.
    tables
        Rows by the names of ``schema.RECORDED``. ``samples`` has exactly one row, whose `error` says why there are no
        others where nothing could be seen.
    look
        The newest look so far, of this sample or of one before: what the next one is judged with.
    first_seen
        When each open transaction was first seen.
    told
        What the log told of each held transaction, and when it was read.
    """

    due: dt.datetime
    tables: Mapping[str, Sequence[Row]]
    look: Look | None = None
    first_seen: Mapping[OpenTransaction, dt.datetime] = field(default_factory=dict)
    told: Mapping[OpenTransaction, Told] = field(default_factory=dict)

    @property
    def row(self) -> Row:
        """Its row of ``samples``."""
        return self.tables["samples"][0]

    @property
    def error(self) -> str | None:
        """Why nothing was seen, as ``"NAME: sentence"``; null where the look was taken."""
        error: str | None = self.row["error"]
        return error


def take_sample(
    cluster: Cluster,
    *,
    due: dt.datetime,
    interval_ms: int,
    before: Sample | None = None,
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    late_padding_ms: int = LATE_PADDING_MS,
    longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    log_evidence: bool = True,
) -> Sample:
    """Look at a whole cluster once and judge what is seen together with the look before, so that nothing waits.

    Parameters
    ----------
    cluster
        Its timeout bounds each round of requests; a handful of them make a look.
    due
        The time that the sample is of, with its zone.
    interval_ms
        Time from one sample to the next; only recorded.
    before
        The sample before, whether it saw anything or not. Without one no verdict is `hanging`.
    max_transaction_timeout_ms
        A live transaction that is open for longer is ``long``.
    late_padding_ms, longest_timeout_ms
        As for `analysis.late.late_transactions`.
    log_evidence
        Read the log around what is held: of each partition once a minute at most, as long as the same hangs there.

    Returns
    -------
    Sample
        With an error instead of rows where the cluster cannot be reached.
    """
    started = time.monotonic()
    due = due.astimezone(dt.UTC)
    try:
        tables = look_rows(cluster.look(), due=due)
    except ToolkitError as error:
        return failed_sample(error, due=due, interval_ms=interval_ms, before=before, seconds=time.monotonic() - started)
    look = look_of(tables)
    assert look
    earlier = before.look if before else None
    rows = judge_sample(look, earlier, max_transaction_timeout_ms=max_transaction_timeout_ms)
    told = before.told if before else {}
    if log_evidence:
        with suppress(ToolkitError):  # what was seen counts without it
            rows, told = told_of(cluster.wire, [earlier, look] if earlier else [look], rows, told)
    seen = first_seen(look, before.first_seen if before else {})
    late = late_transactions(
        rows, look, first_seen=seen, padding_ms=late_padding_ms, longest_timeout_ms=longest_timeout_ms
    )
    tables["findings"] = [{"sample": due, **row} for row in rows]
    tables["late_transactions"] = [{"sample": due, **row} for row in late]
    (sample,) = tables["samples"]
    tables["samples"] = [{**sample, "interval_ms": interval_ms, "seconds": time.monotonic() - started}]
    return Sample(due=due, tables=tables, look=look, first_seen=seen, told=told)


def failed_sample(
    error: ToolkitError, *, due: dt.datetime, interval_ms: int, before: Sample | None = None, seconds: float = 0.0
) -> Sample:
    """A sample that saw nothing, and why; what the one before knows goes on to the next.

    Parameters
    ----------
    error
        Why the cluster cannot be reached.
    due, interval_ms, before
        As for `take_sample`.
    seconds
        How long it took to know.
    """
    row = {
        **dict.fromkeys(RECORDED["samples"].names),
        "sample": due.astimezone(dt.UTC),
        "observed_at": dt.datetime.now(dt.UTC),
        "interval_ms": interval_ms,
        "seconds": seconds,
        "error": row_text(error),
    }
    tables: dict[str, Sequence[Row]] = {name: [] for name in RECORDED} | {"samples": [row]}
    if before is None:
        return Sample(due=due, tables=tables)
    return Sample(due=due, tables=tables, look=before.look, first_seen=before.first_seen, told=before.told)
