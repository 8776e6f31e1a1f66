"""The notebooks as the site renders them: their stored outputs, and the pictures where a widget would be."""

from __future__ import annotations

import re

from tests.notebooks.books import BOOKS

__all__ = ["notebook_pages"]


# as JSON; Sphinx copies no picture that is in HTML, so the site shows the light one
PICTURE = re.compile(r'<picture>.{0,200}?<img alt=\\"([^"\\]+)\\" src=\\"(\w+\.png)\\">.{0,40}?</picture>', re.DOTALL)


def notebook_pages() -> dict[str, str]:
    """File name to text; their pictures stay where they are."""
    return {path.name: PICTURE.sub(r"![\1](../../notebooks/\2)", path.read_text("utf-8")) for path in BOOKS}
