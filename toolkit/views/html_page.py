"""HTML pages from templates; all values are escaped."""

from __future__ import annotations

from importlib import resources
from typing import Any


def page(package: str, template: str, **values: Any) -> str:
    """Render a template of a package."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (resources.files(package) / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(**values)
