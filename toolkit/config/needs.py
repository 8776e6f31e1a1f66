"""External needs of a configuration: files, Python packages, and Java code, which is refused."""

from __future__ import annotations

from toolkit.config.keys import Properties
from toolkit.errors import UsageError


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
