"""What the options of a reader say, checked; no value is ever shown, as it could be a secret."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from toolkit.errors import UsageError

__all__ = ["Options", "choice", "flag", "refuse_unknown", "seconds", "whole_number"]

Options = Mapping[str, str]  # Spark's own is not case-sensitive

UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}


def refuse_unknown(options: Options, known: Collection[str], *, source: str, prefix: str | None = None) -> None:
    """Refuse an option that would be ignored.

    Parameters
    ----------
    known
        Names, as they are documented.
    source
        Name of the data source.
    prefix
        What options of a client begin with, whose names are not ours to know.

    Raises
    ------
    UsageError
        It names the known ones.
    """
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names and not (prefix and name.lower().startswith(prefix)):
            clients = f", and {prefix}* for the client" if prefix else ""
            raise UsageError(f"{source} has no option {name!r}.", do=f"It has {', '.join(sorted(known))}{clients}.")


def choice(options: Options, name: str, choices: Collection[str], *, default: str) -> str:
    """One of some words, whatever its case.

    Raises
    ------
    UsageError
        If it is none of them.
    """
    by_key = {word.lower(): word for word in choices}
    said = options.get(name, default).strip().lower()
    if said not in by_key:
        raise UsageError(f"The option {name} is none of its values.", do=f"Say one of {', '.join(choices)}.")
    return by_key[said]


def flag(options: Options, name: str, *, default: bool = False) -> bool:
    """``true`` or ``false``."""
    return choice(options, name, ("true", "false"), default=str(default)) == "true"


def whole_number(options: Options, name: str, *, lowest: int = 0) -> int | None:
    """A whole number; null where it is not said.

    Raises
    ------
    UsageError
        If it is none, or lower than `lowest`.
    """
    said = options.get(name)
    if said is None:
        return None
    try:
        number = int(said)
    except ValueError:
        number = lowest - 1
    if number < lowest:
        raise UsageError(f"The option {name} is no whole number from {lowest} on.", do="Correct it.")
    return number


def seconds(options: Options, name: str, *, default: float, lowest: float = 0.0) -> float:
    """A length of time in seconds: ``30`` or as Spark writes intervals, ``10s``, ``1 minute``, ``1 hour 30 minutes``.

    Raises
    ------
    UsageError
        If it is none, or shorter than `lowest`.
    """
    said = options.get(name)
    if said is None:
        return default
    text = said.strip().lower().removeprefix("interval ")
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    whole = re.fullmatch(r"(\s*\d+(\.\d+)?\s*[a-z]*)+", text)
    if not whole or any((unit or "s") not in UNITS for _, unit in parts):
        raise UsageError(
            f"The option {name} is no length of time.", do="Say seconds, or for example 500ms or 1 minute."
        )
    total = sum(float(number) * UNITS[unit or "s"] for number, unit in parts)
    if total < lowest:
        raise UsageError(f"The option {name} is too short.", do=f"Say {lowest:g}s or longer.")
    return total
