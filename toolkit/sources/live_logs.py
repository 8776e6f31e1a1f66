"""What the logs of a live cluster hold, as tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.sources.offsets import partition_rows
from toolkit.sources.topology import as_places, read_topology
from toolkit.sources.wire import Wire

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.bounds import Bound
    from toolkit.sources.live_log import Section, Stretch

__all__ = ["LiveLogs"]


class LiveLogs:
    """The tables that take reading of logs; what reads them, and numpy with it, is imported when it is asked for."""

    wire: Wire

    def scan(
        self,
        topic: str,
        partition: int,
        *,
        start: Bound = "log_start",
        stop: Bound = "high_watermark",
        crc: bool = False,
    ) -> Iterator[Stretch]:
        """The log of a partition as its leader sends it: every batch, markers and open transactions included.

        It comes piece by piece, in bounded memory. What is not read in the end is a stretch with `error`.

        Parameters
        ----------
        topic, partition
            Which partition.
        start, stop
            From where to before where: an offset; a time with its zone, which means the first record that is as new;
            or ``"log_start"``, ``"lso"``, ``"high_watermark"``, ``"log_end"``. A batch that `start` lies in comes
            whole. What lies beyond the high watermark brokers show to no client.
        crc
            Check every batch's checksum.

        Raises
        ------
        NotFound
            If the cluster does not have the partition.
        UsageError
            If a bound is none of these.
        BrokerError, ConnectionFailed
            If its leader does not say where the log starts and ends.
        """
        return self._section(topic, partition, start, stop, crc=crc).stretches

    def batches(
        self,
        topic: str,
        partition: int,
        *,
        start: Bound = "log_start",
        stop: Bound = "high_watermark",
        producer_id: int | None = None,
        crc: bool = False,
    ) -> pd.DataFrame:
        """Headers of all batches of a partition (``schema.BATCHES``), and a row for what could not be read.

        Parameters
        ----------
        topic, partition, start, stop, crc
            As for `scan`, and so are the errors that it raises.
        producer_id
            Only its batches.
        """
        from toolkit.sources.live_tables import batch_frame

        return batch_frame(self._section(topic, partition, start, stop, crc=crc), producer_id=producer_id)

    def spans(
        self,
        topic: str,
        partition: int,
        *,
        start: Bound = "log_start",
        stop: Bound = "high_watermark",
        producer_id: int | None = None,
    ) -> pd.DataFrame:
        """Transactions on a partition (``schema.SPANS``), rebuilt from its batches; a row for what could not be read.

        Parameters
        ----------
        topic, partition, start, stop
            As for `scan`, and so are the errors that it raises.
        producer_id
            Only its transactions.
        """
        from toolkit.sources.live_tables import span_frame

        return span_frame(self._section(topic, partition, start, stop), producer_id=producer_id)

    def lso_timeline(
        self, topic: str, partition: int, *, start: Bound = "log_start", stop: Bound = "high_watermark"
    ) -> pd.DataFrame:
        """Every step of a partition's LSO and who held it (``schema.LSO_TIMELINE``), rebuilt from its batches.

        Parameters
        ----------
        topic, partition, start, stop
            As for `scan`, and so are the errors that it raises.

        Raises
        ------
        BrokerError
            If a part of the log could not be read.
        """
        from toolkit.sources.live_tables import lso_timeline_frame

        return lso_timeline_frame(self._section(topic, partition, start, stop))

    def coordinator_events(
        self, transactional_ids: Sequence[str] | None = None, partitions: Sequence[int] | None = None
    ) -> pd.DataFrame:
        """Records of ``__transaction_state`` (``schema.COORDINATOR_EVENTS``), and a row for what could not be read.

        Parameters
        ----------
        transactional_ids
            Only these; all if null.
        partitions
            Only these partitions of the topic; all if null.

        Raises
        ------
        NotFound
            If it does not have one of the partitions.
        BrokerError
            If this principal may not see the topic.
        """
        from toolkit.sources.live_events import coordinator_event_rows

        return schema.COORDINATOR_EVENTS.frame(coordinator_event_rows(self.wire, transactional_ids, partitions))

    def histories(
        self, transactional_ids: Sequence[str] | None = None, partitions: Sequence[int] | None = None
    ) -> pd.DataFrame:
        """What became of each transactional id (``schema.HISTORIES``), as far as ``__transaction_state`` remembers.

        Parameters
        ----------
        transactional_ids, partitions
            As for `coordinator_events`, and so are the errors that it raises.
        """
        from toolkit.analysis.coordinator import histories
        from toolkit.sources.live_events import coordinator_event_rows

        events = coordinator_event_rows(self.wire, transactional_ids, partitions)
        return schema.HISTORIES.frame(histories(events, as_of=dt.datetime.now(dt.UTC)))

    def group_events(self, partitions: Sequence[int] | None = None) -> pd.DataFrame:
        """Records of ``__consumer_offsets`` (``schema.GROUP_EVENTS``), and a row for what could not be read.

        Parameters
        ----------
        partitions
            Only these partitions of the topic; all if null.

        Raises
        ------
        NotFound, BrokerError
            As `coordinator_events`.
        """
        from toolkit.formats.group_records import OFFSETS_TOPIC
        from toolkit.sources.live_events import coordinator_places, event_rows

        return schema.GROUP_EVENTS.frame(
            event_rows(self.wire, coordinator_places(self.wire, OFFSETS_TOPIC), partitions)
        )

    def _section(self, topic: str, partition: int, start: Bound, stop: Bound, *, crc: bool = False) -> Section:
        from toolkit.sources.live_log import read_section

        topology = read_topology(self.wire, [topic])
        (row,) = partition_rows(self.wire, topology.at(as_places(topology, [topic], [partition])))
        return read_section(self.wire, row, start, stop, crc=crc)
