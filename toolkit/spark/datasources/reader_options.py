"""Options of a reader, parsed and checked. Errors never contain a value: it could be a secret."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from toolkit.errors import UsageError
from toolkit.schema.durations import duration_s

Options = Mapping[str, str]  # Spark's own mapping is case-insensitive


def refuse_unknown(options: Options, known: Collection[str], *, source: str, prefix: str | None = None) -> None:
    """Refuse unknown options.

    Parameters
    ----------
    options
        All options of the reader.
    known
        Names of the known options, as documented.
    source
        Name of the data source.
    prefix
        Prefix of client options, which are not checked here.

    Raises
    ------
    UsageError
        For the first unknown option; it lists the known ones.
    """
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names and not (prefix and name.lower().startswith(prefix)):
            clients = f", and {prefix}* for the client" if prefix else ""
            raise UsageError(f"{source} has no option {name!r}.", do=f"It has {', '.join(sorted(known))}{clients}.")


def choice(options: Options, name: str, choices: Collection[str], *, default: str) -> str:
    """One of some words, in any case.

    Raises
    ------
    UsageError
        If it is another word.
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
        If it is not a whole number, or less than `lowest`.
    """
    value = options.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = lowest - 1
    if number < lowest:
        raise UsageError(f"The option {name} is not a whole number of at least {lowest}.", do="Correct it.")
    return number


def seconds(options: Options, name: str, *, default: float, lowest: float = 0.0) -> float:
    """A duration in seconds: ``30``, ``10s``, ``15m``, or as Spark writes intervals, ``1 hour 30 minutes``.

    Raises
    ------
    UsageError
        If it is not a duration, or shorter than `lowest`.
    """
    value = options.get(name)
    if value is None:
        return default
    try:
        total = duration_s(value)
    except ValueError:
        raise UsageError(f"The option {name} is not a duration.", do="Use 30s, 15m or 2h.") from None
    if total < lowest:
        raise UsageError(f"The option {name} is too short.", do=f"Use {lowest:g}s or longer.")
    return total


def milliseconds(options: Options, name: str) -> int | None:
    """A duration as in `seconds`, but in milliseconds; null if not set."""
    return None if options.get(name) is None else round(seconds(options, name, default=0) * 1000)
