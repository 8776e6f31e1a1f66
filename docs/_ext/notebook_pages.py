"""The notebooks as the site renders them: their stored outputs, and the pictures where a widget would be."""

from __future__ import annotations

import re

from tests.notebooks.books import BOOKS

__all__ = ["notebook_pages"]


PICTURE = re.compile(r"\]\((\w+\.png)\)")


def notebook_pages() -> dict[str, str]:
    """File name to text; their pictures stay where they are."""
    return {path.name: PICTURE.sub(r"](../../notebooks/\1)", path.read_text("utf-8")) for path in BOOKS}
