"""Java's ``.properties`` files, and what a configuration needs beside itself: files, Python packages."""

from __future__ import annotations

import re

from toolkit.config.keys import Properties
from toolkit.errors import UsageError


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file: UTF-8, else Latin-1 (which is what Java reads)."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Java ``.properties`` text to a dict; the last of equal keys wins (``java.util.Properties.load``).

    Raises
    ------
    UsageError
        For a malformed unicode escape; it names the key and not the value.
    """
    import javaproperties

    properties: dict[str, str] = {}
    position = 0
    try:
        for entry in javaproperties.parse(text):
            position += len(entry.source)
            if isinstance(entry, javaproperties.KeyValue):
                properties[_characters(entry.key)] = _characters(entry.value)
    except javaproperties.InvalidUEscapeError:
        pass  # its text may show a part of a secret
    else:
        return properties
    key = re.match(r"\s*([^\\=:\s]*)", text[position:])
    raise UsageError(
        f"The value of {key[1] if key and key[1] else 'a key'} has a malformed \\u escape.",
        do="Write \\u and four hex digits.",
    )


def _characters(text: str) -> str:
    """Without half of a surrogate pair, which no client could encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", do="Check the path and its permissions."
        ) from error


def need_package(package: str, what: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UsageError(what, do=f"pip install {package}")


def refuse_java(properties: Properties, key: str, *, do: str, own: tuple[str, ...] = ()) -> None:
    """Raise for a key with a Java class, unless it is one of Kafka's own, by the end of its name."""
    if properties.get(key) and not properties[key].endswith(own):
        raise UsageError(f"{key} names Java code, which cannot run here.", do=do)
