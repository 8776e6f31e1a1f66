"""Lazy exports of a package: a name is imported on first use, so importing the package stays cheap (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a module's ``__getattr__`` and ``__dir__``, which lists what the package exports.

    `package`: name of the package.
    `modules`: maps an exported name to the module that defines it.
    """

    def __getattr__(name: str) -> object:  # noqa: N807
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:  # noqa: N807
        return sorted(sys.modules[package].__all__)

    return __getattr__, __dir__
