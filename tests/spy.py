"""A spy in place of the library's entry points: it writes down what a caller passes, each argument by its name."""

from __future__ import annotations

import ast
import datetime as dt
import functools
import importlib
import inspect
import pkgutil
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import toolkit
from toolkit.schema import Table
from toolkit.schema.table import TableRow

Answers = Mapping[str, Any]
"""What a call returns instead of a spy, by its name: a value, or a function of the call's arguments."""


SMALL = 6  # columns of a row whose values are shown
LONG = 100  # characters of a value that is cut


class Spy(str):
    """Whatever a callee may return, named for the call: text, an empty collection, an open source."""

    calls: Calls

    def __new__(cls, name: str, calls: Calls) -> Spy:
        self = super().__new__(cls, f"<{name}>")
        self.calls = calls
        return self

    @property
    def name(self) -> str:
        return str.__str__(self)[1:-1]

    def __getattribute__(self, name: str) -> Any:
        if name in {"calls", "name"} or (name.startswith("__") and name.endswith("__")):
            return super().__getattribute__(name)
        return self.calls.attribute(self.name, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.calls.add(self.name, None, args, kwargs)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __getitem__(self, key: Any) -> Any:
        return self.calls.attribute(self.name, f"[{key!r}]")

    def __enter__(self) -> Spy:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __format__(self, spec: str) -> str:
        return str.__str__(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A spy is not copied.")


class Calls:
    """The calls of one run, and the spies that note them."""

    def __init__(self, answers: Answers, *, folder: Path) -> None:
        self.lines: list[str] = []  # callee, parameter and value; one for each argument
        self._answers = answers
        self._folder = str(folder)
        self._types: dict[str, type] = {}  # the real class behind a spy, by the spy's name

    def spied(self, real: Any, name: str) -> Any:
        """The spy for a function or a class; a class remains one, for `isinstance`."""
        if not inspect.isclass(real):
            return functools.wraps(real)(lambda *args, **kwargs: self.add(name, real, args, kwargs))
        self._types[name] = real
        calls = self

        class Meta(type):
            def __call__(cls, *args: Any, **kwargs: Any) -> Any:
                return calls.add(name, real, args, kwargs, made=lambda: Spy.__new__(cast(type[Spy], cls), name, calls))

            def __getattr__(cls, attribute: str) -> Any:
                return calls.attribute(name, attribute)

        return Meta(real.__name__, (Spy,), {})

    def attribute(self, name: str, attribute: str) -> Any:
        found = f"{name}.{attribute}"
        if found in self._answers:
            answer = self._answers[found]
            return (
                functools.partial(self.add, found, self._method(name, attribute), within=answer)
                if inspect.isfunction(answer)
                else answer
            )
        real = self._method(name, attribute)
        if real is None:
            return Spy(found, self)
        return lambda *args, **kwargs: self.add(found, real, (None, *args), kwargs)

    def _method(self, name: str, attribute: str) -> Any:
        real = inspect.getattr_static(self._types.get(name), attribute, None)
        return real if inspect.isfunction(real) else None

    def add(self, name: str, real: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **how: Any) -> Any:
        """Note a call. Raises TypeError if the real callee does not take these arguments."""
        try:
            signature = inspect.signature(real) if real else None
        except ValueError:  # of a class in C
            signature = None
        if signature is None:
            bound = {**{str(number): each for number, each in enumerate(args)}, **kwargs}
        else:
            bound = signature.bind(*args, **kwargs).arguments
            if "self" in bound:
                del bound["self"]
            for parameter in signature.parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:
                    bound |= bound.pop(parameter.name, {})
        self.lines += [f"{name}({parameter}={self._text(value)})" for parameter, value in bound.items()] or [
            f"{name}()"
        ]
        answer = self._answers.get(f"{name}()")
        if answer is not None:
            return answer(**bound) if inspect.isfunction(answer) else answer
        return how["made"]() if "made" in how else Spy(f"{name}()", self)

    def _text(self, value: Any) -> str:
        if isinstance(value, Spy):
            return str.__str__(value)
        if inspect.ismethod(value) and is_dataclass(value.__self__):  # it makes what is needed later
            value()
            return value.__name__
        if isinstance(value, Table):
            return value.name
        if isinstance(value, TableRow):
            key = {name: getattr(value, name) for name in value.table.key}
            return f"{type(value).__name__}({', '.join(f'{name}={each!r}' for name, each in key.items())})"
        if inspect.isroutine(value):
            return getattr(value, "__name__", "function")
        if isinstance(value, dt.datetime) and abs(from_now := value - dt.datetime.now(dt.UTC)) < dt.timedelta(
            minutes=5
        ):
            return f"now {round(from_now.total_seconds()):+}s"
        if inspect.isgenerator(value):
            value = list(value)
        if isinstance(value, Mapping) and len(value) > SMALL:
            return f"row of {value.get('start_offset')}" if "start_offset" in value else "row"
        if isinstance(value, Mapping):
            return f"dict({', '.join(f'{name}={self._text(each)}' for name, each in value.items())})"
        if is_dataclass(value) and not isinstance(value, type):
            changed = [each.name for each in fields(value) if getattr(value, each.name) != each.default]
            named = ", ".join(f"{name}={self._text(getattr(value, name))}" for name in changed)
            return f"{type(value).__name__}({named})"
        if hasattr(value, "num_rows"):
            return f"{value.num_rows} rows"
        if isinstance(value, list) and value and isinstance(value[0], dict) and len(value[0]) > SMALL:
            return f"{len(value)} rows"
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return f"[{', '.join(map(self._text, value))}]"
        if repr(value) == object.__repr__(value) or isinstance(value, threading.Event):
            return f"<{type(value).__name__}>"
        text = " ".join(repr(value).replace(self._folder, "DIR").split())
        return text if len(text) < LONG else f"{text[:20]} ... {text[-20:]}"


@functools.cache
def entry_points(package: str, *, real: tuple[str, ...]) -> set[tuple[str, str]]:
    """The functions and classes of other packages of the toolkit that a package or module imports: module and name.

    `real`: packages whose names are values or have no effect, and stay as they are.
    """
    own = (package, *real)
    found = set()
    file = Path(str(sys.modules[package].__file__))
    for path in sorted(file.parent.rglob("*.py")) if file.stem == "__init__" else [file]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("toolkit"):
                continue
            module = str(node.module)
            if not any(module == each or module.startswith(f"{each}.") for each in own):
                found |= {(module, alias.name) for alias in node.names}
    return found


def spy_on(package: str, calls: Calls, patch: pytest.MonkeyPatch, *, real: tuple[str, ...]) -> None:
    """Put spies in place of what `entry_points` has, where it is defined and where the package has imported it.

    A frozen dataclass is a value, and stays what it is: its fields show in the arguments of whoever gets it.
    """
    spies: dict[int, Any] = {}
    for each in pkgutil.walk_packages(toolkit.__path__, "toolkit."):  # first: an import would keep a spy
        importlib.import_module(each.name)

    def spy(owner: Any, name: str) -> None:
        found = getattr(owner, name)
        if isinstance(found, types.ModuleType):
            for each, value in vars(found).items():
                if getattr(value, "__module__", None) == found.__name__:
                    spy(found, each)
            return
        if not callable(found) or (is_dataclass(found) and cast(Any, found).__dataclass_params__.frozen):
            return
        spies.setdefault(id(found), calls.spied(found, name))
        patch.setattr(owner, name, spies[id(found)])

    for module, name in sorted(entry_points(package, real=real)):
        spy(importlib.import_module(module), name)
    for own in [each for name, each in sys.modules.items() if name == package or name.startswith(f"{package}.")]:
        for name, value in list(vars(own).items()):
            if id(value) in spies:
                patch.setattr(own, name, spies[id(value)])
