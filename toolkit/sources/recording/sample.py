"""One sample of the flight recorder: a look at a whole cluster, judged together with the look before."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.history.late_transactions import LATE_PADDING_MS, TransactionKey, first_seen, late_transactions
from toolkit.analysis.history.sample_findings import diagnose_sample
from toolkit.errors import ToolkitError
from toolkit.schema import RECORDED, Row
from toolkit.sources.live.client.connection_errors import row_text
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording.evidence_cache import CachedEvidence, cached_evidence
from toolkit.sources.recording.held_groups import held_groups
from toolkit.sources.recording.observation_rows import observation_of, observation_rows

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
    held_groups
        Rows of ``schema.GROUP_LAG`` of groups that an LSO holds records from; null where they were not, or could not be
        asked.
    """

    due: dt.datetime
    tables: Mapping[str, Sequence[Row]]
    observation: Observation | None = None
    first_seen: Mapping[TransactionKey, dt.datetime] = field(default_factory=dict)
    evidence: Mapping[TransactionKey, CachedEvidence] = field(default_factory=dict)
    held_groups: Sequence[Row] | None = None

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
    with_held_groups: bool = False,
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
        As for `analysis.history.late_transactions.late_transactions`.
    log_evidence
        Read the log around what is held: of each partition once a minute at most, as long as the same hangs there.
    with_held_groups
        Ask the groups where they stand, while something is held.

    Returns
    -------
    Sample
        With an error instead of rows where the cluster cannot be reached.
    """
    started = time.monotonic()
    due = due.astimezone(dt.UTC)
    try:
        tables = observation_rows(cluster.observe(), due=due)
    except ToolkitError as error:
        return failed_sample(error, due=due, interval_ms=interval_ms, before=before, seconds=time.monotonic() - started)
    observation = observation_of(tables)
    assert observation
    earlier = before.observation if before else None
    rows = diagnose_sample(observation, earlier, max_transaction_timeout_ms=max_transaction_timeout_ms)
    evidence = before.evidence if before else {}
    if log_evidence:
        with suppress(ToolkitError):  # what was seen counts without it
            rows, evidence = cached_evidence(
                cluster.client, [earlier, observation] if earlier else [observation], rows, evidence
            )
    groups = held_groups(cluster.client, rows) if with_held_groups else None
    seen = first_seen(observation, before.first_seen if before else {})
    late = late_transactions(
        rows, observation, first_seen=seen, padding_ms=late_padding_ms, longest_timeout_ms=longest_timeout_ms
    )
    tables["findings"] = [{"sampled_at": due, **row} for row in rows]
    tables["late_transactions"] = [{"sampled_at": due, **row} for row in late]
    (sample,) = tables["samples"]
    tables["samples"] = [{**sample, "interval_ms": interval_ms, "seconds": time.monotonic() - started}]
    return Sample(
        due=due,
        tables=tables,
        observation=observation,
        first_seen=seen,
        evidence=evidence,
        held_groups=groups,
    )


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
        "sampled_at": due.astimezone(dt.UTC),
        "observed_at": dt.datetime.now(dt.UTC),
        "interval_ms": interval_ms,
        "seconds": seconds,
        "error": row_text(error),
    }
    tables: dict[str, Sequence[Row]] = {name: [] for name in RECORDED} | {"samples": [row]}
    if before is None:
        return Sample(due=due, tables=tables)
    return Sample(
        due=due, tables=tables, observation=before.observation, first_seen=before.first_seen, evidence=before.evidence
    )
