"""Durations as users write them (``30s``, ``15m``, ``2h``), and as texts show them (``2 h 14 min``)."""

from __future__ import annotations

import datetime as dt
import re

CLOCKS_DIFFER = dt.timedelta(seconds=5)  # tolerated difference between the clocks of two brokers

UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
TEXT_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
PART = r"(\d+(?:\.\d+)?)\s*([a-z]*)"


def duration_s(text: str, *, unit: str = "s") -> float:
    """Seconds of a duration such as ``30s``, ``1.5h``, ``1h 30m`` or Spark's ``interval 10 seconds``.

    Raises ValueError if the text is not a duration.
    `text`: the duration.
    `unit`: unit of a number without one.
    """
    text = text.strip().lower().removeprefix("interval ").strip()
    parts = re.findall(PART, text)
    if not re.fullmatch(rf"({PART}\s*)+", text) or any((name or unit) not in UNITS for _, name in parts):
        raise ValueError(f"{text!r} is not a duration")
    return sum(float(number) * UNITS[name or unit] for number, name in parts)


def duration(elapsed: dt.timedelta) -> str:
    """A duration in its two largest units: ``2 h 14 min``."""
    rest = round(abs(elapsed).total_seconds())
    parts: list[str] = []
    for unit, size in TEXT_UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "under 1 s"


def elapsed_ms(
    start: dt.datetime | None, end: dt.datetime | None, *, differ: dt.timedelta = dt.timedelta.max
) -> int | None:
    """The time between two times in milliseconds, and not less than none; null if one of them is unknown.

    `differ`: null, too, if the start is later than the end by more than this: then clocks contradict each other.
    """
    if start is None or end is None or start - end > differ:
        return None
    return max((end - start) // dt.timedelta(milliseconds=1), 0)
