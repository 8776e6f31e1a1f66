"""`LogDir`: the tables of a live cluster from files, and those that only logs can give."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.analysis.evidence import Look
from toolkit.errors import UsageError
from toolkit.schema import Row
from toolkit.sources.logdir.contents import Contents, Partitions
from toolkit.sources.logdir.held import HeldTables
from toolkit.sources.logdir.opened import named, sorted_rows
from toolkit.sources.logdir.state import partition_row, producer_rows
from toolkit.sources.logdir.window import Reach

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.logdir.look import Looked

__all__ = ["LogDir"]


# What a table alone needs is imported when it is asked for: a command over gigabytes takes little more than a second.
class LogDir(HeldTables):
    """Files of Kafka's: only read, and listed again for every question, so that a broker may be writing them.

    The tables are those of `toolkit.Cluster`, and those of what logs hold. Every table is a pandas DataFrame as
    ``toolkit.schema`` declares it; ``partition_rows()`` and the like give the same as a list of dicts. What cannot be
    read is a row with `error`, never left out; `observed_at` is when the newest file of a row was written.

    Parameters
    ----------
    path, more_paths
        Log directories (entries of ``log.dirs``), folders above several of them, folders of partitions, segments,
        snapshots, transaction indexes, and texts of kafka-dump-log.sh.
    at_rest
        Your word that brokers stood still when the files were taken, stopped in good order, and that these replicas
        were in sync. Without it a transaction is `hanging` only where the content proves that both of its sides are
        of one moment (`toolkit.sources.logdir.proof`), and otherwise `unknown`. Where your word is not true, a healthy
        transaction can come out as hanging. How long one has been open is then told by the files' own times: copy them
        with the files (``cp -p``, ``rsync -a``).
    txn_state_partitions
        How many partitions ``__transaction_state`` has, where it is not 50.

    Raises
    ------
    NotFound
        If a path does not exist, or nothing of Kafka's is in it.
    UsageError
        If a path cannot be read, or a file is nothing that can be read here.

    Examples
    --------
    >>> LogDir("/var/lib/kafka/data").findings(topics=["orders"])  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *more_paths: str | os.PathLike[str],
        at_rest: bool = False,
        txn_state_partitions: int | None = None,
    ) -> None:
        if txn_state_partitions is not None and txn_state_partitions < 1:
            raise UsageError(f"__transaction_state cannot have {txn_state_partitions} partitions.")
        self.at_rest = at_rest
        self.txn_state_partitions = txn_state_partitions
        super().__init__((path, *more_paths))

    def __enter__(self) -> LogDir:
        return self

    def __exit__(self, *exc: object) -> None:
        pass  # nothing stays open; it can stand wherever a cluster can

    def __repr__(self) -> str:
        at_rest = ", at_rest=True" if self.at_rest else ""
        return f"LogDir({', '.join(repr(str(path)) for path in self.paths)}{at_rest})"

    def partitions(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> pd.DataFrame:
        """Offsets of partitions (``schema.PARTITIONS``), a row for each replica; nothing tells who leads.

        Parameters
        ----------
        topics
            Topic names; all topics, internal ones included, if null.
        partitions
            Numbers, of each of `topics`; or pairs of topic and number, without `topics`.

        Raises
        ------
        NotFound
            If the files hold nothing of one of them.
        UsageError
            If nothing tells whose partition any of the files are.
        """
        return schema.PARTITIONS.frame(self.partition_rows(topics, partitions))

    def partition_rows(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> list[Row]:
        """`partitions` as rows."""
        contents = self._contents()
        logs = named(contents.asked(topics, partitions))
        return sorted_rows(schema.PARTITIONS, [partition_row(contents.read(log).state) for log in logs])

    def producers(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> pd.DataFrame:
        """Producer state of each replica (``schema.PRODUCERS``): its newest sound snapshot and what follows it.

        A broker forgets producers that were idle for ``producer.id.expiration.ms`` (a day); here they still are.

        Parameters
        ----------
        topics, partitions
            As for `partitions`, and so are the errors that it raises.
        """
        return schema.PRODUCERS.frame(self.producer_rows(topics, partitions))

    def producer_rows(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> list[Row]:
        """`producers` as rows."""
        contents = self._contents()
        logs = named(contents.asked(topics, partitions))
        return sorted_rows(schema.PRODUCERS, (row for log in logs for row in producer_rows(contents.read(log).state)))

    def transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """What the coordinators wrote down last of transactional ids (``schema.TRANSACTIONS``), one row per id.

        Parameters
        ----------
        states, producer_ids, transactional_id_pattern, transactional_ids
            As for a live cluster.
        min_duration_ms
            Only ids with a transaction that had been open for longer when the files were written.
        """
        rows = self.transaction_rows(states, producer_ids, min_duration_ms, transactional_id_pattern, transactional_ids)
        return schema.TRANSACTIONS.frame(rows)

    def transaction_rows(
        self,
        states: Collection[str] | None = None,
        producer_ids: Collection[int] | None = None,
        min_duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        transactional_ids: Sequence[str] | None = None,
    ) -> list[Row]:
        """`transactions` as rows."""
        from toolkit.sources.logdir import ids
        from toolkit.sources.logdir.coordinator_side import read_coordinator_side
        from toolkit.sources.transactions import Filters  # it imports Kafka's client, which nothing else here needs

        filters = Filters(
            states=states or (),
            producer_ids=producer_ids or (),
            min_duration_ms=min_duration_ms,
            pattern=transactional_id_pattern,
        )
        contents = self._contents()
        rows = ids.transaction_rows(read_coordinator_side(contents, count=self.txn_state_partitions))
        if transactional_ids is not None:
            named_rows = ids.named_rows(rows, transactional_ids, taken_at=contents.taken_at)
            return sorted_rows(schema.TRANSACTIONS, named_rows)
        return sorted_rows(schema.TRANSACTIONS, [row for row in rows if row["error"] or filters.match(row)])

    def coordinators(
        self, transactional_ids: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Which partition coordinates ids and groups, by their hash (``schema.COORDINATORS``).

        Parameters
        ----------
        transactional_ids, groups
            Ids; all that the files tell of if null.
        """
        return schema.COORDINATORS.frame(self.coordinator_rows(transactional_ids, groups))

    def coordinator_rows(
        self, transactional_ids: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> list[Row]:
        """`coordinators` as rows."""
        from toolkit.sources.logdir import ids

        rows = ids.coordinator_rows(self._contents(), transactional_ids, groups, self.txn_state_partitions)
        return sorted_rows(schema.COORDINATORS, rows)

    def look(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> Look:
        """Everything the verdicts need (`analysis.evidence.Look`), with what speaks against trusting files."""
        return self._look(self._contents(), topics, partitions).look

    def _look(
        self,
        contents: Contents,
        topics: Sequence[str] | None,
        partitions: Partitions | None,
        *,
        reach: Reach = Reach.OPEN,
    ) -> Looked:
        from toolkit.sources.logdir.look import take_look

        logs = named(contents.asked(topics, partitions))
        count = self.txn_state_partitions
        return take_look(contents, logs, at_rest=self.at_rest, txn_state_partitions=count, reach=reach)

    def findings(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        log_evidence: bool = True,
        min_held_ms: int | None = None,
    ) -> pd.DataFrame:
        """Who held the LSO of each partition when the files were written, why, and what is safe (``schema.FINDINGS``).

        Of several replicas of a partition the one that has most of the log is judged, and the evidence says so.

        Parameters
        ----------
        topics, partitions
            As for `partitions`, and so are the errors. A partition that is asked for has a row even where nothing is
            held.
        max_transaction_timeout_ms
            A live transaction that was open for longer is ``long``; the default is the brokers' default.
        log_evidence
            Read the log around what is held for its cause, opening time and impact.
        min_held_ms
            Tell also who held an LSO before that for at least so long, with verdict ``ended``; every log is read whole
            for it. Only who held it when the files were written, if null.
        """
        rows = self.finding_rows(
            topics,
            partitions,
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
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        log_evidence: bool = True,
        min_held_ms: int | None = None,
    ) -> list[Row]:
        """`findings` as rows."""
        from toolkit.analysis.findings import findings
        from toolkit.sources.logdir.log_evidence import explained

        contents = self._contents()
        looked = self._look(contents, topics, partitions, reach=Reach.OPEN if min_held_ms is None else Reach.WHOLE)
        everything = topics is None and partitions is None
        asked = () if everything else list(looked.replicas)
        rows = findings([looked.look], asked=asked, max_transaction_timeout_ms=max_transaction_timeout_ms)
        rows = explained(looked, rows) if log_evidence else rows
        if min_held_ms is not None:
            from toolkit.sources.logdir.holds import with_holds

            rows = list(with_holds(looked, rows, min_held_ms=min_held_ms))
        return sorted_rows(schema.FINDINGS, rows)
