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
    """An offset of a partition, and the broker to read it from."""

    place: Place
    offset: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a broker sent.

    Parameters
    ----------
    records
        Record batches; the first one contains the offset, or follows it where compaction took it. The last may be cut.
    aborted
        Producer id to the first offsets of its aborted transactions in there, where read_committed was asked for.
    error
        ``"NAME: text"`` where there are no records; null otherwise.
    """

    records: bytes = b""
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)
    error: str | None = None


def fetch(wire: Wire, spots: Sequence[Spot], *, max_bytes: int, read_committed: bool = False) -> list[Fetched]:
    """Read up to `max_bytes` from each spot, but at least the first batch, whole (KIP-74: one request per spot)."""
    answers = wire.send([(spot.broker_id, _request(spot, max_bytes, read_committed)) for spot in spots])
    return [_fetched(answer) for answer in answers]


def _request(spot: Spot, max_bytes: int, read_committed: bool) -> Any:
    topic = kafka.Fetch.FetchTopic
    partition = topic.FetchPartition(
        partition=spot.place[1],
        current_leader_epoch=-1,
        fetch_offset=spot.offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return kafka.Fetch(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,  # no session
        topics=[topic(topic=spot.place[0], partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=12,  # later ones name topics by id
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
    return Fetched(bytes(found.records or b""), aborted)
