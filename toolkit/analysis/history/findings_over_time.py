"""Findings of a recording over time: the first and last sample of each open transaction, and its verdicts.

A failed sample, a partition that could not be read or may be hidden, and a gap between samples prove nothing: the
evidence lists them, and none of them ends a transaction.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.history.closing import close, unread
from toolkit.schema import FINDINGS, Row
from toolkit.schema.durations import duration

__all__ = ["observation_times", "over_time", "recorded_over_time"]

MILLISECOND = dt.timedelta(milliseconds=1)
LATE = 1.5  # a longer gap, in intervals, is reported
SOURCE = "recording"


def observation_times(samples: Iterable[Row]) -> list[Row]:
    """The samples in order, and the gaps between them.

    Parameters
    ----------
    samples
        Rows of ``schema.SAMPLES``; only ``sampled_at``, ``interval_ms``, ``topic_gaps`` and ``error`` are used.

    Returns
    -------
    list of Row
        Rows of `OBSERVATION_TIMES`.
    """
    ordered = sorted(samples, key=lambda row: row["sampled_at"])
    found: list[dict[str, Any]] = []
    failed: list[Row] = []
    interval: dt.timedelta | None = None
    for row in ordered:
        if row["error"]:
            failed.append(row)
            continue
        if found:
            late = interval is not None and row["sampled_at"] - found[-1]["sampled_at"] > LATE * interval
            found[-1] |= {
                "next_sampled_at": row["sampled_at"],
                "missed": _missed(found[-1]["sampled_at"], row["sampled_at"], failed, late),
                "next_topic_gap": "; ".join(row["topic_gaps"] or ()) or None,
            }
        found.append({"sampled_at": row["sampled_at"], "next_sampled_at": None, "missed": None, "next_topic_gap": None})
        failed = []
        interval = None if row["interval_ms"] is None else row["interval_ms"] * MILLISECOND
    if found and failed:
        found[-1]["missed"] = _missed(found[-1]["sampled_at"], None, failed, late=False)
    return list(found)


def _missed(start: dt.datetime, end: dt.datetime | None, failed: Sequence[Row], late: bool) -> str | None:
    if failed:
        count = f"{len(failed)} samples" if len(failed) > 1 else "a sample"
        return f"{count} after {at(start)} failed ({failed[0]['error'].partition(':')[0]})"
    return f"no sample from {at(start)} for {duration(end - start)}" if late and end is not None else None


def over_time(findings: Iterable[Row]) -> list[Row]:
    """One row for each transaction that was open in a recording of one partition.

    Parameters
    ----------
    findings
        Rows of ``schema.RECORDED["findings"]`` of the partition, each with its sample's columns of `OBSERVATION_TIMES`.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``, with ``held_from``, ``held_to`` and ``held_ms``. A transaction held the LSO from
        the first sample that shows it, or from the earlier time in that sample's evidence, until the first sample that
        read the partition without it: then it is `ended`. For a transaction still open in the last sample, the row has
        that sample's verdict. Earlier verdicts are evidence. Each verdict on the partition itself, such as waiting for
        replication or unreadable, has a row without these times.
    """
    verdicts = _ObservedVerdicts.of(findings)
    rows = [_row(key, found, verdicts) for key, found in verdicts.by_key]
    return [{name: row.get(name) for name in FINDINGS.names} for row in rows]  # old recordings lack newer columns


def recorded_over_time(findings: Iterable[Row], samples: Iterable[Row]) -> list[Row]:
    """Apply `over_time` to each partition of a recording.

    Parameters
    ----------
    findings
        Rows of ``schema.RECORDED["findings"]``; rows of failed samples are ignored.
    samples
        Rows of ``schema.SAMPLES``.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``.
    """
    known = {observation["sampled_at"]: observation for observation in observation_times(samples)}
    by_partition: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in findings:
        if row["sampled_at"] in known:
            by_partition[row["topic"], row["partition"]].append({**row, **known[row["sampled_at"]]})
    return [row for rows in by_partition.values() for row in over_time(rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObservedVerdicts:
    """The samples' verdicts on a partition.

    Parameters
    ----------
    by_key
        Findings by transaction, or by verdict on the partition; in sample order.
    by_sample
        Findings by sample.
    """

    by_key: Sequence[tuple[tuple[Any, ...], Sequence[Row]]]
    by_sample: Mapping[dt.datetime, Sequence[Row]]

    @staticmethod
    def of(findings: Iterable[Row]) -> _ObservedVerdicts:
        by_sample: defaultdict[dt.datetime, list[Row]] = defaultdict(list)
        by_key: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in sorted(findings, key=lambda row: row["sampled_at"]):
            by_sample[row["sampled_at"]].append(row)
            if row["start_offset"] is not None:
                by_key[row["start_offset"], row["producer_id"]].append(row)  # a superseding epoch does not end it
            elif row["producer_id"] is None and row["verdict"] != "clear":
                by_key[None, row["verdict"]].append(row)
        return _ObservedVerdicts(by_key=sorted(by_key.items(), key=lambda item: str(item[0])), by_sample=by_sample)

    def after(self, sample: dt.datetime) -> Iterator[Row]:
        """Each sample from this one on, until the last, or until one without findings of the partition."""
        while sample in self.by_sample:
            observation = self.by_sample[sample][0]
            yield observation
            if observation["next_sampled_at"] is None:
                return
            sample = observation["next_sampled_at"]

    def unread(self, observation: Row) -> str | None:
        """Why the next sample could not read the partition; null if it did."""
        found = self.by_sample.get(observation["next_sampled_at"], ())
        return unread(found) if found else observation["next_topic_gap"]


def _row(key: tuple[Any, ...], found: Sequence[Row], verdicts: _ObservedVerdicts) -> Row:
    entries: list[Row] = []
    verdict, gone = None, None
    for row, following in zip(found, [*found[1:], None], strict=True):
        if row["verdict"] != verdict or gone is not None:
            entries.append(_entry(row, "verdict", f"{row['verdict']}: {row['reason']}"))
        verdict = row["verdict"]
        gone = _gone(row, following, verdicts, entries)
    ids = [row["transactional_id"] for row in found if row["transactional_id"] is not None]
    merged: dict[str, Any] = {
        **found[-1],
        "transactional_id": ids[-1] if ids else None,
        "evidence": [*found[-1]["evidence"], *entries],
        **dict.fromkeys(("held_from", "held_to", "held_ms")),
    }
    holding = [row for row in found if row["queue_position"] == 1 and key[0] is not None]
    if holding:
        merged |= _held(holding, found[-1], gone)
    if gone is None or key[0] is None:
        return merged
    return close({**merged, "observed_at": gone}, end=f"The sample of {at(gone)} no longer has it.", before=found[-1])


def _held(holding: Sequence[Row], last: Row, gone: dt.datetime | None) -> Row:
    merged = [row["held_from"] for row in holding if row["held_from"] is not None]
    held_from = merged[-1] if merged else holding[0]["sampled_at"]
    held_to = last["held_to"] or gone
    return {
        "queue_position": last["queue_position"] if held_to is None else None,
        "held_from": held_from,
        "held_to": held_to,
        "held_ms": max(((held_to or last["observed_at"]) - held_from) // MILLISECOND, 0),
    }


def _gone(row: Row, following: Row | None, verdicts: _ObservedVerdicts, entries: list[Row]) -> dt.datetime | None:
    """The first sample after a row that read the partition without it; null if `following` comes first, or neither.

    Gaps until then are added to `entries`.
    """
    for observation in verdicts.after(row["sampled_at"]):
        sample: dt.datetime | None = observation["next_sampled_at"]
        if observation["missed"]:
            entries.append(_entry(row, "missed", observation["missed"]))
        if sample is None or (following is not None and sample == following["sampled_at"]):
            return None
        unread = verdicts.unread(observation)
        if unread is None:
            entries.append(_entry(row, "gone", f"the sample of {at(sample)} does not have it"))
            return sample
        entries.append(_entry(row, "missed", f"the sample of {at(sample)} could not read the partition ({unread})"))
    return None


def _entry(row: Row, name: str, value: str) -> Row:
    return {
        "source": SOURCE,
        "broker_id": row["broker_id"],
        "observed_at": row["observed_at"],
        "name": name,
        "value": value,
    }
