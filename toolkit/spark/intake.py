"""Which parts of which logs are new: what was listed now against what is stored.

A log only grows at its end, so what was read of it stays true, whatever retention and the cleaner take away later:
only the last part is read again as long as it grows. What ends that is a truncation, when a replica follows another
leader: the leader epochs that a folder has written down tell from where on, as they tell the replicas themselves.
Without them every file that has changed is read again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolkit.schema import Row
from toolkit.spark.ledger import STORED, Part
from toolkit.spark.units import folder_of, log_id, part_id

__all__ = ["UNREAD", "Intake", "Marks", "log_marks", "plan_live", "plan_log"]

READ_AGAIN = 64 << 20  # bytes: a part that grows is read again up to here, so that there are few of them
UNREAD = "unread"
"""Name of the part that tells of a folder that could not be read."""

LEADER_EPOCHS, METADATA, CLEANED = "leader-epoch-checkpoint", "partition.metadata", "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a log directory has written down of a log.

    Parameters
    ----------
    epochs
        The offset that each leader epoch began at; none if that is not known.
    cleaned
        Up to where the cleaner has been.
    topic_id
        Id of the topic.
    """

    epochs: Mapping[int, int] = field(default_factory=dict)
    cleaned: int = 0
    topic_id: str | None = None


@dataclass(slots=True)
class Intake:
    """What is to be done about one log.

    Parameters
    ----------
    read
        Parts to read; they replace what is stored of the same name.
    drop
        Stored parts that are not true any more.
    false_from
        From which offset on nothing that is stored of the log is true any more; null if all of it is.
    noted
        Stored parts whose segment has changed, though what was read of it stays true.
    lost
        Offsets that were deleted before they were read: from, and up to before.
    beside
        Files to list beside those that are read, so that none is taken for the last of its log that is not.
    """

    read: list[Part] = field(default_factory=list)
    drop: list[Part] = field(default_factory=list)
    false_from: int | None = None
    noted: list[Part] = field(default_factory=list)
    lost: tuple[int, int] | None = None
    beside: list[str] = field(default_factory=list)


def plan_log(present: Iterable[Row], stored: Sequence[Part], marks: Marks) -> Intake:
    """What to read of one log in files.

    Parameters
    ----------
    present
        Its rows of ``schema.SEGMENTS``.
    stored
        What is stored of it, in its order.
    marks
        What its log directory has written down of it.
    """
    segments = sorted(present, key=lambda row: -1 if row["base_offset"] is None else row["base_offset"])
    if segments[-1]["base_offset"] is None:  # its folder could not be read: nothing tells that anything is gone
        return Intake(read=[_part(segments[-1], marks)])
    unread = [part for part in stored if part.segment == UNREAD]
    known = [part for part in stored if part.segment != UNREAD]
    false_from = _false_from(segments, known, marks) if known else None
    kept, read = _new(segments, known, marks, false_from) if known else ([], [_part(row, marks) for row in segments])
    intake = Intake(read=read, false_from=false_from)
    _retry(intake, segments, kept, marks)
    _start_anew_behind_a_loss(intake, segments, kept)
    taken = {part.key for part in intake.read}
    left = {part.key for part in kept}
    intake.drop = [part for part in (*unread, *known) if part.key not in taken | left]
    intake.noted = list(_changed(segments, [part for part in kept if part.key not in taken]))
    return intake


def plan_live(row: Row, stored: Sequence[Part]) -> Intake:
    """What to read of one partition from its leader, by its row of ``schema.PARTITIONS``."""
    start, end = row["log_start_offset"], row["high_watermark"]
    if row["error"] or start is None or end is None:
        return Intake()
    last = stored[-1] if stored else None
    drop: list[Part] = []
    if last and last.end_offset > end:  # what was committed is gone: another topic of that name
        last, drop = None, [part for part in stored if part.segment != part_id(start)]
    begin = max(start, last.end_offset) if last else start
    lost = (last.end_offset, start) if last and last.end_offset < start else None
    part = Part(
        log=log_id({**row, "file": None}),
        segment=part_id(begin),
        topic=row["topic"],
        partition=row["partition"],
        broker_id=row["leader"],
        from_offset=begin,
        end_offset=end,
        stretch=(last.stretch if last else 0) + (lost is not None),
    )
    return Intake(read=[part] if begin < end else [], drop=drop, lost=lost if begin < end else None)


def log_marks(checkpoints: Iterable[Row], segments: Iterable[Row]) -> dict[str, Marks]:
    """What is written down of each log, by the rows of ``schema.CHECKPOINTS`` and of ``schema.SEGMENTS``."""
    epochs: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, str] = {}
    cleaned: dict[tuple[str, str, int], int] = {}
    for row in checkpoints:
        if row["error"] or row["topic"] is None:
            continue
        if row["name"] == LEADER_EPOCHS and row["leader_epoch"] is not None:
            epochs.setdefault(log_id(row), {})[row["leader_epoch"]] = row["offset"]
        elif row["name"] == METADATA and row["key"] == "topic_id":
            topic_ids[log_id(row)] = row["value"]
        elif row["name"] == CLEANED:
            cleaned[folder_of(row["file"]), row["topic"], row["partition"]] = row["offset"]
    found: dict[str, Marks] = {}
    for row in segments:
        log = log_id(row)
        if log not in found:
            above = folder_of(folder_of(row["file"])[:-1])
            place = (above, row["topic"], row["partition"])
            found[log] = Marks(epochs=epochs.get(log, {}), cleaned=cleaned.get(place, 0), topic_id=topic_ids.get(log))
    return found


