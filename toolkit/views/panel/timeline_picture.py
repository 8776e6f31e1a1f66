"""The timeline of a live partition in the panel: read from the log, drawn in a frame that needs no network."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

import ipywidgets as widgets

from toolkit.errors import ToolkitError
from toolkit.schema.coerce import records_of
from toolkit.schema.log import LogTransaction, LsoStep

if TYPE_CHECKING:
    from toolkit.schema.live import Finding, Partition
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.plots.plot_theme import ThemeName


BEFORE, BEHIND = 2_000, 50_000  # offsets of the log to read around the start of the transaction

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePicture:
    """A timeline by theme, and sentences about unreadable data."""

    figures: Mapping[str, Any]
    problems: Sequence[str]


def picture(
    cluster: Cluster, selected: Finding, *, findings: Sequence[Finding], samples: Sequence[Partition]
) -> TimelinePicture:
    """Read the log around the start of a transaction, and draw it.

    `selected`: the selected finding: its start is drawn, and the states of its id, even if it has ended.
    `findings`: the current findings of its partition, at least one.
    `samples`: the partition at several times, at least one, the newest last.
    """
    from toolkit.views.plots import plot_timeline

    last = samples[-1]
    problems = [f"The partition could not be read: {last.error}"] if last.error else []

    def attempt(what: str, read: Callable[[], Read], otherwise: Read) -> Read:
        try:
            return read()
        except ToolkitError as error:
            problems.append(f"{what} could not be read: {error}")
            return otherwise

    middle = last.last_stable_offset or 0 if selected.start_offset is None else selected.start_offset
    where: dict[str, Any] = {"topics": selected.topic, "partitions": selected.partition}
    where |= {"start": max(last.log_start_offset or 0, middle - BEFORE), "stop": middle + BEHIND}
    log_transactions: list[LogTransaction] = []
    steps: list[LsoStep] = []
    if not last.error:
        read_log = partial(cluster.log_transactions, **where)
        log_transactions = attempt("The log", lambda: records_of(read_log(), LogTransaction), [])
        read_steps = partial(cluster.lso_timeline, **where)
        steps = attempt("How the LSO moved", lambda: records_of(read_steps(), LsoStep), [])
    ids = sorted({each.transactional_id for each in (selected, *findings) if each.transactional_id is not None})
    read_records = partial(cluster.transaction_log, transactional_ids=ids)
    events = attempt("Records of the coordinators", read_records, None) if ids else None
    themes: tuple[ThemeName, ...] = ("light", "dark")
    figures: dict[str, Any] = {
        theme: plot_timeline(
            log_transactions,
            lso_timeline=steps,
            partitions=samples,
            findings=findings,
            transaction_log=events,
            topic=selected.topic,
            partition=selected.partition,
            theme=theme,
        )
        for theme in themes
    }
    return TimelinePicture(figures=figures, problems=problems)


# A figure in an Output needs a renderer that Databricks does not bring, HTML of a widget runs no script, and a picture
# needs a browser in the kernel. A frame with a document of its own runs its script in JupyterLab, Voila and Databricks:
# plotly.js is in it once, packed (2.0 MB, 4.8 as it is), and draws what a second widget holds (some 40 kB a figure).
# If a page forbids even that, the static picture in the second widget is shown.


class FigureFrame(widgets.VBox):  # type: ignore[misc]
    """A figure that can be replaced in place, in the colours of the page."""

    def __init__(self) -> None:
        self._data = widgets.HTML()
        self._has_script = False
        super().__init__()
        self.add_class("figure")

    def show(self, picture: TimelinePicture) -> None:
        """Draw another figure."""
        if not self._has_script:  # the script is sent once a figure is shown
            self.children = (widgets.HTML(_frame_html()), self._data)
            self._has_script = True
        from toolkit.views.plots import figure_html

        figures = {theme: figure.to_json() for theme, figure in picture.figures.items()}
        # The static picture is for pages that forbid the script.
        self._data.value = f'{_data_html(figures)}<div class="still">{figure_html(picture.figures["light"])}</div>'

    def clear(self) -> None:
        """Show none."""
        self._data.value = ""


def _frame_html() -> str:
    from toolkit.views.plots.plot_theme import packed_script

    page = (resources.files(__package__) / "frame.html").read_text(encoding="utf-8")
    document = html.escape(page.replace("PLOTLY", packed_script()), quote=True)
    return f'<iframe class="drawn" title="timeline of the partition" srcdoc="{document}"></iframe>'


def _data_html(figures: Mapping[str, str]) -> str:
    """Figures by theme, as data; plotly escapes `<` in it."""
    by_theme = ", ".join(f'"{theme}": {text}' for theme, text in figures.items())
    return f'<script type="application/json">{{{by_theme}}}</script>'
