"""The command that shows a page of the docs without a network."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from toolkit.cli.output import show, width
from toolkit.errors import NotFound

NAMES_SHOWN = 5


def docs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A verdict, a cause, a symptom, an alert or another page, or an error in quotes; without it all names "
            "are listed.",
        ),
    ] = None,
) -> None:
    """Show the page of a verdict, cause, symptom, alert or how-to: from the package, without a network."""
    from toolkit.analysis.symptoms.recognition import SYMPTOMS, RecognizedSymptom, recognize
    from toolkit.views.docs_pages import page_names, page_text, page_title, section_of_alert
    from toolkit.views.explained_error import symptom_section
    from toolkit.views.renderers import text_lines

    pages = page_names()
    if name is None:
        titles = {each: page_title(path) for each, path in pages.items()}
        titles |= {each: symptom.title for each, symptom in SYMPTOMS.items() if each not in pages}
        longest = max(map(len, titles))
        show(f"{each:<{longest}}  {title}" for each, title in titles.items())
        return
    if name in pages:
        show(page_text(pages[name]).splitlines())
        return
    if section := section_of_alert(name):
        show(section.splitlines())
        return
    if name in SYMPTOMS:
        found = [RecognizedSymptom(SYMPTOMS[name], tuple({each.client: "" for each in SYMPTOMS[name].wordings}))]
    else:
        found = [*recognize(name)[0]]
    if not found:
        close = difflib.get_close_matches(name, [*pages, *SYMPTOMS], n=NAMES_SHOWN)
        hint = f"Is it {' or '.join(close)}?" if close else "Without a name, all are listed."
        raise NotFound(f"There is no page {name!r}.", do=hint)
    show(text_lines(map(symptom_section, found), width=width()))
