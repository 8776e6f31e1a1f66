"""From when to when a finding held the LSO, and by what that is known: a marker in the log, or samples around it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.schema import Row

LOG, RECORDING = "the log", "the recording"

_BY_MARKER = re.compile(r"Its (?:\w+ )?marker is at offset \d+ of the log\b")
_OF_LOG = {"held_since", "first_batch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEnd:
    """The end of a hold.

    Parameters
    ----------
    time
        Time of the marker; or of the first sample without the transaction, and the marker was written before.
    marker
        What is known of the marker, as a sentence; null if no log was read that has it.
    last_seen
        When it was last seen open, if the end is that of a sample and that is known.
    """

    time: dt.datetime
    marker: str | None = None
    last_seen: dt.datetime | None = None


def hold_end(row: Row, log_transactions: Iterable[Row] = ()) -> HoldEnd | None:
    """When a finding stopped holding the LSO; null if it still holds it, or that is not known.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    log_transactions
        Rows of ``schema.LOG_TRANSACTIONS`` around it.
    """
    if row["held_to"] is None:
        return None
    key = row["topic"], row["partition"], row["producer_id"], row["start_offset"]
    for each in log_transactions:
        own = each["topic"], each["partition"], each["producer_id"], each["first_offset"]
        if own == key and each["marker_offset"] is not None and each["end"] is not None:
            kind = f"{each['marker']} marker" if each["marker"] else "marker"
            return HoldEnd(time=each["end"], marker=f"its {kind} at offset {each['marker_offset']} ended it")
    names = {entry["name"] for entry in row["evidence"] or ()}
    if "marker" in names or _BY_MARKER.match(row["reason"] or ""):
        return HoldEnd(time=row["held_to"], marker="its marker ended it")
    seen = [entry["observed_at"] for entry in row["evidence"] or () if entry["name"] == "verdict_before"]
    return HoldEnd(time=row["held_to"], last_seen=next(iter(seen), None))


def held_from_source(row: Row, samples: Sequence[Row] = ()) -> str:
    """By what the start of a hold is known: `LOG`, or `RECORDING` if it is the first sample that shows the hold.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    samples
        Rows of the recording's partitions.
    """
    if row["held_from"] in {each.get("sampled_at") for each in samples}:
        return RECORDING
    evidence = row["evidence"] or ()
    is_recorded = any(entry["source"] == "recording" for entry in evidence)
    return RECORDING if is_recorded and _OF_LOG.isdisjoint(entry["name"] for entry in evidence) else LOG
