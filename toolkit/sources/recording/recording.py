"""`Recording`: the tables of a live cluster as they were at a time, and what was recorded over time."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.closing import without_short
from toolkit.analysis.evidence import Look
from toolkit.analysis.over_time import recorded_over_time
from toolkit.analysis.sampled import judge_sample, with_recorded
from toolkit.analysis.wording import at as at_time
from toolkit.errors import NotFound, UsageError
from toolkit.schema import Row
from toolkit.sources.asked import Place, asked_places
from toolkit.sources.recording.asked import coordinator_rows, named_rows, part_of
from toolkit.sources.recording.folder import is_recording, read, sample_times
from toolkit.sources.recording.looks import look_of
from toolkit.sources.recording.names import AN_INSTANT
from toolkit.sources.recording.samples import Found, find_samples, read_look, read_sample

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Recording"]

Partitions = Sequence[int] | Sequence[Place]


class Recording:
    """What a flight recorder wrote: only read, and looked at anew for every question, so that it may be recording.

    The tables are those of `toolkit.Cluster` as one sample saw them: the newest, or the last one that was due by the
    time `at`. Every table is a pandas DataFrame as ``toolkit.schema`` declares it; ``partition_rows()`` and the like
    give the same as a list of dicts. A sample that saw nothing is passed over, and the findings say so.

    Parameters
    ----------
    path
        The folder that ``kafka-txn record`` writes to.

    Raises
    ------
    NotFound
        If it is not there, or no recording.

    Examples
    --------
    >>> Recording("/var/lib/kafka-txn").findings(at=datetime(2026, 11, 21, 9, 58, tzinfo=UTC))  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not is_recording(self.path):
            what = "is no recording" if self.path.exists() else "does not exist"
            raise NotFound(f"{path} {what}.", do="Name the folder that kafka-txn record --output names.")

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc: object) -> None:
        pass  # nothing stays open; it can stand wherever a cluster can

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r})"

    def samples(self, *, start: dt.datetime | None = None, stop: dt.datetime | None = None) -> pd.DataFrame:
        """The looks of the recorder (``schema.SAMPLES``), those included that saw nothing.

        Parameters
        ----------
        start, stop
            Only samples that were due from `start` to before `stop`; all if null.
        """
        return self.history("samples", start=start, stop=stop)

    def sample_row(self, *, at: dt.datetime | None = None) -> Row:
        """The look that answers for a time, as a row of ``schema.SAMPLES``.

        Parameters
        ----------
        at
            As for `partitions`, and so are the errors that it raises.
        """
        return self._found(at).sample

    def late_transactions(self, *, start: dt.datetime | None = None, stop: dt.datetime | None = None) -> pd.DataFrame:
        """Transactions that were open for too long (``schema.LATE_TRANSACTIONS``), a row for each sample.

        Parameters
        ----------
        start, stop
            As for `samples`.
        """
        return self.history("late_transactions", start=start, stop=stop)

    def findings_over_time(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: dt.datetime | None = None,
        stop: dt.datetime | None = None,
    ) -> pd.DataFrame:
        """The findings of every sample as they were recorded (``schema.RECORDED["findings"]``): history, each as of
        its sample. `holds` tells what became of them.

        Parameters
        ----------
        topics, partitions
            As for `partitions`; the findings about the whole cluster are there in any case.
        start, stop
            As for `samples`.
        """
        return _frame(self._findings_over_time(topics, partitions, start, stop))

    def holds(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: dt.datetime | None = None,
        stop: dt.datetime | None = None,
    ) -> pd.DataFrame:
        """Each transaction that was seen open, and from when to when it held the LSO (``schema.FINDINGS``).

        What a later look did not see any more is `ended`; its reason says what it was while it was open. Of what the
        last look still saw, what that said of it (`toolkit.analysis.over_time.over_time`).

        Parameters
        ----------
        topics, partitions, start, stop
            As for `findings_over_time`.
        """
        return schema.FINDINGS.frame(self.hold_rows(topics, partitions, start=start, stop=stop))

    def hold_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: dt.datetime | None = None,
        stop: dt.datetime | None = None,
    ) -> list[Row]:
        """`holds` as rows."""
        found = self._findings_over_time(topics, partitions, start, stop).to_pylist()
        samples = self._history("samples", start, stop).to_pylist()
        return _sorted(schema.FINDINGS, recorded_over_time(found, samples))

    def history(self, table: str, *, start: dt.datetime | None = None, stop: dt.datetime | None = None) -> pd.DataFrame:
        """All rows of a recorded table, with the time of their sample (``schema.RECORDED``).

        Parameters
        ----------
        table
            samples, partitions, producers, transactions, findings or late_transactions.
        start, stop
            As for `samples`.

        Raises
        ------
        UsageError
            If there is no such table, or a time has no zone.
        """
        return _frame(self._history(table, start, stop))

    def partitions(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> pd.DataFrame:
        """Offsets of partitions (``schema.PARTITIONS``), with log start and end where anything was open or held.

        Parameters
        ----------
        topics
            Topic names; all topics, internal ones included, if null.
        partitions
            Numbers, of each of `topics`; or pairs of topic and number, without `topics`.
        at
            A time with its zone: the last sample at or before it. The newest if null.

        Raises
        ------
        NotFound
            If the sample does not have one of them, or there is no sample.
        UsageError
            If the time has no zone.
        """
        return schema.PARTITIONS.frame(self.partition_rows(topics, partitions, at=at))

    def partition_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> list[Row]:
        """`partitions` as rows."""
        look = self.look(topics, partitions, at=at)
        rows = {_place(row): row for row in (*look.partitions, *look.partitions_after)}
        return _sorted(schema.PARTITIONS, rows.values())

    def producers(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> pd.DataFrame:
        """Producer state of partitions by their leaders (``schema.PRODUCERS``).

        Parameters
        ----------
        topics, partitions, at
            As for `partitions`, and so are the errors that it raises.
        """
        return schema.PRODUCERS.frame(self.producer_rows(topics, partitions, at=at))

    def producer_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> list[Row]:
        """`producers` as rows."""
        look = self.look(topics, partitions, at=at)
        again = {_place(row) for row in look.partitions_after}
        rows = [row for row in look.producers if _place(row) not in again]
        return _sorted(schema.PRODUCERS, (*rows, *look.producers_after))

    def transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> pd.DataFrame:
        """What the coordinators said of the ids that had something open (``schema.TRANSACTIONS``); idle ones are not
        recorded.

        Parameters
        ----------
        states, producer_ids, min_duration_ms, transactional_id_pattern, transactional_ids
            As for a live cluster.
        at
            As for `partitions`, and so are the errors that it raises.
        """
        rows = self.transaction_rows(
            states, producer_ids, min_duration_ms, transactional_id_pattern, transactional_ids, at=at
        )
        return schema.TRANSACTIONS.frame(rows)

    def transaction_rows(
        self,
        states: Collection[str] | None = None,
        producer_ids: Collection[int] | None = None,
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> list[Row]:
        """`transactions` as rows."""
        from toolkit.sources.transactions import Filters  # it imports Kafka's client, which nothing else here needs

        filters = Filters(
            states=states or (),
            producer_ids=producer_ids or (),
            min_duration_ms=min_duration_ms,
            pattern=transactional_id_pattern,
        )
        look = self._look(at)
        if transactional_ids is not None:
            return _sorted(schema.TRANSACTIONS, named_rows(look, transactional_ids))
        return _sorted(schema.TRANSACTIONS, [row for row in look.transactions if row["error"] or filters.match(row)])

    def coordinators(
        self,
        transactional_ids: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> pd.DataFrame:
        """Who coordinates ids and groups, by hash and by who answered for an id (``schema.COORDINATORS``).

        Parameters
        ----------
        transactional_ids
            Ids; all that are recorded if null.
        groups
            Group ids; those that a finding names if null.
        at
            As for `partitions`, and so are the errors that it raises.
        """
        return schema.COORDINATORS.frame(self.coordinator_rows(transactional_ids, groups, at=at))

    def coordinator_rows(
        self,
        transactional_ids: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> list[Row]:
        """`coordinators` as rows."""
        found = self._found(at)
        tables = read_sample(self.path, found.sample)
        if transactional_ids is None:
            transactional_ids = [row["transactional_id"] for row in tables["transactions"] if row["transactional_id"]]
        if groups is None:
            groups = [group for row in tables["findings"] for group in row["groups_held"] or ()]
        look = look_of(tables)
        assert look
        return _sorted(schema.COORDINATORS, coordinator_rows(look, transactional_ids, groups))

    def look(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
    ) -> Look:
        """Everything that a sample saw (`analysis.evidence.Look`).

        Parameters
        ----------
        topics, partitions, at
            As for `partitions`, and so are the errors that it raises.
        """
        return part_of(self._look(at), topics, partitions)

    def findings(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
        broker_id: int | None = None,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        log_evidence: bool = True,
        min_held_ms: int | None = None,
    ) -> pd.DataFrame:
        """Who held the LSO of each partition at a time, why, and what was safe (``schema.FINDINGS``).

        The sample and the one before it are judged again, by the rules of today; `findings_over_time` has what was
        recorded then. Where later samples saw nothing, a finding without topic says so.

        Parameters
        ----------
        topics, partitions, at
            As for `partitions`, and so are the errors that it raises. A partition that is asked for has a row even
            where nothing was held.
        broker_id
            Only partitions that this broker had a replica of.
        max_transaction_timeout_ms
            A live transaction that was open for longer is ``long``; the default is the brokers' default.
        log_evidence
            Add what was recorded of its cause, opening time and impact.
        min_held_ms
            Tell also what earlier samples saw open and has ended by then: what held an LSO for so long, and whatever
            was not healthy. Null leaves it out.
        """
        rows = self.finding_rows(
            topics,
            partitions,
            at=at,
            broker_id=broker_id,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
            log_evidence=log_evidence,
            min_held_ms=min_held_ms,
        )
        return schema.FINDINGS.frame(rows)

    def finding_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        at: dt.datetime | None = None,
        broker_id: int | None = None,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        log_evidence: bool = True,
        min_held_ms: int | None = None,
    ) -> list[Row]:
        """`findings` as rows."""
        found = self._found(at)
        tables = read_sample(self.path, found.sample, idle_producers=False)
        whole = look_of(tables)
        assert whole
        look = part_of(whole, topics, partitions, broker_id=broker_id)
        everything = topics is None and partitions is None and broker_id is None
        rows = judge_sample(
            look,
            read_look(self.path, found.before, idle_producers=False) if found.before else None,
            asked=() if everything else [_place(row) for row in look.partitions],
            max_transaction_timeout_ms=max_transaction_timeout_ms,
        )
        if log_evidence:
            rows = with_recorded(rows, tables["findings"])
        if min_held_ms is not None:
            here = {_place(row) for row in look.partitions}
            seen = self.hold_rows(stop=found.sample["sample"] + AN_INSTANT)
            ended = [row for row in seen if row["verdict"] == "ended" and (everything or _place(row) in here)]
            rows += without_short(ended, min_held_ms=min_held_ms)
        return _sorted(schema.FINDINGS, [*rows, *_unseen(found)])

    def _findings_over_time(
        self,
        topics: Sequence[str] | None,
        partitions: Partitions | None,
        start: dt.datetime | None,
        stop: dt.datetime | None,
    ) -> pa.Table:
        found = self._history("findings", start, stop)
        if topics is None and partitions is None:
            return found
        topics = [topics] if isinstance(topics, str) else topics
        asked = set(topics or ()) if partitions is None else set(asked_places(topics, partitions))
        places = zip(found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True)
        return found.filter([place[0] is None or not asked.isdisjoint((place, place[0])) for place in places])

    def _history(self, table: str, start: dt.datetime | None, stop: dt.datetime | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        if table not in schema.RECORDED:
            raise UsageError(f"A recording has no table {table!r}.", do=f"Say {', '.join(schema.RECORDED)}.")
        start, stop = _utc(start), _utc(stop)
        whole = sample_times(self.path, start, stop)  # first: what is written meanwhile is left out of both
        found = read(self.path, table, start=start, stop=stop)
        return found.filter(pc.is_in(found["sample"], value_set=pa.array(whole, found["sample"].type)))

    def _found(self, at: dt.datetime | None) -> Found:
        return find_samples(self.path, at=_utc(at))

    def _look(self, at: dt.datetime | None) -> Look:
        return read_look(self.path, self._found(at).sample)


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def _utc(time: dt.datetime | None) -> dt.datetime | None:
    if time is not None and time.tzinfo is None:
        raise UsageError(f"The time {time} has no time zone.", do="Say which: datetime.now(timezone.utc).")
    return None if time is None else time.astimezone(dt.UTC)


def _unseen(found: Found) -> list[Row]:
    """A finding about the whole cluster where it could not be seen since."""
    if not found.failed:
        return []
    first, last = found.failed[0], found.failed[-1]
    count, since = len(found.failed), at_time(first["sample"])
    failed = f"the sample of {since}" if count == 1 else f"{count} samples from {since} on"
    whole_cluster = {
        **dict.fromkeys(schema.FINDINGS.names),
        "verdict": "unknown",
        "reason": f"The cluster could not be seen any more: {failed} saw nothing.",
        "remedy": "Ask the cluster itself.",
        "missing": list(dict.fromkeys(row["error"] for row in found.failed)),
        "evidence": [],
        "observed_at": last["observed_at"],
        "error": last["error"],
    }
    return [whole_cluster]


def _place(row: Row) -> Place:
    return row["topic"], row["partition"]


def _sorted(table: schema.Table, rows: Iterable[Row]) -> list[Row]:
    """Whole rows in the table's own order, unknown values last."""

    def order(row: Row) -> list[tuple[bool, object]]:
        return [(row[name] is None, 0 if row[name] is None else row[name]) for name in table.sort]

    return sorted(({**dict.fromkeys(table.names), **row} for row in rows), key=order)
