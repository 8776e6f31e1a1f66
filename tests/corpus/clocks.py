"""The clocks and waits of our code, replaced: nothing waits, and each wait moves the time."""

from __future__ import annotations

import datetime as dt
import importlib
import inspect
import pkgutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from itertools import count
from typing import Any, Protocol

import toolkit

OURS = ("toolkit.actions", "toolkit.analysis", "toolkit.cli", "toolkit.schema", "toolkit.sources", "toolkit.views")
KAFKA_PYTHON = ("kafka.net", "kafka.cluster")


class Clock(Protocol):
    """What tells the time, and is moved by waits."""

    def now(self) -> dt.datetime:
        """This machine's time."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def wait(self, seconds: float) -> None:
        """Move the time."""


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, dt.datetime)


class _Shim:
    """A module with some names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(vars(module))
        self.__dict__.update(replaced)


def numbered_uuids() -> Callable[[], uuid.UUID]:
    """A `uuid4` that counts."""
    numbers = count(1)
    return lambda: uuid.UUID(int=next(numbers) << 96)


@cache
def places(packages: tuple[str, ...]) -> Sequence[tuple[Any, str, Any]]:
    """The modules of some packages that know a clock, waits or random names: module, name, and what it is there.

    What commands import when they run is imported for that. A default factory of a dataclass is a cell of a closure.
    """
    for each in pkgutil.walk_packages(toolkit.__path__, "toolkit."):
        if each.name.startswith(OURS):
            importlib.import_module(each.name)
    found: list[tuple[Any, str, Any]] = []
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith(packages):
            continue
        originals = (dt, time, threading, uuid) if module_name.startswith("toolkit") else (time,)
        for name, value in list(vars(module).items()):
            if any(value is original for original in originals):
                found.append((module, name, value))
            elif isinstance(value, type) and value.__module__ == module_name and is_dataclass(value):
                cells = inspect.unwrap(value.__init__).__closure__ or ()  # `tests.sentences` wraps it
                found += [(cell, "cell_contents", time.monotonic) for cell in cells if _holds_monotonic(cell)]
    return found


def _holds_monotonic(cell: Any) -> bool:
    return cell.cell_contents is time.monotonic


@contextmanager
def controlled(clock: Clock, *, packages: Sequence[str] = (*OURS, *KAFKA_PYTHON)) -> Iterator[None]:
    """Replace clocks, waits and random names of some packages, which are not changed otherwise."""

    class DateTime(dt.datetime, metaclass=_Meta):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return clock.now().astimezone(tz)

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                clock.wait(timeout or 0.0)
            return self.is_set()

    shims = {
        dt: _Shim(dt, datetime=DateTime),
        time: _Shim(time, monotonic=clock.monotonic, time=lambda: clock.now().timestamp(), sleep=clock.wait),
        threading: _Shim(threading, Event=Event),
        time.monotonic: clock.monotonic,
    }
    put = places(tuple(packages))
    for where, name, value in put:
        setattr(where, name, _Shim(uuid, uuid4=numbered_uuids()) if value is uuid else shims[value])
    try:
        yield
    finally:
        for where, name, value in put:
            setattr(where, name, value)
