"""A section of a live partition's log in ranges of offsets, to be read in parallel: each batch in exactly one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from toolkit.sources.live_log import Section, Stretch, read_offsets
from toolkit.sources.topology import Place, read_topology
from toolkit.sources.wire import Wire

__all__ = ["Range", "read_range", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets of a partition: the batches whose first offset is in ``start <= offset < stop``.

    Parameters
    ----------
    leads
        Whether the section starts here, so that a batch that `start` lies in belongs to it, too.
    """

    place: Place
    start: int
    stop: int
    leads: bool = True


def split(place: Place, start: int, stop: int, *, log_start: int, most: int) -> list[Range]:
    """Divide a section into ranges of equal size.

    Parameters
    ----------
    log_start
        Where the log starts: what is deleted before it is not divided, since there is nothing to read.
    most
        Offsets that a range may have.
    """
    first = max(start, log_start)
    if first >= stop:
        return [Range(place=place, start=start, stop=stop)] if start < stop else []
    count = -(-(stop - first) // most)
    borders = [start, *(first + (stop - first) * index // count for index in range(1, count)), stop]
    return [Range(place=place, start=low, stop=high, leads=low == start) for low, high in pairwise(borders)]


def read_range(wire: Wire, part: Range, *, crc: bool = False) -> Section:
    """A range of a log; it is read as its stretches are asked for.

    The range was there when the section was divided: what is not there any more is a stretch with `error`.

    Parameters
    ----------
    crc
        Check every batch's checksum.

    Raises
    ------
    ConnectionFailed, BrokerError
        If no broker says who leads the partition.
    """
    base = read_topology(wire, [part.place[0]]).at([part.place])[part.place]
    section = read_offsets(wire, base, part.start, part.stop, crc=crc)
    return section if part.leads else replace(section, stretches=_begun(section.stretches, part.start))


def _begun(stretches: Iterator[Stretch], start: int) -> Iterator[Stretch]:
    """Without the batch that begins before a range: it belongs to the one before."""
    for stretch in stretches:
        headers = stretch.scanned.headers
        headers = headers[headers["base_offset"] >= start]
        yield replace(stretch, scanned=replace(stretch.scanned, headers=headers))
