"""HTML pages from templates; all values are escaped."""

from __future__ import annotations

from importlib import resources
from typing import Any

from toolkit.schema.verdict import TONES, Verdict


def page(package: str, template: str, **values: Any) -> str:
    """Render a template of a package."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (resources.files(package) / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(**values)


def verdict_colours(selector: str, rule: str) -> str:
    """CSS with the colour of each verdict as a rule: `selector` and `rule` are formats with its name and colour.

    Light colours, in the order of the verdicts; a page that is dark has those of `toolkit.schema.verdict.TONES`.
    """
    return "\n".join(
        selector.format(verdict) + " { " + rule.format(TONES["light"][verdict.tone]) + " }" for verdict in Verdict
    )


def tone_variables(theme: str) -> str:
    """The colours of verdicts as CSS variables: ``--alarm: #b83a00; ...``."""
    return " ".join(f"--{tone}: {colour};" for tone, colour in TONES[theme].items())