def _new(
    segments: Sequence[Row], known: Sequence[Part], marks: Marks, false_from: int | None
) -> tuple[list[Part], list[Part]]:
    """The stored parts that stay, and those to read, from the first that does not on."""
    if false_from is not None:
        kept = [part for part in known if part.from_offset < false_from and part.end_offset <= false_from]
        return kept, _from(false_from, segments, marks, known)
    last, bases = known[-1], [row["base_offset"] for row in segments]
    if last.state != STORED and bases[0] <= last.from_offset:  # it may hold more than is known of it
        return list(known[:-1]), _from(last.from_offset, segments, marks, known)
    if last.base_offset not in bases:  # retention took it, or the cleaner has merged it with older ones
        return list(known), _from(last.end_offset, segments, marks, known)
    row = segments[bases.index(last.base_offset)]
    is_followed = bases[-1] > (last.base_offset or 0)
    if _is_as_stored(row, last) and not (last.errors and is_followed):
        return list(known), [_part(row, marks, last=last) for row in segments if row["base_offset"] > last.base_offset]
    is_large = last.end_position - last.from_position >= READ_AGAIN and not last.errors
    if is_large or marks.cleaned > last.from_offset:
        return list(known), _from(last.end_offset, segments, marks, known)
    return list(known[:-1]), _from(last.from_offset, segments, marks, known)


def _false_from(segments: Sequence[Row], known: Sequence[Part], marks: Marks) -> int | None:
    """From which offset on what is stored may not be true any more; null if all of it is."""
    epoch = max((part.leader_epoch for part in known if part.leader_epoch is not None), default=None)
    last, newest = known[-1], segments[-1]["base_offset"]
    if marks.topic_id and last.topic_id and marks.topic_id != last.topic_id:
        return 0  # the topic was deleted and created again
    if not marks.epochs or epoch is None:
        changed = _first_change(segments, known)
        return None if changed is None else _begin_of_part(known, changed)
    if newest < (last.base_offset or 0):
        return _begin_of_part(known, newest)
    rewritten = min((start for number, start in marks.epochs.items() if number > epoch), default=last.end_offset)
    return _begin_of_part(known, rewritten) if rewritten < last.end_offset else None


def _first_change(segments: Sequence[Row], known: Sequence[Part]) -> int | None:
    """The first segment that is not as it was, or was there and is not, though older ones are."""
    stored = {part.base_offset: part for part in known}
    bases = {row["base_offset"]: row for row in segments}
    changed = [base for base, row in bases.items() if base in stored and not _is_as_stored(row, stored[base])]
    gone = [base for base in stored if base is not None and base not in bases and base > segments[0]["base_offset"]]
    return min([*changed, *gone], default=None)


def _begin_of_part(known: Sequence[Part], offset: int) -> int:
    """Where the part begins that holds an offset."""
    return max((part.from_offset for part in known if part.from_offset <= offset), default=offset)


def _from(offset: int, segments: Sequence[Row], marks: Marks, known: Sequence[Part]) -> list[Part]:
    """What there is from an offset on; of the segment that it lies in only that."""
    bases = [row["base_offset"] for row in segments]
    first = bisect_right(bases, offset) - 1
    found = [_part(row, marks, last=known[-1]) for row in segments[max(first, 0) :]]
    if first >= 0 and bases[first] < offset:
        found[0] = replace(found[0], segment=part_id(offset), from_offset=offset, end_offset=offset)
        for part in known:
            if part.file == found[0].file and part.from_offset == offset:
                found[0] = replace(found[0], from_position=part.from_position)
            elif part.file == found[0].file and part.end_offset == offset and marks.cleaned <= part.from_offset:
                found[0] = replace(found[0], from_position=part.end_position)
    return found


def _retry(intake: Intake, segments: Sequence[Row], kept: Sequence[Part], marks: Marks) -> None:
    """Segments that could not be opened are tried again."""
    unread = {part.segment: part for part in kept if part.unread}
    for number, row in enumerate(segments):
        part = unread.get(part_id(row["base_offset"]))
        if part is not None:
            intake.read.append(_part(row, marks, last=part))
            intake.beside += [each["file"] for each in segments[number + 1 : number + 2]]


def _start_anew_behind_a_loss(intake: Intake, segments: Sequence[Row], kept: Sequence[Part]) -> None:
    """Where retention was quicker than we: no transaction goes on from before such a hole to behind it."""
    begin = segments[0]["base_offset"]
    if kept and intake.read and kept[-1].end_offset < begin:
        intake.lost = (kept[-1].end_offset, begin)
        intake.read = [replace(part, stretch=kept[-1].stretch + 1) for part in intake.read]


def _changed(segments: Sequence[Row], kept: Sequence[Part]) -> Iterable[Part]:
    rows = {row["base_offset"]: row for row in segments}
    for part in kept:
        row = rows.get(part.base_offset)
        if row is not None and not _is_as_stored(row, part):
            yield replace(part, file=row["file"], size=row["size"], modified=row["modified"])


def _part(row: Row, marks: Marks, *, last: Part | None = None) -> Part:
    base = row["base_offset"]
    return Part(
        log=log_id(row),
        segment=UNREAD if base is None else part_id(base),
        topic=row["topic"],
        partition=row["partition"],
        broker_id=row["broker_id"],
        base_offset=base,
        from_offset=-1 if base is None else base,
        end_offset=base or 0,
        file=row["file"],
        size=row["size"],
        modified=row["modified"],
        topic_id=marks.topic_id,
        stretch=last.stretch if last else 0,
    )


def _is_as_stored(row: Row, part: Part) -> bool:
    return (row["file"], row["size"], row["modified"]) == (part.file, part.size, part.modified)
