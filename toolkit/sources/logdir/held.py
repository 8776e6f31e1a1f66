"""What logs hold, as tables: batches, transactions, steps of the LSO, records of the coordinators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.bounds import Bound
from toolkit.sources.log_tables import to_frame
from toolkit.sources.logdir import tables
from toolkit.sources.logdir.contents import Partitions
from toolkit.sources.logdir.opened import Opened
from toolkit.sources.logdir.tables import Figured, Section

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["HeldTables"]


class HeldTables(Opened):
    """The tables that only logs can give.

    For every method: `topics` are names or one, all that are there if null; `partitions` are numbers of each of
    `topics` or one (``batches("orders", 0)``, as of a live cluster), or pairs of topic and number, without
    `topics`. `start` and `stop` say from where to before where: an offset; a time with its zone, which means the
    first batch with a record as new; or ``"log_start"``, ``"lso"``, ``"high_watermark"``, ``"log_end"``; batches
    come whole. Every replica of a partition gives its own rows. `NotFound` is raised if the files hold nothing of a
    topic or partition, `UsageError` if a bound is none of these.
    """

    def batches(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
        crc: bool = False,
    ) -> pd.DataFrame:
        """Headers of all batches, and a row for every stretch of bytes that is none (``schema.BATCHES``).

        Parameters
        ----------
        topics, partitions, start, stop
            As above.
        producer_id
            Only its batches, and what could not be read.
        crc
            Check every batch's checksum.
        """
        found = self.batch_tables(topics, partitions, start=start, stop=stop, producer_id=producer_id, crc=crc)
        return to_frame(found, schema.BATCHES)

    def batch_tables(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
        crc: bool = False,
    ) -> Iterator[pa.Table]:
        """`batches` as Arrow tables, one after the other in the order of each log, in bounded memory."""
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.asked(topics, partitions)
        return tables.batch_tables(contents, logs, section, producer_id=producer_id, crc=crc)

    def spans(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """Transactions on partitions, rebuilt from their batches, and what could not be read (``schema.SPANS``).

        Parameters
        ----------
        topics, partitions, start, stop
            As above.
        producer_id
            Only its transactions.
        """
        found = self.span_tables(topics, partitions, start=start, stop=stop, producer_id=producer_id)
        return to_frame(found, schema.SPANS)

    def span_tables(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> Iterator[pa.Table]:
        """`spans` as Arrow tables, those that ended first; memory is bounded by what is open at the same time."""
        contents, section = self._contents(), Section(start=start, stop=stop)
        return tables.span_tables(contents, contents.asked(topics, partitions), section, producer_id=producer_id)

    def statistics(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
    ) -> pd.DataFrame:
        """How many transactions ended how, how large they were and how long they took (``schema.STATISTICS``).

        Parameters
        ----------
        topics, partitions, start, stop
            As above.
        """
        return schema.STATISTICS.frame(self.statistic_rows(topics, partitions, start=start, stop=stop))

    def statistic_rows(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
    ) -> list[Row]:
        """`statistics` as rows; several logs end with the sum of all, without topic."""
        return list(tables.statistic_rows(self.figures(topics, partitions, start=start, stop=stop)))

    def figures(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
    ) -> list[Figured]:
        """What `statistics` is made of, of each log: counts, distributions, and the open transactions themselves."""
        contents, section = self._contents(), Section(start=start, stop=stop)
        return tables.figures(contents, contents.asked(topics, partitions), section)

    def lso_timeline(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """Every step of the LSO and who held it, rebuilt from the batches (``schema.LSO_TIMELINE``).

        Stretches that cannot be read are passed over; `batches` tells of them.

        Parameters
        ----------
        topics, partitions, start, stop
            As above.
        producer_id
            Only the steps from which on it holds the LSO.
        """
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.asked(topics, partitions)
        return to_frame(tables.lso_tables(contents, logs, section, producer_id=producer_id), schema.LSO_TIMELINE)

    def coordinator_events(
        self,
        transactional_ids: Collection[str] | None = None,
        partitions: Sequence[int] | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """Records of ``__transaction_state``, and what could not be read as one (``schema.COORDINATOR_EVENTS``).

        Parameters
        ----------
        transactional_ids, producer_id
            Only theirs.
        partitions
            Of ``__transaction_state``; all that are there if null.
        start, stop
            As above.
        """
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.of_topic(STATE_TOPIC, partitions)
        rows = tables.event_rows(contents, logs, section, producer_id=producer_id, names=transactional_ids)
        return schema.COORDINATOR_EVENTS.frame(rows)

    def histories(
        self,
        transactional_ids: Collection[str] | None = None,
        partitions: Sequence[int] | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """What became of transactional ids: their transactions and how each ended (``schema.HISTORIES``).

        Of several replicas of a partition the one that has most of its log is read.

        Parameters
        ----------
        transactional_ids, producer_id
            Only theirs.
        partitions
            Of ``__transaction_state``; all that are there if null.
        start, stop
            As above; what began before is marked as truncated.
        """
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.of_topic(STATE_TOPIC, partitions)
        rows = tables.history_rows(contents, logs, section, producer_id=producer_id, names=transactional_ids)
        return schema.HISTORIES.frame(rows)

    def group_events(
        self,
        groups: Collection[str] | None = None,
        partitions: Sequence[int] | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """Records of ``__consumer_offsets``, and what could not be read as one (``schema.GROUP_EVENTS``).

        Parameters
        ----------
        groups, producer_id
            Only theirs.
        partitions
            Of ``__consumer_offsets``; all that are there if null.
        start, stop
            As above.
        """
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.of_topic(OFFSETS_TOPIC, partitions)
        rows = tables.event_rows(contents, logs, section, producer_id=producer_id, names=groups)
        return schema.GROUP_EVENTS.frame(rows)

    def aborted(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """Aborted transactions as the broker has indexed them in ``.txnindex`` files (``schema.ABORTED``).

        Parameters
        ----------
        topics, partitions, start, stop
            As above; a transaction that reaches into the section is there.
        producer_id
            Only its transactions.
        """
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.asked(topics, partitions)
        return schema.ABORTED.frame(tables.aborted_rows(contents, logs, section, producer_id=producer_id))

    def snapshots(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> pd.DataFrame:
        """Producers as every ``.snapshot`` file has them (``schema.SNAPSHOTS``).

        A snapshot without producers is a row without producer: nothing was open at its offset. One that cannot be
        read is a row with `error`.

        Parameters
        ----------
        topics, partitions
            As above.
        """
        return schema.SNAPSHOTS.frame(tables.snapshot_rows(self._contents().asked(topics, partitions)))

    def segments(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> pd.DataFrame:
        """Segments as they lie there (``schema.SEGMENTS``); none is opened.

        Parameters
        ----------
        topics, partitions
            As above.
        """
        return schema.SEGMENTS.frame(tables.segment_rows(self._contents().asked(topics, partitions)))

    def checkpoints(self, topics: Sequence[str] | None = None, partitions: Partitions | None = None) -> pd.DataFrame:
        """Entries of checkpoint and properties files, line by line (``schema.CHECKPOINTS``).

        Parameters
        ----------
        topics, partitions
            As above; if given, lines that are about no partition are left out.
        """
        contents = self._contents()
        everything = topics is None and partitions is None
        logs = contents.logs if everything else contents.asked(topics, partitions)
        return schema.CHECKPOINTS.frame(tables.checkpoint_rows(contents, logs, everything=everything))

    def violations(
        self,
        topics: Sequence[str] | None = None,
        partitions: Partitions | None = None,
        *,
        start: Bound | None = None,
        stop: Bound | None = None,
        producer_id: int | None = None,
        crc: bool = False,
    ) -> pd.DataFrame:
        """Where logs break what holds in every sound log (``schema.VIOLATIONS``, `analysis.invariants.INVARIANTS`).

        Parameters
        ----------
        topics, partitions, start, stop
            As above.
        producer_id
            Only its batches and records.
        crc
            Check every batch's checksum.
        """
        contents, section = self._contents(), Section(start=start, stop=stop)
        logs = contents.asked(topics, partitions)
        return schema.VIOLATIONS.frame(tables.violation_rows(contents, logs, section, producer_id=producer_id, crc=crc))
