"""Raw batches of live partitions, as their leaders keep them (Fetch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.sources import wire as kafka
from toolkit.sources.topology import Place
from toolkit.sources.wire import Answer, Wire, error_text

__all__ = ["Fetched", "Spot", "fetch"]


@dataclass(frozen=True, slots=True)
class Spot:
    """An offset of a partition, and the broker to read it from.

    Parameters
    ----------
    leader_epoch
        Epoch in which that broker leads, so that one which does not lead any more, or not yet, says so; -1 asks it
        whatever it is.
    """

    place: Place
    offset: int
    broker_id: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a broker sent.

    Parameters
    ----------
    records
        Record batches; the first one contains the offset, or follows it where compaction took it. The last may be cut.
        Empty at the high watermark.
    aborted
        Producer id to the first offsets of its aborted transactions in there, where read_committed was asked for.
    high_watermark
        The broker's, at that moment.
    error
        ``"NAME: text"`` where it refused; null otherwise.
    """

    records: bytes = b""
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)
    high_watermark: int | None = None
    error: str | None = None


def fetch(
    wire: Wire, spots: Sequence[Spot], *, max_bytes: int, read_committed: bool = False, max_wait_ms: int = 0
) -> list[Fetched]:
    """Read up to `max_bytes` from each spot, but at least the first batch, whole (KIP-74: one request per spot).

    Parameters
    ----------
    spots
        Where to read.
    max_bytes
        Of each spot.
    read_committed
        Only up to the LSO; otherwise up to the high watermark, markers and open transactions included.
    max_wait_ms
        How long a broker that has nothing there may wait for more.
    """
    requests = [(spot.broker_id, _request(spot, max_bytes, read_committed, max_wait_ms)) for spot in spots]
    return [_fetched(answer) for answer in wire.send(requests)]


def _request(spot: Spot, max_bytes: int, read_committed: bool, max_wait_ms: int) -> Any:
    topic = kafka.Fetch.FetchTopic
    partition = topic.FetchPartition(
        partition=spot.place[1],
        current_leader_epoch=spot.leader_epoch,
        fetch_offset=spot.offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return kafka.Fetch(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,  # no session
        topics=[topic(topic=spot.place[0], partitions=[partition])],
        forgotten_topics_data=[],
        max_version=10,  # from 11 on a broker may send us to a follower; 10 knows every compression
    )


def _fetched(answer: Answer) -> Fetched:
    if answer.error:
        return Fetched(error=answer.error_text)
    if answer.message.error_code:
        return Fetched(error=error_text(answer.message.error_code))
    found = answer.message.responses[0].partitions[0]
    if found.error_code:
        return Fetched(error=error_text(found.error_code))
    aborted: dict[int, list[int]] = {}
    for transaction in found.aborted_transactions or ():
        aborted.setdefault(transaction.producer_id, []).append(transaction.first_offset)
    return Fetched(bytes(found.records or b""), aborted, found.high_watermark)
