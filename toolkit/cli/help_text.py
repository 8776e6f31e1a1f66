"""Help by panel, with whole flags at any width: the tables of typer's own help cut them at 80 columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

COLUMNS = 110  # a line that is longer is hard to read
HELP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": COLUMNS}


class PanelCommand(TyperCommand):
    """A command whose help has its options by panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options."""
        _write_parameters(self.get_params(ctx), ctx, formatter)


class PanelGroup(TyperGroup):
    """Commands, by panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        _write_parameters(self.get_params(ctx), ctx, formatter)
        longest = max(map(len, self.commands))
        _write(
            (
                (getattr(each, "rich_help_panel", None), (f"{name:<{longest}}", each.get_short_help_str(200)))
                for name, each in self.commands.items()
            ),
            formatter,
            default="Commands",
        )


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    records = ((each, each.get_help_record(ctx)) for each in parameters)
    panels = (
        ("Arguments" if each.param_type_name == "argument" else each.rich_help_panel, record)
        for each, record in records
        if record is not None
    )
    _write(panels, formatter, default="Options")


def _write(rows: Iterable[tuple[str | None, tuple[str, str]]], formatter: Any, *, default: str) -> None:
    by_panel: dict[str, list[tuple[str, str]]] = {}
    for panel, row in rows:
        by_panel.setdefault(panel or default, []).append(row)
    for panel, of_panel in by_panel.items():
        with formatter.section(panel):
            formatter.write_dl(of_panel)
