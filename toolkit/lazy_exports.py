"""Names that a package imports when they are first used, so that importing it stays cheap (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_exports"]


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """A module's ``__getattr__``.

    Parameters
    ----------
    package
        Name of the package.
    modules
        Exported name to the module that defines it.
    """

    def __getattr__(name: str) -> object:  # noqa: N807
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
