"""A page for each command: what it does, and its options with their defaults, as the command line declares them.

Typer carries a Click of its own, which sphinx-click does not take for Click; so the parameters are read here.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import typer

from toolkit.cli.commands import PANELS, app, examples

__all__ = ["command_pages"]


def command_pages() -> dict[str, str]:
    """File name to text."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines: list[str] = []
    for panel, names in PANELS.items():
        lines += [f"## {panel}", "", "| command | what it does |", "| --- | --- |"]
        lines += [f"| [`{name}`]({name}.md) | {_first_paragraph(commands[name])} |" for name in names]
        lines += [""]
    tree = ["```{toctree}", ":hidden:", "", *commands, "```"]
    about = "[Exit codes and the audit trail](../../commands.md) are the same for all of them."
    index = "\n".join(["# Command line", "", about, "", *lines, *tree, ""])
    return {"index.md": index, **{f"{name}.md": "\n".join(_page(name, each)) for name, each in commands.items()}}


def _page(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    yield from (f"# `kafka-txn {name}`", "", inspect.cleandoc(command.help), "")
    usage = ["kafka-txn", name, *(each.metavar for each in arguments), *(["[OPTIONS]"] if options else [])]
    yield from ("```text", " ".join(usage), "```", "", f"```{{program}} kafka-txn {name}", "```", "")
    yield from ("```text", *examples()[name], "```", "")
    for each in arguments:
        yield from (f"`{each.metavar}`", f": {each.help}", "")
    for panel, group in itertools.groupby(options, key=lambda each: each.rich_help_panel or "Options"):
        yield from (f"## {panel}", "")
        for each in group:
            yield from (f"```{{option}} {_flags(each)}", " ".join([each.help or "", *_values(each)]), "```", "")


def _flags(option: Any) -> str:
    flags = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar or 'NAME'}"
    return ", ".join(f"{flag}{value}" for flag in flags)


def _values(option: Any) -> Iterator[str]:
    choices = getattr(option.type, "choices", ())
    if choices and not option.metavar:
        yield f"One of {', '.join(f'`{each}`' for each in choices)}."
    default = getattr(option.default, "value", option.default)
    if default is None and isinstance(option.show_default, str):
        default = option.show_default
    if default not in (None, False, "", ()) and not option.is_flag:
        yield f"Default: `{default}`."
    if option.envvar:
        yield f"Environment: `{option.envvar}`."
    if option.required:
        yield "Required."


def _first_paragraph(command: Any) -> str:
    return inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
