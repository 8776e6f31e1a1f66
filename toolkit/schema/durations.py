"""Durations as users write them: ``30s``, ``15m``, ``2h``."""

from __future__ import annotations

import re

__all__ = ["duration_s"]

UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
PART = r"(\d+(?:\.\d+)?)\s*([a-z]*)"


def duration_s(text: str, *, unit: str = "s") -> float:
    """Seconds of a duration such as ``30s``, ``1.5h``, ``1h 30m`` or Spark's ``interval 10 seconds``.

    Parameters
    ----------
    unit
        Unit of a number without one.

    Raises
    ------
    ValueError
        If the text is not a duration.
    """
    text = text.strip().lower().removeprefix("interval ").strip()
    parts = re.findall(PART, text)
    if not re.fullmatch(rf"({PART}\s*)+", text) or any((name or unit) not in UNITS for _, name in parts):
        raise ValueError(f"{text!r} is not a duration")
    return sum(float(number) * UNITS[name or unit] for number, name in parts)
