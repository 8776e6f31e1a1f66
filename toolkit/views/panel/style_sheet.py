"""How the panel looks: its style sheet, which takes its colours from the page."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["style_html"]


@cache
def style_html() -> str:
    """The style sheet as an element."""
    return f"<style>{(resources.files(__package__) / 'panel.css').read_text(encoding='utf-8')}</style>"
