"""Options of a reader, parsed and checked; no value is ever shown, as it could be a secret."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from toolkit.errors import UsageError
from toolkit.schema.durations import duration_s

__all__ = ["Options", "choice", "flag", "milliseconds", "refuse_unknown", "seconds", "whole_number"]

Options = Mapping[str, str]  # Spark's own is not case-sensitive


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
    value = options.get(name, default).strip().lower()
    if value not in by_key:
        raise UsageError(f"The option {name} has an invalid value.", do=f"Use one of {', '.join(choices)}.")
    return by_key[value]


def flag(options: Options, name: str, *, default: bool = False) -> bool:
    """``true`` or ``false``."""
    return choice(options, name, ("true", "false"), default=str(default)) == "true"


def whole_number(options: Options, name: str, *, lowest: int = 0) -> int | None:
    """A whole number; null if not set.

    Raises
    ------
    UsageError
        If it is none, or lower than `lowest`.
    """
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = lowest - 1
    if number < lowest:
        raise UsageError(f"The option {name} is no whole number from {lowest} on.", do="Correct it.")
    return number


def seconds(options: Options, name: str, *, default: float, lowest: float = 0.0) -> float:
    """A duration in seconds: ``30``, ``10s``, ``15m``, or as Spark writes intervals, ``1 hour 30 minutes``.

    Raises
    ------
    UsageError
        If it is none, or shorter than `lowest`.
    """
    value = options.get(name)
    if value is None:
        return default
    try:
        total = duration_s(value)
    except ValueError:
        raise UsageError(f"The option {name} is no duration.", do="Use 30s, 15m or 2h.") from None
    if total < lowest:
        raise UsageError(f"The option {name} is too short.", do=f"Use {lowest:g}s or longer.")
    return total


def milliseconds(options: Options, name: str) -> int | None:
    """A duration as `seconds` reads it, in milliseconds; null where the option is not set."""
    return None if options.get(name) is None else round(seconds(options, name, default=0) * 1000)
