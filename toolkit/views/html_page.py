"""HTML pages from templates; all values are escaped."""

from __future__ import annotations

from importlib import resources
from typing import Any

from toolkit.errors import UsageError


def page(package: str, template: str, *, what: str, **values: Any) -> str:
    """Render a template of a package.

    Parameters
    ----------
    package, template
        Package and name of the template.
    what
        What is rendered, for the error: ``A page``.
    **values
        Values of the template.

    Raises
    ------
    UsageError
        If jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UsageError(
            f"{what} needs jinja2, which is not installed.", do="pip install 'kafka-txn-toolkit[notebooks]'."
        ) from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (resources.files(package) / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(**values)
